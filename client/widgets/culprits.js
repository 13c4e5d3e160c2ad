/** Which samples and documents a rollback leaves out: those of the window, the most frequent first, and ids by hand. */
import { parseSamples } from "../rollbacks.js";
import { t } from "../i18n/index.js";
import { h } from "./dom.js";
import { problemLine } from "./parts.js";

/**
 * @typedef {{ documents: { document: string, samples: number, first_step: number, last_step: number }[] | null, truncated: boolean, problem: any }} Listed
 * the documents of the steps that are given up; null while they are not there yet
 */

/** @param {Listed} listed @param {import("../rollbacks.js").Chosen} chosen @param {[number, number]} steps that are given up */
export const culprits = (listed, chosen, [from, to]) =>
  h(
    "div",
    { class: "culprits", "data-key": "culprits" },
    h(
      "fieldset",
      { class: "field", "data-key": "documents" },
      h("legend", { class: "lbl" }, t("culprits.documents", { from, to })),
      documents(listed, chosen.documents),
      listed.truncated && h("span", { class: "hint" }, t("ledger.truncated")),
    ),
    h("div", { class: "field", "data-key": "samples" }, samples(chosen.samples)),
  );

/** @param {Listed} listed @param {Set<string>} chosen */
function documents({ documents: all, problem }, chosen) {
  if (problem) return problemLine(problem);
  if (all === null) return h("p", { class: "hint" }, t("culprits.reading"));
  // What is ticked stays in sight, whatever the steps are by now: it is part of the order.
  const listed = new Set(all.map((d) => d.document)),
    kept = [...chosen].filter((name) => !listed.has(name));
  if (all.length + kept.length === 0) return h("p", { class: "hint" }, t("culprits.none"));
  return h(
    "div",
    { class: "pick documents", tabindex: 0, role: "group", "aria-label": t("culprits.label") },
    all.map((d) => choice(d.document, chosen, seenIn(d))),
    kept.map((name) => choice(name, chosen, [])),
  );
}

/** @param {string} name @param {Set<string>} chosen @param {import("./dom.js").Child} seen */
const choice = (name, chosen, seen) =>
  h(
    "label",
    { "data-key": name },
    h("input", { type: "checkbox", name: "document", value: name, checked: chosen.has(name) }),
    h("span", { class: "mono wrap" }, name),
    h("span", { class: "quiet nowrap" }, seen),
  );

/** @param {{ samples: number, first_step: number, last_step: number }} document */
const seenIn = ({ samples: count, first_step: from, last_step: to }) => [
  t(count === 1 ? "culprits.seen.one" : "culprits.seen", { samples: count }),
  " \u00b7 ",
  from === to ? t("chart.step", { step: from }) : t("culprits.steps", { from, to }),
];

/** @param {string} text */
function samples(text) {
  const { ids, bad, many } = parseSamples(text),
    wrong = bad !== null || many;
  return [
    h("label", { for: "samples" }, t("culprits.samples"), t("order.gap"), h("span", { class: "quiet" }, t("optional"))),
    h("input", {
      class: wrong ? "input mono bad" : "input mono",
      id: "samples",
      name: "samples",
      value: text,
      placeholder: "17, 40-44",
      autocomplete: "off",
      "aria-invalid": wrong ? "true" : null,
      "aria-describedby": "samples-hint",
    }),
    h(
      "span",
      { class: wrong ? "hint bad" : "hint", id: "samples-hint" },
      bad !== null
        ? t("culprits.bad", { part: bad })
        : many
          ? t("culprits.many")
          : ids.length
            ? t(ids.length === 1 ? "culprits.count.one" : "culprits.count", { count: ids.length })
            : t("culprits.hint"),
    ),
  ];
}

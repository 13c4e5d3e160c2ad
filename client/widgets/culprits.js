/** Which samples and documents a rollback leaves out: those of the window, the most frequent first, and ids by hand. */
import { parseSamples } from "../rollbacks.js";
import { t } from "../i18n/index.js";
import { h } from "./dom.js";
import { problemLine } from "./parts.js";

/**
 * @typedef {{ from: number, to: number, documents: { document: string, samples: number, first_step: number, last_step: number }[] | null, truncated: boolean, problem: any }} Listed
 * the documents of the steps `from` to `to`; null while they are not there yet
 */

/** @param {Listed} listed @param {import("../rollbacks.js").Chosen} chosen */
export const culprits = (listed, chosen) =>
  h(
    "div",
    { class: "culprits", "data-key": "culprits" },
    h(
      "fieldset",
      { class: "field", "data-key": "documents" },
      h("legend", { class: "lbl" }, t("culprits.documents", { from: listed.from, to: listed.to })),
      documents(listed, chosen.documents),
      listed.truncated && h("span", { class: "hint" }, t("ledger.truncated")),
    ),
    h("div", { class: "field", "data-key": "samples" }, samples(chosen.samples)),
  );

/** @param {Listed} listed @param {Set<string>} chosen */
function documents({ documents: all, problem }, chosen) {
  if (problem) return problemLine(problem);
  if (all === null) return h("p", { class: "hint" }, t("culprits.reading"));
  if (all.length === 0) return h("p", { class: "hint" }, t("culprits.none"));
  return h(
    "div",
    { class: "pick documents", tabindex: 0, role: "group", "aria-label": t("culprits.label") },
    all.map((d) =>
      h(
        "label",
        { "data-key": d.document },
        h("input", { type: "checkbox", name: "document", value: d.document, checked: chosen.has(d.document) }),
        h("span", { class: "mono wrap" }, d.document),
        h(
          "span",
          { class: "quiet nowrap" },
          t(d.samples === 1 ? "culprits.seen.one" : "culprits.seen", { samples: d.samples }),
          " \u00b7 ",
          d.first_step === d.last_step
            ? t("chart.step", { step: d.first_step })
            : t("culprits.steps", { from: d.first_step, to: d.last_step }),
        ),
      ),
    ),
  );
}

/** @param {string} text */
function samples(text) {
  const { ids, bad, many } = parseSamples(text),
    wrong = bad !== null || many;
  return [
    h("label", { for: "samples" }, t("culprits.samples"), " ", h("span", { class: "quiet" }, t("optional"))),
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

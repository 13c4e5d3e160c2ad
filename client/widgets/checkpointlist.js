/** The checkpoints of a run: verdict and reason, what each holds, why it is kept; and why the last save came to nothing. */
import { size } from "../format.js";
import { standing } from "../checkpoints.js";
import { clause, t } from "../i18n/index.js";
import { h } from "./dom.js";
import { glyph } from "./icons.js";
import { table, th, verdict, when } from "./parts.js";

/** @param {any} run RunDetail */
export function checkpointList(run) {
  const failed = run.save_failure;
  return [
    failed &&
      h(
        "div",
        { class: "notice save-failed", "data-key": "save-failed" },
        glyph("warning"),
        h(
          "span",
          {},
          h("b", { class: "strong" }, t("checkpoints.save_failed", { step: failed.step })),
          ` ${clause(failed.reason)}`,
          " \u00b7 ",
          when(failed.at, { seconds: true }),
        ),
      ),
    run.checkpoints.length === 0 ? h("div", { class: "card pad quiet" }, t("checkpoints.none")) : listing(run),
  ];
}

/** Deleted ones fold away: they say what was there and can do nothing more. @param {any} run */
function listing(run) {
  const all = [...run.checkpoints].sort((a, b) => b.step - a.step || b.segment - a.segment),
    kept = all.filter((c) => c.state !== "deleted"),
    deleted = all.filter((c) => c.state === "deleted"),
    count = t("checkpoints.deleted", { count: deleted.length });
  return [
    kept.length > 0 && h("div", { "data-key": "kept" }, rows(run, kept, t("checkpoints"))),
    deleted.length > 0 &&
      h("details", { class: "folded", "data-key": "deleted" }, h("summary", {}, count), rows(run, deleted, count)),
  ];
}

/** @param {any} run @param {any[]} checkpoints @param {string} label */
const rows = (run, checkpoints, label) =>
  table(
    label,
    [
      th(t("col.step"), "num"),
      th(t("col.verdict")),
      th(t("col.reason")),
      th(t("col.kept")),
      th(t("col.segment"), "num"),
      th(t("col.size"), "num"),
      th(t("col.saved")),
      th(""),
    ],
    checkpoints.map((c) => row(c, standing(run, c))),
    "wide checkpoints",
  );

/** @param {any} c @param {ReturnType<typeof standing>} stands */
const row = (c, stands) =>
  h(
    "tr",
    {
      "data-key": c.checkpoint_id,
      "data-id": c.checkpoint_id,
      class: [c.superseded && "quiet", c.state === "corrupt" && "broken"].filter(Boolean).join(" ") || null,
    },
    h("td", { class: "num strong" }, c.step),
    h("td", {}, verdict(c.state)),
    h(
      "td",
      { class: "wrap" },
      clause(c.reason),
      c.superseded && h("span", { class: "quiet" }, ` \u00b7 ${t("checkpoints.superseded")}`),
      holds(c),
    ),
    h("td", {}, kept(c, stands)),
    h("td", { class: "num" }, c.segment),
    h("td", { class: "num" }, size(c.size_bytes)),
    h("td", { class: "quiet nowrap" }, when(c.saved_at, { seconds: true })),
    h("td", { class: "num" }, pin(c)),
  );

/** Why it is there and stays there. @param {any} c @param {ReturnType<typeof standing>} stands */
const kept = (c, stands) =>
  h(
    "span",
    { class: "tags" },
    stands.map((what) => h("span", { class: what === "proposed" ? "badge busy" : "badge mute" }, t(`kept.${what}`))),
    c.pinned &&
      h(
        "span",
        { class: "badge mute", title: c.pinned_by ? t("by", { who: c.pinned_by }) : null },
        glyph("pin"),
        t("kept.pinned"),
      ),
  );

const PARTS = ["model", "optimizer", "scheduler", "scaler", "rng", "position"];

/** Where it lies and of what it is made, on demand. @param {any} c */
function holds(c) {
  const named = (/** @type {string[]} */ names) => names.map((name) => t(`part.${name}`)).join(t("order.and"));
  const parts = PARTS.filter((name) => (c.parts ?? []).includes(name)),
    rest = PARTS.filter((name) => !parts.includes(name));
  return h(
    "details",
    { class: "holds", "data-key": "holds" },
    h("summary", {}, t("checkpoints.parts")),
    parts.length > 0 && h("p", {}, t("checkpoints.holds", { parts: named(parts) })),
    parts.length > 0 && rest.length > 0 && h("p", { class: "quiet" }, t("checkpoints.lacks", { parts: named(rest) })),
    Object.keys(c.versions ?? {}).length > 0 &&
      h(
        "p",
        { class: "quiet" },
        Object.entries(c.versions)
          .map(([name, version]) => `${name} ${version}`)
          .join(" \u00b7 "),
      ),
    h("p", { class: "mono quiet wrap" }, c.directory),
  );
}

/** Keeps one whatever the retention says, or lets it go again. A deleted one is past keeping. @param {any} c */
const pin = (c) =>
  c.state !== "deleted" &&
  h(
    "button",
    {
      class: "btn bare small",
      "data-act": "pin",
      "data-id": c.checkpoint_id,
      "aria-pressed": String(Boolean(c.pinned)),
      "aria-label": t(c.pinned ? "checkpoints.unpin.at" : "checkpoints.pin.at", { step: c.step }),
    },
    glyph("pin"),
    t(c.pinned ? "checkpoints.unpin" : "checkpoints.pin"),
  );

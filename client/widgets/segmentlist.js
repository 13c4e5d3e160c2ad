/** The segments of a run: where each began and why, what is different since, and what its resume check found. */
import { differences, documents, resumeChecks } from "../segments.js";
import { clause, say, t } from "../i18n/index.js";
import { h } from "./dom.js";
import { glyph } from "./icons.js";
import { table, th, when } from "./parts.js";

/** @param {any} run RunDetail */
export function segmentTable(run) {
  const checks = resumeChecks(run);
  const rows = [...run.segments]
    .reverse()
    .map((/** @type {any} */ s) =>
      h(
        "tr",
        { "data-key": `segment-${s.segment}`, "data-segment": s.segment },
        h("td", { class: "num strong" }, s.segment),
        h("td", { class: "nowrap" }, t(`segment.${s.cause}`, { step: s.from_step })),
        h("td", { class: "num nowrap" }, `${s.from_step} \u2013 ${s.last_step ?? ""}`),
        h("td", { class: "wrap" }, changed(run, s)),
        h("td", { class: "wrap" }, checked(checks.get(s.segment))),
        h("td", { class: "quiet nowrap" }, when(s.started_at, { seconds: true })),
      ),
    );
  return table(
    t("segments"),
    [
      th(t("col.segment"), "num"),
      th(t("col.began")),
      th(t("col.steps"), "num"),
      th(t("col.different")),
      th(t("col.resume")),
      th(t("col.since")),
    ],
    rows,
    "wide prose",
  );
}

/** @param {any} run @param {any} segment */
function changed(run, segment) {
  const said = differences(run, segment).map(say).join(t("order.and")),
    ids = documents(segment.attributes);
  return [
    said.charAt(0).toUpperCase() + said.slice(1) || h("span", { class: "quiet" }, t("segment.same")),
    ids.length > 0 && h("span", { class: "mono quiet ids" }, ids.join(", ")),
  ];
}

/** @param {string[] | undefined} findings */
function checked(findings) {
  if (!findings) return h("span", { class: "quiet" }, "\u2013");
  if (findings.length === 0) return h("span", { class: "good" }, glyph("finished"), " ", t("resume.same"));
  return h("span", { class: "warn" }, glyph("warning"), " ", findings.map(clause).join(t("order.and")));
}

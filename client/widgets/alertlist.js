/** The alerts as a table, of one run or of all. */
import { number, toNumber, valueFormat } from "../format.js";
import { runPath } from "../router.js";
import { alertTitle, t } from "../i18n/index.js";
import { h } from "./dom.js";
import { alertState, severityBadge, table, th, when } from "./parts.js";

/** @param {any[]} alerts @param {{ runs?: boolean }} [options] `runs`: name the run of each */
export function alertTable(alerts, { runs = false } = {}) {
  if (alerts.length === 0) return h("div", { class: "card pad quiet" }, t("alerts.none"));
  const rows = alerts.map((a) => {
    const format = valueFormat(a.series),
      value = toNumber(a.value),
      limit = toNumber(a.limit);
    return h(
      "tr",
      { "data-key": a.alert_id, class: a.state === "resolved" ? "past" : null },
      h("td", {}, severityBadge(a.severity, alertTitle(a))),
      h("td", {}, alertState(a)),
      runs && h("td", {}, h("a", { class: "name", href: runPath(a.run_id) }, a.run_name)),
      h("td", {}, a.series),
      h("td", { class: value !== null && !Number.isFinite(value) ? "num crit strong" : "num" }, format(value)),
      h("td", { class: "num quiet" }, limit === null ? "\u2013" : number(limit)),
      h("td", { class: "num" }, steps(a)),
      h("td", { class: "quiet nowrap" }, when(a.firing_at ?? a.onset_at, { seconds: true })),
      h("td", { class: "text" }, a.text),
    );
  });
  return table(
    t("alerts"),
    [
      th(t("col.alert")),
      th(t("col.state")),
      runs && th(t("col.run")),
      th(t("col.series")),
      th(t("col.value"), "num"),
      th(t("col.limit"), "num"),
      th(t("col.steps"), "num"),
      th(t("col.since")),
      th(t("col.text")),
    ],
    rows,
    "wide prose",
  );
}

/** From the first sign to where it ended. @param {any} alert */
const steps = (alert) =>
  alert.resolved_step === null || alert.resolved_step === undefined
    ? `${alert.onset_step}${alert.state === "resolved" ? "" : " \u2013"}`
    : `${alert.onset_step} \u2013 ${alert.resolved_step}`;

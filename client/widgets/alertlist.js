/** The alerts as a table, of one run or of all. */
import { number, toNumber, valueFormat } from "../format.js";
import { runPath } from "../router.js";
import { alertTitle, inLanguage, sentence, t } from "../i18n/index.js";
import { h } from "./dom.js";
import { alertMarks, alertState, severityBadge, table, th, when } from "./parts.js";

/**
 * @param {any[]} alerts
 * @param {{ runs?: boolean, segments?: any[] | null }} [options] `runs`: name the run of each; `segments` of the run, where it is one
 */
export function alertTable(alerts, { runs = false, segments = null } = {}) {
  if (alerts.length === 0) return h("div", { class: "card pad quiet", "data-key": "none" }, t("alerts.none"));
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
    alerts.map((a) => row(a, runs, segments)),
    "wide prose alerts",
  );
}

/** @param {any} a @param {boolean} runs @param {any[] | null} segments */
function row(a, runs, segments) {
  const { value, limit, isOdd } = figures(a);
  return h(
    "tr",
    { "data-key": a.alert_id, "data-alert": a.alert_id, class: a.state === "resolved" ? "past" : null },
    h("td", {}, titleBadge(a)),
    h("td", {}, h("span", { class: "tags" }, alertState(a), alertMarks(a, segments))),
    runs && h("td", { class: "c-run" }, h("a", { class: "name", href: runPath(a.run_id) }, a.run_name)),
    h("td", { class: "c-series" }, a.series),
    h("td", { class: isOdd ? "num crit strong" : "num", "data-label": t("col.value") }, value),
    h("td", { class: "num quiet", "data-label": t("col.limit") }, limit),
    h("td", { class: "num", "data-label": t("col.steps") }, alertSteps(a)),
    h("td", { class: "quiet nowrap" }, when(a.firing_at ?? a.onset_at, { seconds: true })),
    h("td", { class: "text" }, alertWords(a)),
  );
}

/** Its short title with its severity; one on trial is never in colour. @param {any} a */
export const titleBadge = (a) => severityBadge(a.trial ? "info" : a.severity, alertTitle(a));

/** Its sentence, what was done and what to do next. @param {any} a @returns {import("./dom.js").Child[]} */
export const alertWords = (a) => [
  h("span", { class: "sentence-line" }, sentence(a)),
  line("alert.done", inLanguage(a.done)),
  line("alert.next", inLanguage(a.next)),
];

/** @param {string} key @param {string} text */
const line = (key, text) =>
  text && h("span", { class: "said-line" }, h("span", { class: "quiet" }, t(key)), t("order.gap"), text);

/** Value and limit as they are shown. @param {any} a @returns {{ value: string, limit: string, isOdd: boolean }} */
export function figures(a) {
  const value = toNumber(a.value),
    limit = toNumber(a.limit);
  return {
    value: valueFormat(a.series)(value),
    limit: limit === null ? "\u2013" : number(limit),
    isOdd: value !== null && !Number.isFinite(value) && !a.trial,
  };
}

/** From the first sign to where it ended. @param {any} alert */
export const alertSteps = (alert) =>
  alert.resolved_step === null || alert.resolved_step === undefined
    ? `${alert.onset_step}${alert.state === "resolved" ? "" : " \u2013"}`
    : `${alert.onset_step} \u2013 ${alert.resolved_step}`;

/**
 * What to leave out of the table.
 * @param {import("../incidents.js").Filter} filter
 * @param {{ runs: { id: string, name: string }[], rules: { id: string, name: string }[] }} offered
 * @param {number} shown @param {number} all
 */
export function alertFilters(filter, offered, shown, all) {
  const select = (
    /** @type {keyof import("../incidents.js").Filter} */ name,
    /** @type {{ id: string, name: string }[]} */ options,
  ) =>
    h(
      "select",
      { class: filter[name] ? "input set" : "input", name, "aria-label": t(`filter.${name}`) },
      h("option", { value: "", selected: filter[name] === "" }, t(`filter.any.${name}`)),
      options.map((o) => h("option", { value: o.id, selected: o.id === filter[name] }, o.name)),
    );
  const named = (/** @type {string[]} */ ids, /** @type {string} */ prefix) =>
    ids.map((id) => ({ id, name: t(`${prefix}.${id}`) }));
  return h(
    "div",
    { class: "bar scrollbar-x pickers", "data-key": "filters" },
    select("state", named(["open", "past"], "filter.state")),
    select("severity", named(["critical", "warning", "info"], "severity")),
    select("run", offered.runs),
    select("rule", offered.rules),
    select("kind", named(["paging", "trial"], "filter.kind")),
    shown < all && h("span", { class: "quiet nowrap" }, t("filter.shown", { shown, all })),
    shown < all && h("button", { class: "btn bare small", "data-act": "clear-filter" }, t("runs.clear")),
  );
}

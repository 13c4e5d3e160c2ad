/** Parts of the incident page: its head, the three answers, its alerts, the checkpoints around it, its timeline. */
import { alertsOf, checkpointsAround, firedAt, isOpen, spanOf, speakerOf } from "../incidents.js";
import { duration } from "../format.js";
import { entries } from "../history.js";
import { runPath, stepsPath } from "../router.js";
import { alertTitle, clause, inLanguage, ruleName, say, sentence, t, timeWords } from "../i18n/index.js";
import { alertSteps, alertWords, figures, titleBadge } from "./alertlist.js";
import { h } from "./dom.js";
import { glyph, icon } from "./icons.js";
import {
  alertMarks,
  alertState,
  by,
  commandName,
  dots,
  incidentStanding,
  incidentState,
  severityBadge,
  table,
  th,
  verdict,
  when,
} from "./parts.js";

/** @param {any} incident @param {any | null} run @param {Date} now */
export function incidentHead(incident, run, now) {
  return h(
    "div",
    { class: "crumbs", "data-key": "crumbs" },
    h("a", { href: "/alerts" }, t("nav.alerts")),
    " ",
    h("span", {}, "/"),
    " ",
    h("h1", {}, t("incident.title", { number: incident.number, title: alertTitle(incident) })),
    incidentState(incident),
    h(
      "span",
      { class: "about" },
      dots([
        h("a", { href: runPath(incident.run_id) }, incident.run_name),
        [
          when(incident.opened_at, { seconds: true }),
          incident.resolved_at && [t("incident.to"), when(incident.resolved_at, { seconds: true })],
        ],
        incidentStanding(incident, now),
      ]),
    ),
    h(
      "span",
      { class: "end" },
      incident.state === "triggered" &&
        h("button", { class: "btn small primary", "data-act": "acknowledge" }, t("act.acknowledge")),
      isOpen(incident) && h("button", { class: "btn small", "data-act": "silence" }, t("act.silence")),
      run &&
        h(
          "a",
          { class: "btn small", href: stepsPath(incident.run_id, spanOf(incident, run)) },
          t("incident.at_step", { step: firedAt(incident) }),
        ),
      h("button", { class: "btn small", "data-act": "markdown" }, "Markdown"),
      h("button", { class: "btn bare small", "data-act": "link" }, icon("link"), t("act.copy_link")),
    ),
  );
}

/** What happened, what was done, what to do next: of the alert that speaks for all. @param {any} incident */
export function answers(incident) {
  const worst = speakerOf(incident);
  if (!worst) return null;
  const cell = (
    /** @type {string} */ key,
    /** @type {import("./dom.js").Child} */ said,
    /** @type {import("./dom.js").Child} */ more = null,
  ) => h("div", { "data-key": key }, h("p", { class: "q" }, t(key), more), h("p", { class: "a" }, said));
  const done = inLanguage(worst.done),
    next = inLanguage(worst.next);
  return h(
    "section",
    { class: "card verdict-line", "data-key": "answers", "aria-label": t("incident.answers") },
    cell("incident.what", sentence(worst), severityBadge(worst.severity, t(`severity.${worst.severity}`))),
    done && cell("incident.done", done),
    next && cell("incident.next", next),
    incident.note &&
      h(
        "p",
        { class: "note", "data-key": "note" },
        t("incident.note", { who: incident.acknowledged_by }),
        ` \u201c${incident.note}\u201d`,
      ),
  );
}

/** Each alert in full. @param {any} incident @param {any | null} run */
export function alertItems(incident, run) {
  const all = alertsOf(incident);
  return h(
    "section",
    { class: "section", "data-key": "alerts", id: "alerts" },
    h(
      "div",
      { class: "head" },
      h("h2", {}, t("alerts")),
      h("span", { class: "quiet" }, t(all.length === 1 ? "incident.alerts.one" : "incident.alerts", { count: all.length })),
    ),
    h(
      "div",
      { class: "card" },
      all.map((a) => item(a, run)),
    ),
  );
}

/** @param {any} a @param {any | null} run */
function item(a, run) {
  const { value, limit, isOdd } = figures(a);
  const fact = (/** @type {string} */ key, /** @type {import("./dom.js").Child} */ said, kind = "") =>
    h("div", {}, h("dt", {}, t(key)), h("dd", { class: kind || null }, said));
  return h(
    "article",
    { class: a.state === "resolved" ? "alert-item past" : "alert-item", "data-key": a.alert_id, "data-alert": a.alert_id },
    h("div", { class: "tags" }, titleBadge(a), alertState(a), alertMarks(a, run?.segments ?? null)),
    h("div", { class: "words" }, alertWords(a)),
    h(
      "dl",
      {},
      fact("col.series", a.series, "mono wrap"),
      fact("col.value", value, isOdd ? "crit strong" : "strong"),
      fact("col.limit", limit),
      fact("col.steps", alertSteps(a)),
      fact("col.since", when(a.firing_at ?? a.onset_at, { seconds: true })),
      fact("col.rule", ruleName(a.rule_name) || a.rule_id),
    ),
  );
}

/** @param {any} incident @param {any} run */
export function checkpointsNear(incident, run) {
  const around = checkpointsAround(incident, run);
  return h(
    "section",
    { class: "section", "data-key": "checkpoints" },
    h("div", { class: "head" }, h("h2", {}, t("checkpoints")), h("span", { class: "quiet" }, t("incident.checkpoints"))),
    around.length === 0
      ? h("div", { class: "card pad quiet" }, t("incident.no_checkpoints"))
      : table(
          t("checkpoints"),
          [th(t("col.step"), "num"), th(t("col.verdict")), th(t("col.reason")), th(t("col.saved"))],
          around.map((c) =>
            h(
              "tr",
              { "data-key": c.checkpoint_id, class: c.superseded ? "quiet" : null },
              h("td", { class: "num strong" }, c.step),
              h("td", {}, verdict(c.state)),
              h(
                "td",
                { class: "wrap soft" },
                clause(c.reason),
                run.ended_at === null &&
                  run.proposal?.target === c.checkpoint_id &&
                  h("span", { class: "badge busy proposed" }, t("kept.proposed")),
              ),
              h("td", { class: "quiet nowrap" }, when(c.saved_at, { seconds: true })),
            ),
          ),
          "prose around",
        ),
  );
}

/** Its alerts, and those of the run beside them: information, and what is on trial. @param {any} incident @param {any | null} run */
export const knownAlerts = (incident, run) => [...(run?.other_alerts ?? []), ...incident.alerts];

/** What happened to the run in the meantime. @param {any} incident @param {any | null} run */
export function timelineOf(incident, run) {
  const listed = entries(incident.timeline ?? [], knownAlerts(incident, run));
  if (listed.length === 0) return null;
  return h(
    "section",
    { "data-key": "timeline" },
    h("div", { class: "head" }, h("h2", {}, t("incident.timeline"))),
    h(
      "div",
      { class: "card pad" },
      h(
        "ol",
        { class: "timeline" },
        listed.map((e) => entry(e, run)),
      ),
    ),
  );
}

/** @param {import("../history.js").Entry} e @param {any | null} run */
const entry = (e, run) => {
  const told = entryWords(e, run);
  return h(
    "li",
    { class: e.tone, "data-key": e.id },
    when(e.at, { seconds: true }),
    h("span", { class: "at" }, e.step ?? ""),
    h("span", { class: "pin" }, glyph(e.icon)),
    h("div", {}, h("b", {}, told.title), told.text && h("p", {}, told.text)),
  );
};

/** Values with the rule by its name in the language of the page. @param {Record<string, string | number>} [values] */
const named = (values) => (values?.rule === undefined ? values : { ...values, rule: ruleName(String(values.rule)) });

/** @param {import("../reducers.js").Say | string} text */
const inWords = (text) => say(typeof text === "string" ? text : { ...text, values: named(text.values) });

/** An entry in the language of the page. @param {import("../history.js").Entry} e @param {any | null} run */
export function entryWords(e, run) {
  const values = {
    ...named(e.title.values),
    title: e.alert ? alertTitle(e.alert) : "",
    command: e.command ? commandName(e.command) : "",
    span: duration(Number(e.title.values?.seconds ?? 0), timeWords()),
  };
  return { title: t(e.title.key, values), text: entryText(e, run) };
}

/** @param {import("../history.js").Entry} e @param {any | null} run */
function entryText(e, run) {
  if (e.alerts.length > 1) return e.alerts.map(alertTitle).join(t("order.and"));
  if (e.speaks === "sentence") return sentence(e.alert);
  if (e.speaks === "author") return by(e.command, run ?? { alerts: [] });
  if (e.speaks === "person") return String(e.text);
  return e.texts ? inLanguage(e.texts) : inWords(e.text);
}

/** The Health cell: is it dying, since when, and who has taken it on. */
import { duration, moment } from "../format.js";
import { ENDED, health } from "../reducers.js";
import { wantsPerson } from "../incidents.js";
import { incidentPath } from "../router.js";
import { resumeTrouble } from "../segments.js";
import { alertTitle, clause, t, timeWords } from "../i18n/index.js";
import { h } from "./dom.js";
import { glyph } from "./icons.js";
import { dots, incidentStanding } from "./parts.js";

/**
 * How it is; where no alert speaks, a resume that did not go on as before does.
 * @param {any} run
 * @returns {ReturnType<typeof health> & { findings?: string[] }}
 */
export function healthOf(run) {
  const state = health(run),
    findings = state.alert || run.state === "lost" || ENDED.has(run.state) ? null : resumeTrouble(run);
  return findings ? { ...state, grade: "warn", icon: "warning", say: { key: "health.resumed" }, findings } : state;
}

/** @param {any} run @param {Date} now */
export function healthCell(run, now) {
  const state = healthOf(run),
    alert = state.alert;
  const title = typeof state.say === "string" ? alertTitle(alert) : t(state.say.key);
  const incident = run.incident ?? null;
  const count =
    state.count > 0 &&
    h(
      "a",
      { href: incident ? incidentPath(run.run_id, incident.incident_id) : "#alerts" },
      t(ENDED.has(run.state) ? "band.alerts.end" : state.count === 1 ? "band.alert" : "band.alerts", { count: state.count }),
    );
  let sub = dots([
    state.findings && resumed(run, state.findings),
    state.findings
      ? ""
      : run.state === "lost"
        ? t("band.unheard", { span: duration((now.getTime() - Date.parse(run.heard_at)) / 1000, timeWords()) })
        : alert
          ? t("band.since", { step: alert.firing_step ?? alert.onset_step, time: ago(alert.firing_at ?? alert.onset_at, now) })
          : run.state === "created"
            ? t("band.waits")
            : run.state === "failed"
              ? t("band.unjudged")
              : lastTrouble(run),
    alert && state.firstSign !== null && t("band.first_sign", { step: state.firstSign }),
    count,
    incident && incidentStanding(incident, now),
  ]);
  if (sub.length === 0) sub = [t("band.no_alert")];
  return h(
    "div",
    { class: `health ${state.grade}`.trim() },
    h(
      "div",
      { class: "row" },
      h(
        "div",
        {},
        h("span", { class: "ask" }, t("band.health")),
        h("div", { class: "say" }, state.icon && glyph(state.icon), title),
      ),
      wantsPerson(incident) &&
        h("div", { class: "acts" }, h("button", { class: "btn small", "data-act": "acknowledge" }, t("act.acknowledge"))),
    ),
    h("span", { class: "sub" }, sub),
  );
}

/** @param {any} run @param {string[]} findings */
const resumed = (run, findings) =>
  t("band.resumed", { step: run.segments.at(-1)?.from_step ?? "", findings: findings.map(clause).join(t("order.and")) });

/** @param {string} at @param {Date} now */
const ago = (at, now) => {
  const seconds = (now.getTime() - Date.parse(at)) / 1000;
  return seconds < 60
    ? timeWords().ago.replace("{}", duration(Math.max(0, Math.floor(seconds)), timeWords()))
    : moment(new Date(at), now, { words: timeWords() });
};

/** @param {any} run */
function lastTrouble(run) {
  const last = (run.alerts ?? []).find((/** @type {any} */ a) => a.severity !== "info" && a.state === "resolved");
  if (!last) return t("band.no_alert");
  const since = (run.step ?? 0) - (last.resolved_step ?? last.onset_step);
  return since > 0
    ? t("band.no_alert_for", { steps: since })
    : t("band.last_alert", { title: alertTitle(last), step: last.onset_step });
}

/**
 * Incidents: their order, what they say of themselves, which steps and checkpoints belong to one. Pure.
 *
 * @typedef {import("./reducers.js").Say} Say
 */
import { OPEN } from "./timeline.js";

const WEIGHT = /** @type {Record<string, number>} */ ({ info: 0, warning: 1, critical: 2 });

/** @param {any} incident */
export const isOpen = (incident) => incident.state !== "resolved";

/**
 * The open ones, those that nobody has taken on first, then the gravest, then the earliest; and the resolved, the newest first.
 * @param {any[]} incidents
 * @returns {{ open: any[], resolved: any[] }}
 */
export function sorted(incidents) {
  const at = (/** @type {any} */ i) => Date.parse(i.opened_at);
  const open = incidents
    .filter(isOpen)
    .sort(
      (a, b) =>
        Number(a.state === "acknowledged") - Number(b.state === "acknowledged") ||
        WEIGHT[b.severity] - WEIGHT[a.severity] ||
        at(a) - at(b),
    );
  return {
    open,
    resolved: incidents.filter((i) => !isOpen(i)).sort((a, b) => Date.parse(b.resolved_at) - Date.parse(a.resolved_at)),
  };
}

/** Whether somebody still has to take it on. @param {any | null | undefined} incident */
export const wantsPerson = (incident) => Boolean(incident) && incident.state === "triggered";

/** Its alerts, the open ones first, the gravest of them on top. @param {any} incident @returns {any[]} */
export const alertsOf = (incident) =>
  [...(incident.alerts ?? [])].sort(
    (a, b) =>
      Number(OPEN.has(b.state)) - Number(OPEN.has(a.state)) ||
      WEIGHT[b.severity] - WEIGHT[a.severity] ||
      a.onset_step - b.onset_step ||
      a.alert_id.localeCompare(b.alert_id),
  );

/**
 * The alert that speaks for all: one that a rule has acted on, of those the gravest, of those the earliest. Null without alerts.
 * @param {any} incident with its timeline, where it is known
 */
export function speakerOf(incident) {
  const acted = new Set(
    (incident.timeline ?? [])
      .filter((/** @type {any} */ e) => e.type === "countdown.started")
      .map((/** @type {any} */ e) => e.data?.alert_id),
  );
  return (
    [...(incident.alerts ?? [])].sort(
      (a, b) =>
        Number(acted.has(b.alert_id)) - Number(acted.has(a.alert_id)) ||
        WEIGHT[b.severity] - WEIGHT[a.severity] ||
        a.onset_step - b.onset_step,
    )[0] ?? null
  );
}

/** How many of its alerts are not over. @param {any} incident @returns {number} */
export const openAlerts = (incident) => (incident.alerts ?? []).filter((/** @type {any} */ a) => OPEN.has(a.state)).length;

/**
 * The first sign of it, its step and its time together.
 * @param {any} incident
 * @returns {{ step: number, at: string }}
 */
export function firstOf(incident) {
  const first = [...(incident.alerts ?? [])].sort((a, b) => a.onset_step - b.onset_step)[0];
  return { step: first?.onset_step ?? incident.first_step, at: first?.onset_at ?? incident.opened_at };
}

/** The step at which the worst of it fired, where a link to the run leads. @param {any} incident @returns {number} */
export function firedAt(incident) {
  const worst = [...(incident.alerts ?? [])].sort(
    (a, b) => WEIGHT[b.severity] - WEIGHT[a.severity] || a.onset_step - b.onset_step,
  )[0];
  return worst?.firing_step ?? worst?.onset_step ?? incident.first_step ?? 0;
}

/**
 * From the first sign to where it ended. One that a rollback or an end closed held until its segment was left; an open one holds
 * until the present step, where the run has not gone back behind it.
 * @param {any} incident
 * @param {any} run RunDetail
 * @returns {[number, number]}
 */
export function spanOf(incident, run) {
  const alerts = incident.alerts ?? [],
    signs = alerts.map((/** @type {any} */ a) => a.onset_step).filter(Number.isFinite);
  const from = Math.min(incident.first_step ?? Infinity, ...signs),
    start = Number.isFinite(from) ? from : 0;
  const left = (/** @type {number} */ segment) =>
    (run.segments ?? []).find((/** @type {any} */ s) => s.segment === segment)?.last_step ?? run.step ?? start;
  const ends = alerts.map((/** @type {any} */ a) => a.resolved_step ?? left(a.segment));
  return [start, Math.max(start, ...ends.filter(Number.isFinite))];
}

/**
 * The steps that its charts show: what happened, as much again before it, and the checkpoint before the first sign when that is
 * not far off.
 * @param {any} incident
 * @param {any} run RunDetail
 * @returns {[number, number]}
 */
export function lookOf(incident, run) {
  const [from, to] = spanOf(incident, run),
    width = Math.max(to - from, 20);
  const margin = Math.max(40, Math.min(width, 500));
  const target = fitBefore(run, from)[0]?.step ?? null,
    near = target !== null && from - target <= 4 * margin ? target - 5 : Infinity;
  const after = to + Math.max(4, Math.min(margin, width) * 0.25);
  return [Math.max(0, Math.min(from - margin, near)), after];
}

/** Sound checkpoints older than a step, the newest first. @param {any} run @param {number} step @returns {any[]} */
const fitBefore = (run, step) =>
  (run.checkpoints ?? [])
    .filter((/** @type {any} */ c) => c.state === "sound" && c.step <= step && !c.superseded)
    .sort((/** @type {any} */ a, /** @type {any} */ b) => b.step - a.step);

const BEFORE = 2; // sound checkpoints before the first sign that are worth a row

/**
 * The checkpoints around it, the highest step first: those saved while it lasted, and the last sound ones before the first sign.
 * @param {any} incident
 * @param {any} run RunDetail
 * @returns {any[]}
 */
export function checkpointsAround(incident, run) {
  const [from, to] = spanOf(incident, run);
  const within = (run.checkpoints ?? []).filter(
    (/** @type {any} */ c) => c.step > from && c.step <= to && c.state !== "deleted" && savedWithin(c, incident),
  );
  const before = fitBefore(run, from).slice(0, BEFORE);
  return [...new Set([...within, ...before])].sort((a, b) => b.step - a.step || b.segment - a.segment);
}

/** @param {any} checkpoint @param {any} incident */
const savedWithin = (checkpoint, incident) =>
  incident.resolved_at === null || Date.parse(checkpoint.saved_at) <= Date.parse(incident.resolved_at);

const FIRST = ["train/loss", "train/grad_norm"];

/**
 * The series its charts show: loss and gradient norm, then those of its alerts. What is judged by time alone has no curve.
 * @param {any} incident
 * @param {string[]} known of the run
 * @returns {string[]}
 */
export function seriesOf(incident, known) {
  const have = new Set(known),
    own = (incident.alerts ?? []).map((/** @type {any} */ a) => a.series);
  return [...new Set([...FIRST, ...own])].filter((name) => have.has(name) || FIRST.includes(name));
}

/** @typedef {{ severity: string, run: string, rule: string, kind: string, state: string }} Filter empty: any; `kind`: "trial" or "paging" */

/** @returns {Filter} */
export const noFilter = () => ({ severity: "", run: "", rule: "", kind: "", state: "" });

/**
 * The alerts that a filter lets through.
 * @param {any[]} alerts
 * @param {Filter} filter
 */
export const filtered = (alerts, { severity, run, rule, kind, state }) =>
  alerts.filter(
    (a) =>
      (!severity || a.severity === severity) &&
      (!run || a.run_id === run) &&
      (!rule || a.rule_id === rule) &&
      (!kind || (kind === "trial") === Boolean(a.trial)) &&
      (!state || (state === "open") === OPEN.has(a.state)),
  );

/**
 * What a filter can be set to: the runs and rules that there are alerts of, by name.
 * @param {any[]} alerts
 * @returns {{ runs: { id: string, name: string }[], rules: { id: string, name: string }[] }}
 */
export function choices(alerts) {
  const named = (/** @type {(a: any) => string} */ id, /** @type {(a: any) => string} */ name) =>
    [...new Map(alerts.map((a) => [id(a), { id: id(a), name: name(a) || id(a) }])).values()].sort((a, b) =>
      a.name.localeCompare(b.name),
    );
  return {
    runs: named(
      (a) => a.run_id,
      (a) => a.run_name,
    ),
    rules: named(
      (a) => a.rule_id,
      (a) => a.rule_name,
    ),
  };
}

/**
 * Which rollback an alert fires again after, counted as people count them: the first is 1. Null where it is no such alert.
 * @param {any} alert
 * @param {any[] | null} [segments] of its run; without them the segment's own number serves, which is one more than its rollback's
 */
export function againAfter(alert, segments = null) {
  const segment = alert.again_after ?? null;
  if (segment === null) return null;
  if (!segments) return Math.max(1, segment - 1);
  return Math.max(1, segments.filter((s) => s.cause === "rollback" && s.segment <= segment).length);
}

/**
 * What the page says, decided: pure functions from the server's answers to words (as dictionary keys with values) and choices.
 *
 * @typedef {{ key: string, values?: Record<string, string | number> }} Say
 * @typedef {"connecting" | "live" | "away"} LiveState
 */
import { toNumber } from "./format.js";
import { OPEN } from "./timeline.js";

export const ENDED = new Set(["finished", "failed", "stopped"]);

/**
 * The connection of the live stream.
 *
 *     connecting -> live on hello | away on error        live -> away on error        away -> live on hello
 *
 * @param {LiveState} state
 * @param {"hello" | "error"} input
 * @returns {LiveState}
 */
export function live(state, input) {
  return input === "hello" ? "live" : "away";
}

/**
 * Which runs the page has to fetch again: those whose hinted revision is newer than what it holds.
 * @param {Record<string, number>} held
 * @param {Record<string, number>} hinted
 * @returns {string[]}
 */
export const stale = (held, hinted) => Object.keys(hinted).filter((id) => !(held[id] >= hinted[id]));

/** The gravest alert decides the colour of everything that speaks of the run. @param {any} run @returns {"crit" | "warn" | ""} */
export function grade(run) {
  const worst = run.alerts?.worst ?? worstAlert(run);
  if (worst && worst.severity === "critical") return "crit";
  if (run.state === "lost" || shownState(run) === "stalled" || (worst && worst.severity === "warning")) return "warn";
  return "";
}

/**
 * The alert that a person should hear of first: the gravest, and of those the earliest, as the server chooses for a
 * RunSummary.
 * @param {any} run RunDetail
 */
export function worstAlert(run) {
  const weight = /** @type {Record<string, number>} */ ({ info: 0, warning: 1, critical: 2 });
  const late = (/** @type {any} */ a) => (a.rule_id === "automatic-actions" ? 1 : 0); // what is wrong, before that nothing was done about it
  return (
    troubles(run).sort(
      (a, b) => weight[b.severity] - weight[a.severity] || late(a) - late(b) || a.onset_step - b.onset_step,
    )[0] ?? null
  );
}

/** Whether an alert concerns people: above `info`, and not of a rule on trial. @param {any} alert */
export const isSign = (alert) => alert.severity !== "info" && !alert.trial;

/**
 * The first sign: the earliest onset among the alerts of the open incident, or else of the last one. All that the page shows by
 * that name is this step. Pending alerts belong to no incident.
 * @param {any} run RunDetail, or an incident's alerts with itself as `incident`
 * @returns {number | null}
 */
export function firstSign(run) {
  const fired = (run.alerts ?? []).filter((/** @type {any} */ a) => isSign(a) && a.state !== "pending");
  const at = (/** @type {any} */ a) => Date.parse(a.firing_at ?? a.onset_at) || 0;
  const last = fired.reduce((/** @type {any} */ a, /** @type {any} */ b) => (a && at(a) >= at(b) ? a : b), null);
  const which = run.incident?.incident_id ?? last?.incident_id ?? null;
  const onsets = fired
    .filter((/** @type {any} */ a) => (a.incident_id ?? null) === which)
    .map((/** @type {any} */ a) => a.onset_step)
    .filter(Number.isFinite);
  return onsets.length ? Math.min(...onsets) : null;
}

/** Firing or recovering alerts that concern people. @param {any} run @returns {any[]} */
export function firing(run) {
  /** @type {any[]} */
  const list = Array.isArray(run.alerts) ? run.alerts : [];
  return list.filter((a) => (a.state === "firing" || a.state === "recovering") && isSign(a));
}

/**
 * What is wrong with the run, or was when it ended: an end closes alerts, but does not make a dead run healthy.
 * @param {any} run RunDetail
 * @returns {any[]} alerts
 */
export function troubles(run) {
  if (!ENDED.has(run.state)) return firing(run);
  return (run.alerts ?? []).filter(
    (/** @type {any} */ a) =>
      isSign(a) &&
      (a.state === "resolved" ? a.closed_because === "run_ended" && a.resolved_at === run.ended_at : a.state !== "pending"),
  );
}

/**
 * The state as its cell and its row show it: a run that is heard of and takes no step is stalled, whatever its state is.
 * @param {any} run
 * @returns {string}
 */
export const shownState = (run) => (run.stalled && run.state === "running" ? "stalled" : run.state);

/** Whether a person should look at the run now. @param {any} run */
export const needsYou = (run) => !ENDED.has(run.state) && (Boolean(run.countdown) || grade(run) !== "");

/**
 * The runs that want somebody, the most urgent first: what will be done by itself, soonest; then what nobody has taken on; then the
 * rest; of each the gravest.
 * @param {any[]} runs RunSummaries @param {any[]} incidents the open ones
 * @returns {any[]}
 */
export function byUrgency(runs, incidents) {
  const taken = new Set(incidents.filter((i) => i.state === "acknowledged").map((i) => i.run_id));
  const acts = (/** @type {any} */ run) => Boolean(run.countdown && !run.countdown.dry_run);
  const rank = (/** @type {any} */ run) => (acts(run) ? 0 : (taken.has(run.run_id) ? 3 : 1) + Number(grade(run) !== "crit"));
  const left = (/** @type {any} */ run) => (acts(run) ? run.countdown.remaining_seconds : 0);
  return runs.filter(needsYou).sort((a, b) => rank(a) - rank(b) || left(a) - left(b));
}

export const FILTERS = /** @type {const} */ (["all", "needs", "running", "ended"]);

/**
 * @param {any[]} runs
 * @param {string} filter one of FILTERS
 * @param {string} [text] part of a name, project or host
 */
export function filterRuns(runs, filter, text = "") {
  const wanted = text.trim().toLowerCase();
  return runs.filter((run) => matches(run, filter) && `${run.name} ${run.project} ${run.host}`.toLowerCase().includes(wanted));
}

/** @param {any} run @param {string} filter */
function matches(run, filter) {
  if (filter === "needs") return needsYou(run);
  if (filter === "ended") return ENDED.has(run.state);
  return filter === "running" ? !ENDED.has(run.state) : true;
}

const UNJUDGED = new Set(["created", "failed"]); // nothing was heard yet; or it died of what no rule looks at

/**
 * The Health cell. A lost run is Unknown, never Healthy; so is one that failed without an alert.
 * @param {any} run RunDetail
 * @returns {{ grade: "crit" | "warn" | "", icon: string, say: Say | string, alert: any | null, count: number, firstSign: number | null }}
 */
export function health(run) {
  const alerts = troubles(run),
    worst = worstAlert(run);
  if (run.state === "lost")
    return { grade: "warn", icon: "lost", say: { key: "health.unknown" }, alert: worst, count: alerts.length, firstSign: null };
  if (!worst)
    return {
      grade: "",
      icon: "",
      say: { key: UNJUDGED.has(run.state) ? "health.unknown" : "health.healthy" },
      alert: null,
      count: 0,
      firstSign: null,
    };
  const grave = worst.severity === "critical";
  return {
    grade: grave ? "crit" : "warn",
    icon: grave ? "firing" : "warning",
    say: worst.title,
    alert: worst,
    count: alerts.length,
    firstSign: firstSign(run),
  };
}

const HEARTBEAT_SECONDS = 12; // a little over the agent's ten

/**
 * What the process is doing, where it is worth a word. The phase rides in heartbeats, so at the start of a segment it may
 * still be that of the one before: then nothing is claimed.
 * @param {any} run RunDetail
 * @returns {string | null}
 */
export function phaseNow(run) {
  const started = (run.segments ?? []).at(-1)?.started_at;
  const young = started && (Date.parse(run.heard_at) - Date.parse(started)) / 1000 < HEARTBEAT_SECONDS;
  return run.state === "running" && !young && ["evaluating", "saving", "rolling_back", "holding"].includes(run.phase)
    ? run.phase
    : null;
}

const REASONS = /** @type {Record<string, string>} */ ({
  killed: "reason.killed",
  "left before its end": "reason.left",
  "stopped by command": "reason.command",
  "stopped by guard": "reason.guard",
});

/** @param {string} reason @returns {Say | string} the type of an exception, or what the guard said, stays as it is */
const inWords = (reason) => (Object.hasOwn(REASONS, reason) ? { key: REASONS[reason] } : reason);

/**
 * Why the run is in its state, where that is not the state itself. Of a lost one nothing is known but since when.
 * @param {any} run RunSummary or RunDetail
 * @returns {Say | string}
 */
export const reasonOf = (run) => (run.state === "lost" || run.state_reason === run.state ? "" : inWords(run.state_reason ?? ""));

/**
 * How the process before the one that runs now ended, where that was not its own end.
 * @param {any} run RunDetail
 * @returns {{ reason: Say | string, step: number | null } | null}
 */
export function endedBefore(run) {
  const event = (run.events ?? []).find((/** @type {any} */ e) => e.type === "run.incarnation_ended" || e.type === "run.failed");
  return event && !ENDED.has(run.state) ? { reason: inWords(event.data.reason), step: event.step } : null;
}

/**
 * Seconds left of a countdown by this machine's clock. The server's remaining seconds are taken at receipt, so that a wrong
 * clock here does no harm and a tab that slept corrects itself.
 * @param {{ remaining_seconds: number }} countdown
 * @param {number} receivedAt milliseconds
 * @param {number} now milliseconds
 */
export const remaining = (countdown, receivedAt, now) => Math.max(0, countdown.remaining_seconds - (now - receivedAt) / 1000);

/**
 * When the run will be through, null when that cannot be said.
 * @param {any} run RunSummary or RunDetail
 * @param {Date} now
 * @returns {Date | null}
 */
export function endsAt(run, now) {
  const left = (run.total_steps ?? NaN) - (run.step ?? NaN);
  if (shownState(run) !== "running" || phaseNow(run) === "holding" || !(left > 0)) return null;
  const seconds = stepSeconds(run);
  return seconds === null ? null : new Date(now.getTime() + left * seconds * 1000);
}

/**
 * Seconds a step takes: over the present segment where it is known, else the latest measured step.
 * @param {any} run
 * @returns {number | null}
 */
export function stepSeconds(run) {
  const segment = (run.segments ?? []).at(-1);
  const steps = segment ? (run.step ?? 0) - segment.from_step : 0;
  const spent = segment ? (Date.parse(run.heard_at) - Date.parse(segment.started_at)) / 1000 : 0;
  if (steps >= 10 && spent > 0) return spent / steps;
  const latest = toNumber(run.latest?.["perf/step_seconds"]?.value);
  return latest !== null && Number.isFinite(latest) && latest > 0 ? latest : null;
}

/** The open alerts of all runs, for the badge: firing ones that concern people. @param {any[]} alerts */
export const badge = (alerts) => alerts.filter((a) => OPEN.has(a.state) && a.state !== "pending" && isSign(a)).length;

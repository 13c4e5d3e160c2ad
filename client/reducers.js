/**
 * What the page says, decided: pure functions from the server's answers to words (as dictionary keys with values) and choices.
 *
 * @typedef {{ key: string, values?: Record<string, string | number> }} Say
 * @typedef {"connecting" | "live" | "away"} LiveState
 */
import { toNumber } from "./format.js";
import { OPEN } from "./timeline.js";

export const ENDED = new Set(["finished", "failed", "stopped"]);
export const ACTIVE = new Set(["queued", "delivered", "running"]);

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
  if (run.state === "lost" || (worst && worst.severity === "warning")) return "warn";
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

/** Firing or recovering alerts above `info`. @param {any} run @returns {any[]} */
export function firing(run) {
  /** @type {any[]} */
  const list = Array.isArray(run.alerts) ? run.alerts : [];
  return list.filter((a) => (a.state === "firing" || a.state === "recovering") && a.severity !== "info");
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
      a.severity !== "info" &&
      (a.state === "resolved" ? a.closed_because === "run_ended" && a.resolved_at === run.ended_at : a.state !== "pending"),
  );
}

/** Whether a person should look at the run now. @param {any} run */
export const needsYou = (run) => !ENDED.has(run.state) && (Boolean(run.countdown) || grade(run) !== "");

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

/**
 * The Health cell. A lost run is Unknown, never Healthy.
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
      say: { key: run.state === "created" ? "health.unknown" : "health.healthy" },
      alert: null,
      count: 0,
      firstSign: null,
    };
  const signs = alerts.map((a) => a.onset_step).filter(Number.isFinite);
  const grave = worst.severity === "critical";
  return {
    grade: grave ? "crit" : "warn",
    icon: grave ? "firing" : "warning",
    say: worst.title,
    alert: worst,
    count: alerts.length,
    firstSign: signs.length ? Math.min(...signs) : null,
  };
}

/**
 * The third cell: countdown first, then the active command, then what was done last.
 * @param {any} run RunDetail
 * @returns {{ busy: boolean, say: Say, what: "countdown" | "command" | "waiting" | "last" | "none", command: any | null, event?: any }}
 * `event` is the countdown that a person cancelled, when nothing was commanded after it.
 */
export function doing(run) {
  if (run.countdown)
    return { busy: true, say: { key: `doing.countdown.${run.countdown.kind}` }, what: "countdown", command: null };
  const active = run.command ?? (run.commands ?? []).find((/** @type {any} */ c) => ACTIVE.has(c.state)) ?? null;
  if (active && run.state !== "lost")
    return { busy: true, say: { key: `doing.command.${active.kind}` }, what: "command", command: active };
  if (run.state === "lost") return { busy: false, say: { key: "doing.waiting" }, what: "waiting", command: active };
  if (phaseNow(run) === "holding") return { busy: true, say: { key: "doing.holding" }, what: "waiting", command: null };
  const last = (run.commands ?? [])[0] ?? null,
    calledOff = (run.events ?? []).find((/** @type {any} */ e) => e.type === "countdown.ended" && e.data.state === "cancelled");
  if (calledOff && !(last && last.issued_at > calledOff.at))
    return { busy: false, say: { key: endedBy(run) ?? "doing.nothing" }, what: "last", command: null, event: calledOff };
  return { busy: false, say: { key: endedBy(run) ?? "doing.nothing" }, what: last ? "last" : "none", command: last };
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
export const reasonOf = (run) =>
  run.state === "lost" || run.state_reason === run.state ? "" : inWords(run.state_reason ?? "");

/**
 * How the process before the one that runs now ended, where that was not its own end.
 * @param {any} run RunDetail
 * @returns {{ reason: Say | string, step: number | null } | null}
 */
export function endedBefore(run) {
  const event = (run.events ?? []).find((/** @type {any} */ e) => e.type === "run.incarnation_ended" || e.type === "run.failed");
  return event && !ENDED.has(run.state) ? { reason: inWords(event.data.reason), step: event.step } : null;
}

/** @param {any} run @returns {string | null} */
function endedBy(run) {
  if (run.state !== "stopped") return null;
  const stop = (run.commands ?? []).find((/** @type {any} */ c) => c.kind === "stop" && c.state === "succeeded");
  return stop ? "doing.stopped" : "doing.stopped_by_guard";
}

/**
 * Whether a button can be obeyed now, and if not why, in words that stand beside it.
 * @param {any} run RunDetail
 * @param {"stop" | "rollback"} kind
 * @returns {{ enabled: boolean, why: Say | string | null }}
 */
export function mayCommand(run, kind) {
  if (ENDED.has(run.state)) return { enabled: false, why: { key: "why.ended", values: { state: run.state } } };
  if (run.state === "created") return { enabled: false, why: { key: "why.created" } };
  if (!(run.capabilities ?? []).includes(kind))
    return { enabled: false, why: run.incapable_because || { key: `why.incapable.${kind}` } };
  const active = run.command;
  if (active && active.kind === kind) return { enabled: false, why: { key: `why.active.${kind}` } };
  if (kind === "rollback" && active) return { enabled: false, why: { key: "why.other" } };
  if (kind === "rollback" && !run.proposal?.target) return { enabled: false, why: { key: "why.no_sound" } };
  return { enabled: true, why: null };
}

const PATH = { stop: ["queued", "delivered", "running", "succeeded"], rollback: ["queued", "delivered", "running", "succeeded"] };

/**
 * A command as a row of dots: what is done, what is now, where it failed.
 * @param {any} command
 * @returns {{ state: string, at: string | null, mark: "done" | "now" | "fail" | "" }[]}
 */
export function commandSteps(command) {
  const path = PATH[/** @type {"stop" | "rollback"} */ (command.kind)] ?? PATH.stop;
  const seen = new Map((command.history ?? []).map((/** @type {any} */ h) => [h.state, h.at]));
  const at = path.indexOf(command.state);
  if (at >= 0)
    return path.map((state, i) => ({
      state,
      at: seen.get(state) ?? null,
      mark: i < at || command.state === "succeeded" ? "done" : i === at ? "now" : "",
    }));
  const done = path.filter((state) => seen.has(state) || state === "queued");
  return [
    ...done.map((state) => ({ state, at: seen.get(state) ?? null, mark: /** @type {const} */ ("done") })),
    { state: command.state, at: seen.get(command.state) ?? null, mark: "fail" },
  ];
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
  if (run.state !== "running" || phaseNow(run) === "holding" || !(left > 0)) return null;
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

/** A setting as it holds now: what the present segment changed or observed, else what the run started with. @param {any} run @param {string} name */
export const setting = (run, name) => (run.segments ?? []).at(-1)?.attributes?.[name] ?? run.attributes?.[name] ?? null;

/** Checkpoints as the dialog lists them, newest step first; each says whether it may be chosen. @param {any} run */
export function choices(run) {
  const passed = new Map((run.proposal?.passed_over ?? []).map((/** @type {any} */ p) => [p.checkpoint_id, p.reason]));
  const target = run.proposal?.target ?? null;
  const targetStep = (run.checkpoints ?? []).find((/** @type {any} */ c) => c.checkpoint_id === target)?.step ?? Infinity;
  return (run.checkpoints ?? [])
    .filter((/** @type {any} */ c) => !c.superseded && c.state !== "deleted")
    .map((/** @type {any} */ c) => ({
      ...c,
      proposed: c.checkpoint_id === target,
      reason: passed.get(c.checkpoint_id) ?? c.reason,
      enabled: c.state === "sound" && !passed.has(c.checkpoint_id) && c.step <= targetStep,
    }))
    .sort((/** @type {any} */ a, /** @type {any} */ b) => b.step - a.step);
}

/**
 * The order in one sentence: back to where, how much is lost, what changes.
 * @param {{ step: number, lost: number, seconds: number | null, data: string, clip: number | null }} order
 * @returns {{ back: Say, lost: Say, rest: Say[] }}
 */
export function orderSentence({ step, lost, seconds, data, clip }) {
  return {
    back: { key: "order.back", values: { step } },
    lost: {
      key: lost === 1 ? "order.lost.one" : "order.lost",
      values: { steps: lost, seconds: seconds === null ? -1 : seconds * lost },
    },
    rest: [{ key: `order.data.${data}` }, clip === null ? { key: "order.clip.same" } : { key: "order.clip", values: { clip } }],
  };
}

/** The open alerts of all runs, for the badge: firing ones above info. @param {any[]} alerts */
export const badge = (alerts) => alerts.filter((a) => OPEN.has(a.state) && a.state !== "pending" && a.severity !== "info").length;

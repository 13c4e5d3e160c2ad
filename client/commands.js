/**
 * Commands: which may be given now, how far one is, what is being done, what the settings are after them. Pure.
 *
 * A run's `commands` come newest first.
 *
 * @typedef {import("./reducers.js").Say} Say
 */
import { toNumber } from "./format.js";
import { ENDED, phaseNow } from "./reducers.js";

export const ACTIVE = new Set(["queued", "delivered", "running"]);

/** All that a run can be told, in the order of its buttons. */
export const KINDS = /** @type {const} */ ([
  "rollback",
  "stop",
  "save",
  "pause",
  "resume",
  "set_learning_rate_factor",
  "set_max_grad_norm",
]);

/** @typedef {typeof KINDS[number]} Kind */

/**
 * Whether a button can be obeyed now, and if not why, in words that stand beside it.
 * @param {any} run RunDetail
 * @param {Kind} kind
 * @returns {{ enabled: boolean, why: Say | string | null }}
 */
export function mayCommand(run, kind) {
  const why = refusal(run, kind);
  return { enabled: why === null, why };
}

/** @param {any} run @param {Kind} kind @returns {Say | string | null} */
function refusal(run, kind) {
  if (ENDED.has(run.state)) return { key: "why.ended", values: { state: run.state } };
  if (run.state === "created") return { key: "why.created" };
  if (!(run.capabilities ?? []).includes(kind)) return run.incapable_because || { key: "why.incapable" };
  if (run.waiting_command) return { key: "why.other", values: { what: "stop" } }; // it comes after the one that runs
  const active = run.command;
  if (active && (kind !== "stop" || active.kind === "stop")) return { key: "why.other", values: { what: active.kind } };
  if (kind === "rollback" && !run.proposal?.target) return { key: "why.no_sound" };
  if (kind === "save" && phaseNow(run) === "holding") return { key: "why.dead" };
  return null;
}

/** The buttons of a run: a paused one is offered to go on. @param {any} run @returns {Kind[]} */
export const offered = (run) => KINDS.filter((kind) => kind !== (run.state === "paused" ? "pause" : "resume"));

/**
 * The reasons of the buttons that are off, the same reason once for all it holds for.
 * @param {any} run RunDetail
 * @param {readonly Kind[]} kinds
 * @returns {{ why: Say | string, kinds: Kind[] }[]}
 */
export function reasons(run, kinds) {
  /** @type {{ why: Say | string, kinds: Kind[] }[]} */
  const out = [];
  for (const kind of kinds) {
    const { why } = mayCommand(run, kind);
    if (why === null) continue;
    const same = out.find((group) => JSON.stringify(group.why) === JSON.stringify(why));
    if (same) same.kinds.push(kind);
    else out.push({ why, kinds: [kind] });
  }
  return out;
}

const PATH = ["queued", "delivered", "running", "succeeded"];

/**
 * A command as a row of dots: what is done, what is now, where it failed.
 * @param {any} command
 * @returns {{ state: string, at: string | null, mark: "done" | "now" | "fail" | "" }[]}
 */
export function commandSteps(command) {
  const seen = new Map((command.history ?? []).map((/** @type {any} */ h) => [h.state, h.at]));
  const at = PATH.indexOf(command.state);
  if (at >= 0)
    return PATH.map((state, i) => ({
      state,
      at: seen.get(state) ?? null,
      mark: i < at || command.state === "succeeded" ? "done" : i === at ? "now" : "",
    }));
  const done = PATH.filter((state) => seen.has(state) || state === "queued");
  return [
    ...done.map((state) => ({ state, at: seen.get(state) ?? null, mark: /** @type {const} */ ("done") })),
    { state: command.state, at: seen.get(command.state) ?? null, mark: "fail" },
  ];
}

/** The dictionary's word for a stage: a rollback loads and then takes its first step, the others simply run. @param {string} kind @param {string} state */
export const stageKey = (kind, state) =>
  kind === "rollback" && (state === "running" || state === "succeeded") ? `stage.rollback.${state}` : `command.state.${state}`;

/**
 * The third cell: countdown first, then the active command, then what was done last.
 * @param {any} run RunDetail
 * @returns {{ busy: boolean, say: Say, what: "countdown" | "command" | "waiting" | "paused" | "last" | "none", command: any | null, event?: any }}
 * `event` is the end of a countdown that a person cancelled or that was a dry run, when nothing was commanded after it.
 */
export function doing(run) {
  if (run.countdown) {
    const dry = Boolean(run.countdown.dry_run); // it says what would be done, and nothing will be
    return {
      busy: !dry,
      say: { key: `doing.countdown.${run.countdown.kind}${dry ? ".dry" : ""}` },
      what: "countdown",
      command: null,
    };
  }
  const active = run.command ?? (run.commands ?? []).find((/** @type {any} */ c) => ACTIVE.has(c.state)) ?? null;
  if (active && run.state !== "lost")
    return { busy: true, say: { key: `doing.command.${active.kind}` }, what: "command", command: active };
  if (run.state === "lost") return { busy: false, say: { key: "doing.waiting" }, what: "waiting", command: active };
  if (run.state === "paused") return { busy: false, say: { key: "doing.waiting" }, what: "paused", command: pausedBy(run) };
  if (phaseNow(run) === "holding") return { busy: true, say: { key: "doing.holding" }, what: "waiting", command: null };
  const last = (run.commands ?? [])[0] ?? null,
    calledOff = (run.events ?? []).find((/** @type {any} */ e) => e.type === "countdown.ended" && endedInWords(e.data));
  if (calledOff && !(last && last.issued_at > calledOff.at))
    return { busy: false, say: { key: endedBy(run) ?? "doing.nothing" }, what: "last", command: null, event: calledOff };
  return { busy: false, say: { key: endedBy(run) ?? "doing.nothing" }, what: last ? "last" : "none", command: last };
}

/** Whether a countdown's end is all that came of it: a person said no, or it was a dry run. @param {any} data */
const endedInWords = (data) => data.state === "cancelled" || Boolean(data.dry_run && data.state === "due");

/** @param {any} run @returns {string | null} */
function endedBy(run) {
  if (run.state !== "stopped") return null;
  const stop = (run.commands ?? []).find((/** @type {any} */ c) => c.kind === "stop" && c.state === "succeeded");
  return stop ? "doing.stopped" : "doing.stopped_by_guard";
}

/** The command that paused the run. @param {any} run */
export const pausedBy = (run) =>
  (run.commands ?? []).find((/** @type {any} */ c) => c.kind === "pause" && c.state === "succeeded") ?? null;

const SETTERS = /** @type {Record<string, string>} */ ({
  learning_rate_factor: "set_learning_rate_factor",
  max_grad_norm: "set_max_grad_norm",
});

/**
 * A setting as it holds now. The newest segment speaks: it began with all that commands had changed by then, so what it does not
 * name is the script's own again. What was commanded since comes on top.
 * @param {any} run RunDetail
 * @param {string} name of the attribute
 * @returns {any} null where nobody has said it
 */
export const setting = (run, name) => settingOf(run, (run.segments ?? []).at(-1), name);

/**
 * A setting as it held last in a segment.
 * @param {any} run RunDetail
 * @param {any} segment one of its segments; undefined: the run as it started
 * @param {string} name of the attribute
 * @returns {any} null where nobody has said it
 */
export function settingOf(run, segment, name) {
  const commanded = (run.commands ?? []).find(
    (/** @type {any} */ c) => c.kind === SETTERS[name] && c.state === "succeeded" && c.segment === segment?.segment,
  );
  return commanded?.value ?? segment?.attributes?.[name] ?? run.attributes?.[name] ?? null;
}

/**
 * What is known of clipping: the norm, 0 where it is known to be off, null where the script may clip by itself and does not say.
 * @param {any} run
 * @returns {number | null}
 */
export const clipping = (run) => toNumber(setting(run, "max_grad_norm"));

/** The factor on the schedule's learning rate, 1 where nobody changed it. @param {any} run @returns {number} */
export const rateFactor = (run) => toNumber(setting(run, "learning_rate_factor")) ?? 1;

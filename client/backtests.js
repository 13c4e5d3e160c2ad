/**
 * A backtest as the page follows it: what is asked, how far it is, what came out, and which run's curve is looked at. Pure.
 *
 *   idle -> starting -> queued -> running -> succeeded | failed | cancelled
 *                starting -> failed (refused)        starting, queued, running -> cancelled
 *   from every end, and from idle, start leads to starting again; what came out last stays to be read until then
 *
 * @typedef {{ rule_id: string, series: string, rank: number, segment: number, severity: string, onset_step: number, firing_step: number,
 *   resolved_step: number | null, value: number | string, limit: number | string | null, text: string }} Episode
 * @typedef {{ run_id: string | null, log: number | null, name: string, project: string, outcome: string, ended_step: number | null, points: number, verdict: string,
 *   lead_steps: number | null, episodes: Episode[], episodes_total: number, episodes_before: number | null, problem: string, series: string[] }} Tested
 * `log`: its number where it came as a file; `series`: what can be drawn of that; `episodes`: the first of `episodes_total`
 * @typedef {{ failed_runs: number, caught: number, caught_before: number | null, lead_steps_median: number | null, healthy_runs: number,
 *   false_alarms: number, false_alarms_before: number | null, episodes_per_1000: number | null, episodes_per_1000_before: number | null }} Summary
 * What ends in `_before` is null where no saved rule is there to compare with.
 * @typedef {"recent" | "all" | "picked" | "logs"} Choice
 * @typedef {{ phase: string, id: string, done: number, total: number, seconds: number, points: number, problem: { detail: string, fix: string } | null,
 *   result: { summary: Summary, runs: Tested[], left_out: number } | null, of: string, asked: string, chosen: string }} Backtest
 * `asked`: the rule as it was sent, as text; `of`: the rule that `result` speaks of; `chosen`: key of the run whose curve is shown
 * @typedef {{ kind: "start", asked: string } | { kind: "started", id: string } | { kind: "report", report: any } | { kind: "refused", problem: { detail: string, fix: string } }
 *   | { kind: "cancel" } | { kind: "choose", key: string } | { kind: "forget" }} Input
 */
import { toNumber } from "./format.js";

export const ACTIVE = new Set(["starting", "queued", "running"]);

/** @type {Backtest} */
export const IDLE = {
  phase: "idle",
  id: "",
  done: 0,
  total: 0,
  seconds: 0,
  points: 0,
  problem: null,
  result: null,
  of: "",
  asked: "",
  chosen: "",
};

/**
 * @param {Backtest} state
 * @param {Input} input
 * @returns {Backtest}
 */
export function step(state, input) {
  const active = ACTIVE.has(state.phase);
  switch (input.kind) {
    case "start":
      return active ? state : { ...state, phase: "starting", id: "", done: 0, total: 0, problem: null, asked: input.asked };
    case "started":
      return state.phase === "starting" ? { ...state, phase: "queued", id: input.id } : state;
    case "report":
      return active && input.report.backtest_id === state.id ? reported(state, input.report) : state;
    case "refused":
      return active ? { ...state, phase: "failed", problem: input.problem } : state;
    case "cancel":
      return active ? { ...state, phase: "cancelled" } : state;
    case "choose":
      return { ...state, chosen: input.key };
    default:
      return IDLE;
  }
}

/** @param {Backtest} state @param {any} report @returns {Backtest} */
function reported(state, { state: phase, done, total, seconds, points, problem, result }) {
  const next = { ...state, phase, done, total, problem: problem ? { detail: problem, fix: "" } : null };
  if (phase !== "succeeded" || !result) return next;
  const rows = inOrder(result.runs);
  const kept = rows.some((run) => keyOf(run) === state.chosen);
  return { ...next, seconds, points, result, of: state.asked, chosen: kept ? state.chosen : rows[0] ? keyOf(rows[0]) : "" };
}

/** @param {Tested} run */
export const keyOf = (run) => run.run_id ?? `log:${run.log}`;

/**
 * What is asked of the server.
 * @param {any} rule as the API takes it
 * @param {string | null} saved id of the stored rule that the figures before are of
 * @param {Choice} choice
 * @param {string[]} picked ids of runs
 * @param {{ name: string, text: string }[]} logs
 */
export function request(rule, saved, choice, picked, logs) {
  const runs = {
    recent: { kind: "recent", days: 30 },
    all: { kind: "all" },
    picked: { kind: "picked", run_ids: picked },
    logs: { kind: "none" },
  }[choice];
  return { rule, rule_id: saved, pack: false, runs, logs: choice === "logs" ? logs : [] };
}

const ORDER = ["early", "late", "missed", "false_alarm", "not_judged", "quiet"];

/** The runs as the table lists them: those that failed, the earliest warning first; then false alarms; then the quiet ones. @param {Tested[]} runs @returns {Tested[]} */
export function inOrder(runs) {
  const rank = (/** @type {Tested} */ run) => ORDER.indexOf(run.verdict);
  return [...runs].sort((a, b) => rank(a) - rank(b) || (b.lead_steps ?? 0) - (a.lead_steps ?? 0) || a.name.localeCompare(b.name));
}

/**
 * The four figures; `tone` marks what is worse than it was, or a false alarm. Without a saved rule nothing was before.
 * @param {Summary} s
 * @returns {{ name: string, value: number | null, of: number | null, before: number | null, tone: "" | "odd" | "bad" }[]}
 */
export const figures = (s) => [
  {
    name: "caught",
    value: s.caught,
    of: s.failed_runs,
    before: s.caught_before,
    tone: s.caught_before !== null && s.caught < s.caught_before ? "bad" : "",
  },
  { name: "lead", value: s.lead_steps_median, of: null, before: null, tone: "" },
  {
    name: "alarms",
    value: s.false_alarms,
    of: s.healthy_runs,
    before: s.false_alarms_before,
    tone: s.false_alarms > 0 ? "odd" : "",
  },
  { name: "rate", value: rounded(s.episodes_per_1000), of: null, before: rounded(s.episodes_per_1000_before), tone: "" },
];

/** Two digits are enough for a rate. @param {number | null} value */
const rounded = (value) => (value === null ? null : Number(value.toPrecision(2)));

/** The episode that the verdict is about: of a failed run the one that warned of its end, else the first. @param {Tested} run @returns {Episode | undefined} */
export const decisive = (run) =>
  run.episodes.find(
    (e) => run.lead_steps !== null && run.ended_step !== null && e.firing_step === run.ended_step - run.lead_steps,
  ) ?? run.episodes[0];

const KIND = /** @type {Record<string, "crit" | "warn" | "mute">} */ ({ critical: "crit", warning: "warn" });

/**
 * Where the rule would have fired, as the bands of a chart. A rule that only informs is seen here all the same: it is what is looked for.
 * @param {Tested} run
 * @param {string} series
 * @returns {import("./timeline.js").Timeline}
 */
export const marks = (run, series) => ({
  bands: run.episodes
    .filter((e) => e.series === series)
    .map((e) => ({
      from: e.onset_step,
      firing: e.firing_step,
      to: e.resolved_step,
      kind: KIND[e.severity] ?? "warn",
      title: "",
      series,
      limit: toNumber(e.limit),
      open: e.resolved_step === null,
      trial: false,
    })),
  lines: [],
  checkpoints: [],
  superseded: [],
});

/** The series whose curve says most: where the rule fired first, else the one it names, else what a log has. @param {Tested} run @param {string} named */
export function seriesOf(run, named) {
  const fits = named.includes("*") ? new RegExp(`^${named.split("*").map(quoted).join(".*")}$`) : null;
  const has = (run.series ?? []).find((name) => (fits ? fits.test(name) : name === named));
  return decisive(run)?.series ?? has ?? (fits ? (run.series?.[0] ?? "train/loss") : named);
}

/** @param {string} text */
const quoted = (text) => text.replace(/[.\-]/g, "\\$&");

const AROUND = 3; // of the stretch in view, before the first sign is this many times what comes after it

/**
 * The steps to look at first: all of a short run, else the stretch around the first firing.
 * @param {Tested} run
 * @param {string} series
 * @param {number} last step of its curve
 * @returns {[number, number]}
 */
export function lookAt(run, series, last) {
  const about = decisive(run),
    first = about?.series === series ? about : run.episodes.find((e) => e.series === series),
    room = Math.max(1, last * 0.015);
  const reach = Math.max(300, Math.round(last / 10));
  if (!first || last <= 2 * reach) return [0, last + room];
  const to = Math.min(last, Math.max(first.firing_step, first.resolved_step ?? 0) + reach / 2);
  const from = Math.max(0, first.onset_step - Math.max(reach, AROUND * (to - first.onset_step)));
  return [from, to + (to - from) * 0.015];
}

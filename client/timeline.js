/**
 * What happened to a run, as marks on the step axis: alert bands, restarts and rollbacks, checkpoints, superseded stretches.
 * Pure. Every chart of a run and its lifeline draw the same marks.
 *
 * @typedef {{ from: number, firing: number | null, to: number | null, kind: "crit" | "warn" | "mute", title: string, series: string, limit: number | null, open: boolean, trial: boolean }} Band
 * @typedef {{ step: number, cause: "restart" | "rollback", segment: number, superseded?: boolean }} Line `superseded`: a later segment began before it
 * @typedef {{ step: number, state: string, id: string, superseded: boolean }} Mark
 * @typedef {{ bands: Band[], lines: Line[], checkpoints: Mark[], superseded: [number, number][] }} Timeline
 */
import { toNumber } from "./format.js";

export const OPEN = new Set(["pending", "firing", "recovering"]);
const KIND = /** @type {Record<string, "crit" | "warn" | "mute">} */ ({ critical: "crit", warning: "warn", info: "mute" });

/**
 * The marks of a run.
 * @param {any} run RunDetail
 * @returns {Timeline}
 */
export function timeline(run) {
  return { bands: bands(run), lines: lines(run), checkpoints: checkpoints(run), superseded: superseded(run.segments ?? []) };
}

/**
 * Alert bands, quietest first so that the gravest is drawn on top. An alert that a rollback rewound is kept, without its colour; one
 * of a rule on trial never has any. What is told of a run as a whole and concerns nobody, such as its end, is no stretch of a curve.
 * @param {any} run
 * @returns {Band[]}
 */
function bands(run) {
  const rank = { mute: 0, warn: 1, crit: 2 };
  return (run.alerts ?? [])
    .filter((/** @type {any} */ a) => !(a.severity === "info" && a.series.startsWith("run/")))
    .map((/** @type {any} */ a) => ({
      from: a.onset_step,
      firing: a.firing_step,
      to: OPEN.has(a.state) ? null : endOf(a, run.segments ?? []),
      kind: a.closed_because === "rewound" || a.trial ? "mute" : (KIND[a.severity] ?? "mute"),
      title: a.title,
      series: a.series,
      limit: toNumber(a.limit),
      open: OPEN.has(a.state),
      trial: Boolean(a.trial),
    }))
    .sort((/** @type {Band} */ a, /** @type {Band} */ b) => rank[a.kind] - rank[b.kind]);
}

/**
 * The step an alert ended at. One closed by a rollback or by the end of the run held until its segment was left.
 * @param {any} alert
 * @param {any[]} segments
 * @returns {number}
 */
function endOf(alert, segments) {
  const left = segments.find((s) => s.segment === alert.segment)?.last_step ?? null;
  const started = alert.firing_step ?? alert.onset_step;
  return alert.resolved_step ?? (alert.closed_because === "recovered" || left === null ? started : Math.max(left, started));
}

/** A restart on a stretch that was left since is not one of the curve that counts. @param {any} run @returns {Line[]} */
function lines(run) {
  /** @type {any[]} */ const segments = run.segments ?? [];
  const isLeft = (/** @type {any} */ s) => segments.some((later) => later.segment > s.segment && later.from_step < s.from_step);
  return segments
    .filter((s) => s.cause !== "start")
    .map((s) => ({ step: s.from_step, cause: s.cause, segment: s.segment, superseded: isLeft(s) }));
}

/** Superseded ones first: where a step was saved twice, the living mark lies on top. @param {any} run @returns {Mark[]} */
function checkpoints(run) {
  return (run.checkpoints ?? [])
    .map((/** @type {any} */ c) => ({ step: c.step, state: c.state, id: c.checkpoint_id, superseded: Boolean(c.superseded) }))
    .sort((/** @type {Mark} */ a, /** @type {Mark} */ b) => Number(b.superseded) - Number(a.superseded) || a.step - b.step);
}

/**
 * The stretches that a later segment started over, merged where they overlap.
 * @param {{ segment: number, from_step: number, last_step: number | null }[]} segments
 * @returns {[number, number][]}
 */
export function superseded(segments) {
  const inOrder = [...segments].sort((a, b) => a.segment - b.segment);
  /** @type {[number, number][]} */
  const stretches = [];
  inOrder.forEach((segment, i) => {
    const last = segment.last_step;
    if (last === null || last === undefined) return;
    const from = Math.min(...inOrder.slice(i + 1).map((s) => s.from_step));
    if (from < last) stretches.push([Math.max(from, segment.from_step), last]);
  });
  return merge(stretches);
}

/** @param {[number, number][]} stretches @returns {[number, number][]} */
function merge(stretches) {
  /** @type {[number, number][]} */
  const out = [];
  for (const [from, to] of stretches.sort((a, b) => a[0] - b[0])) {
    const last = out[out.length - 1];
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else out.push([from, to]);
  }
  return out;
}

/**
 * The gravest open band on one series, which puts the red or amber edge on that series' card.
 * @param {Band[]} all
 * @param {string} series
 */
export const openOn = (all, series) =>
  all.filter((b) => b.open && b.series === series && b.kind !== "mute" && b.firing !== null).at(-1) ?? null;

/**
 * The one limit worth drawing on a series: that of its newest open alert. A limit follows the data, so an old one says nothing;
 * that of a rule on trial is not drawn.
 * @param {any} run
 * @param {string} series
 * @returns {number | null}
 */
export function limitOn(run, series) {
  const open = (run.alerts ?? []).find(
    (/** @type {any} */ a) => a.series === series && !a.trial && OPEN.has(a.state) && Number.isFinite(toNumber(a.limit)),
  );
  return open ? toNumber(open.limit) : null;
}

/**
 * The step range the charts show. The right end leaves a little room, so that the present step is not on the edge.
 * @param {{ kind: "whole" } | { kind: "last", steps: number } | { kind: "fixed", from: number, to: number }} look
 * @param {number | null} step the present step
 * @returns {[number, number]}
 */
export function window(look, step) {
  if (look.kind === "fixed") return [look.from, look.to];
  const now = Math.max(step ?? 0, 10);
  const from = look.kind === "last" ? Math.max(0, now - look.steps) : 0;
  return [from, now + Math.max(1, (now - from) * 0.015)];
}

/**
 * How many steps "last" means for a run of this length: 1, 2 or 5 times a power of ten, about a fifteenth, at least 50.
 * @param {number | null} total
 */
export function lastSteps(total) {
  const aim = Math.max(50, (total ?? 1000) / 15),
    power = 10 ** Math.floor(Math.log10(aim));
  return ([1, 2, 5, 10].find((m) => m * power >= aim * 0.75) ?? 10) * power;
}

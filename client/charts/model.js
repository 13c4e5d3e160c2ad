/**
 * What one chart shows, as plain values: lines, marks, ranges, ticks and labels, in steps and data units. Pure; `chart.js` turns
 * it into pixels. Layers back to front: bands, limit and event lines, superseded, raw, smoothed, carets, lanes.
 *
 * @typedef {import("../series.js").Decoded} Decoded
 * @typedef {import("../timeline.js").Timeline} Timeline
 * @typedef {{ steps: ArrayLike<number>, values: ArrayLike<number>, role: "line" | "raw" | "old" | "oldraw" | "dots", color: number, stepped: boolean }} Line
 * @typedef {import("./labels.js").Label} Label
 * @typedef {import("./labels.js").Words} Words
 * @typedef {{ lines: Line[], x: [number, number], y: [number, number], log: boolean, xTicks: number[], yTicks: number[],
 *   format: (value: number) => string, bands: { from: number, to: number, kind: string, fill: boolean }[], events: { step: number, kind: string, superseded?: boolean }[], labels: Label[],
 *   limit: number | null, limitText: string, nonfinite: { step: number, value: string, superseded: boolean }[], nonfiniteText: string,
 *   checkpoints: { step: number, state: string, superseded: boolean, picked?: boolean }[], skips: number[], carets: { step: number, above: boolean, text: string }[], areas: import("./ranks.js").Area[], alt: string }} Model
 * @typedef {{ series: string, data: Decoded, dots?: Decoded | null, overflow?: Decoded | null, look: [number, number], width: number, height: number,
 *   marks: Timeline, limit?: number | null, smoothing: number, robust: boolean, logY: boolean, labelled: boolean, words: Words, alt: string, firstSign?: number | null,
 *   eachRank?: boolean, brush?: { from: number, to: number, label: string } | null, picked?: string | null }} Wish
 */
import { axisNumber, gibibytes, number, powerOfTwo, valueFormat } from "../format.js";
import { MARGIN, labels } from "./labels.js";
import { areas, colorBeside, culprits, drawn, edges } from "./ranks.js";
import { countNonfinite, linearTicks, logTicks, offScale, smooth, withGaps, yRange } from "../series.js";

const MARK_APART = 7; // pixels between two marks in a lane; closer ones say nothing more

/** Series drawn as steps, on a scale of their own. @param {string} series */
const isStepped = (series) => series === "amp/loss_scale";

/** Which logarithm a chart uses, 0 for none. @param {string} series @param {boolean} logY @param {boolean} positive */
function logBase(series, logY, positive) {
  if (series === "amp/loss_scale") return 2;
  return series.endsWith("grad_norm") || (logY && positive) ? 10 : 0;
}

/**
 * @param {Wish} wish
 * @returns {Model}
 */
export function model(wish) {
  const { series, data, look, width, height, marks } = wish,
    each = wish.eachRank ?? false,
    shown = drawn(data, each);
  const inView = [...shown, ...(each ? [] : edges(data))].map((trace) => cut(trace, look));
  const base = logBase(
    series,
    wish.logY,
    inView.every((t) => t.values.every((v) => !(v <= 0))),
  );
  const dots = (wish.dots ? drawn(wish.dots, false) : []).map((trace) => cut(trace, look));
  const limit = wish.limit ?? null;
  const y = series.endsWith("_bytes")
    ? fromZero(inView)
    : yRange(
        [...inView, ...dots].map((t) => t.values),
        {
          log: base > 0,
          base: base || 10,
          robust: wish.robust && series !== "train/learning_rate",
          include: base === 10 && limit !== null ? [limit] : [],
        },
      );
  const bare = data.traces.length === 0; // no scale is made up for a chart without a point
  const perPixel = (look[1] - look[0]) / Math.max(1, width - MARGIN.left - MARGIN.right);
  const most = height > 200 ? 5 : 4;
  const unit = series.endsWith("_bytes") ? 2 ** 30 : 1; // round ticks in the unit that is shown
  const nonfinite = data.nonfinite.filter((m) => m.step >= look[0] && m.step <= look[1]);
  const current = nonfinite.filter((m) => !m.superseded);
  return {
    lines: [...lines(wish, shown, base), ...dotLines(wish)],
    areas: each ? [] : areas(data, base > 0),
    x: look,
    y,
    log: base > 0,
    xTicks: linearTicks(look[0], look[1], width < 420 ? 4 : width < 700 ? 6 : 8).filter((v) => v <= look[1] - 4 * perPixel),
    yTicks: bare
      ? []
      : base
        ? logTicks(y[0], y[1], most, base)
        : linearTicks(y[0] / unit, y[1] / unit, most).map((v) => v * unit),
    format: tickFormat(series),
    bands: bands(wish, perPixel),
    events: events(wish),
    labels: labels(wish, perPixel),
    limit: limit !== null && limit > y[0] && limit < y[1] ? limit : null,
    limitText: `${wish.words.limit} ${number(limit)}`,
    nonfinite: apart(nonfinite, perPixel),
    nonfiniteText: oddText(wish, current.length ? current : nonfinite),
    checkpoints: marks.checkpoints
      .filter((c) => c.step >= look[0] && c.step <= look[1])
      .map((c) => ({ ...c, picked: c.id === wish.picked })),
    skips: skips(wish.overflow ?? null, look, perPixel),
    carets: carets(wish, inView, y, perPixel),
    alt: wish.alt,
  };
}

/** "3 NaN", and whose where there are several ranks. @param {Wish} wish @param {import("../series.js").NonFinite[]} marks */
function oddText({ data, words }, marks) {
  const whose = culprits(data, marks);
  return whose && words.ranks ? `${countNonfinite(marks)}, ${words.ranks} ${whose}` : countNonfinite(marks);
}

/**
 * The part of a trace in view.
 * @template {{ steps: ArrayLike<number>, values: ArrayLike<number> }} T
 * @param {T} trace
 * @param {[number, number]} look
 */
function cut(trace, [from, to]) {
  /** @type {number[]} */ const steps = [];
  /** @type {number[]} */ const values = [];
  Array.from(trace.steps).forEach((s, i) => {
    if (s >= from && s <= to) {
      steps.push(s);
      values.push(trace.values[i]);
    }
  });
  return { ...trace, steps, values };
}

/** Memory starts at zero, or a growth of 1 % looks like a leak. @param {{ values: number[] }[]} traces @returns {[number, number]} */
function fromZero(traces) {
  const highest = Math.max(0, ...traces.flatMap((t) => t.values).filter(Number.isFinite));
  return [0, highest * 1.15 || 1];
}

/** @param {Wish} wish @param {import("../series.js").Trace[]} traces @param {number} base @returns {Line[]} */
function lines({ series, smoothing }, traces, base) {
  const stepped = isStepped(series),
    soft = stepped || series === "train/learning_rate" ? 0 : smoothing;
  return [...traces]
    .sort((a, b) => Number(b.superseded) - Number(a.superseded) || b.rank - a.rank)
    .flatMap((trace) => {
      const { steps, values } = withGaps(trace);
      const color = (trace.rank % 8) + 1,
        old = trace.superseded;
      const drawn = base ? values.map((v) => (v > 0 ? v : NaN)) : values;
      /** @type {Line} */
      const raw = { steps, values: drawn, role: old ? "oldraw" : "raw", color, stepped };
      /** @type {Line} */
      const main = { steps, values: soft ? smooth(drawn, soft) : drawn, role: old ? "old" : "line", color, stepped };
      return soft ? [raw, main] : [main];
    });
}

/** @param {Wish} wish @returns {Line[]} */
function dotLines({ dots, data, eachRank }) {
  const color = colorBeside(data, eachRank ?? false);
  return (dots ? drawn(dots, false) : []).map((t) => ({
    steps: t.steps,
    values: t.values,
    role: t.superseded ? "old" : "dots",
    color,
    stepped: false,
  }));
}

/** @param {Wish} wish @param {number} perPixel */
function bands({ marks, look, brush }, perPixel) {
  const shown = marks.bands.flatMap((band) => {
    const to = Math.max(band.to ?? look[1], band.from + 4 * perPixel); // never thinner than 4 px
    const fires = band.firing ?? (band.open ? null : band.from);
    const fill = band.kind !== "mute";
    if (fires === null) return [{ from: band.from, to, kind: "warn", fill }];
    return [
      ...(fires > band.from ? [{ from: band.from, to: fires, kind: fill ? "warn" : "mute", fill }] : []),
      { from: fires, to: Math.max(to, fires), kind: band.kind, fill },
    ];
  });
  if (brush) shown.push({ from: brush.from, to: brush.to, kind: "brush", fill: true });
  return flat(
    shown
      .filter((b) => b.to >= look[0] && b.from <= look[1])
      .map((b) => ({ ...b, from: Math.max(b.from, look[0]), to: Math.min(b.to, look[1]) })),
  );
}

const GRAVEST_FIRST = ["brush", "crit", "warn", "mute"];

/**
 * Bands without overlap, the graver one winning: five alerts on the same steps are one tint, not five coats of it.
 * @param {{ from: number, to: number, kind: string, fill: boolean }[]} all
 */
function flat(all) {
  const edges = [...new Set(all.flatMap((b) => [b.from, b.to]))].sort((a, b) => a - b);
  /** @type {{ from: number, to: number, kind: string, fill: boolean }[]} */
  const out = [];
  edges.slice(1).forEach((to, i) => {
    const from = edges[i],
      over = all.filter((b) => b.from <= from && b.to >= to);
    const kind = GRAVEST_FIRST.find((k) => over.some((b) => b.kind === k)),
      last = out.at(-1);
    if (kind === undefined) return;
    if (last && last.kind === kind && last.to === from) last.to = to;
    else out.push({ from, to, kind, fill: kind !== "mute" });
  });
  return out;
}

/** @param {Wish} wish */
const events = ({ marks, look }) =>
  marks.lines
    .filter((l) => l.step >= look[0] && l.step <= look[1])
    .map((l) => ({ step: l.step, kind: l.cause, superseded: l.superseded }));

/** Marks at least MARK_APART pixels from each other. @template {{ step: number }} M @param {M[]} all @param {number} perPixel @returns {M[]} */
function apart(all, perPixel) {
  let last = -Infinity;
  return all.filter((m) => m.step - last >= MARK_APART * perPixel && ((last = m.step), true));
}

/** @param {Decoded | null} overflow @param {[number, number]} look @param {number} perPixel */
function skips(overflow, look, perPixel) {
  const steps = (overflow?.traces ?? [])
    .filter((t) => !t.superseded && t.rank === 0)
    .flatMap((t) => Array.from(t.steps).filter((s, i) => t.values[i] > 0 && s >= look[0] && s <= look[1]));
  let last = -Infinity;
  return steps.filter((s) => s - last >= 2 * perPixel && ((last = s), true));
}

/** @param {Wish} wish @param {{ steps: number[], values: number[], superseded: boolean }[]} inView @param {[number, number]} y @param {number} perPixel */
function carets({ series, words }, inView, y, perPixel) {
  const format = valueFormat(series);
  return offScale(
    inView.filter((t) => !t.superseded),
    y,
    210 * perPixel,
  ).map(({ step, value, above }) => ({ step, above, text: `${format(value)} ${words.offScale}` }));
}

/** @param {string} series */
function tickFormat(series) {
  if (series === "amp/loss_scale") return powerOfTwo;
  return series.endsWith("_bytes") ? (/** @type {number} */ v) => gibibytes(v).replace(/\.0+$/, "") : axisNumber;
}

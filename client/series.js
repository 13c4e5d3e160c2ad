/**
 * Series as the charts need them: decoding, smoothing, ranges, ticks. Pure: typed arrays in, plain values out.
 *
 * A value that is not finite is a gap everywhere below: it is never smoothed over, never part of a range, and listed apart.
 *
 * @typedef {{ segment: number, rank: number, superseded: boolean, n: number, count: number, steps: Float64Array, values: Float64Array }} Trace
 * @typedef {{ step: number, value: "NaN" | "Infinity" | "-Infinity", segment: number, rank: number, superseded: boolean }} NonFinite
 * @typedef {{ segment: number, superseded: boolean, ranks: number, n: number, steps: Float64Array, low: Float64Array, high: Float64Array,
 *             lowRanks: Float64Array, highRanks: Float64Array }} Band
 * @typedef {{ series: string, unit: string, revision: number, traces: Trace[], bands: Band[], nonfinite: NonFinite[] }} Decoded
 */

/**
 * The octet-stream of `/api/runs/{id}/series`: header length, JSON header, then steps and values of each trace.
 * The arrays are views into `buffer`, not copies.
 * @param {ArrayBuffer} buffer
 * @returns {Decoded}
 * @throws {RangeError} when the stream is shorter than its header says
 */
export function decode(buffer) {
  if (buffer.byteLength < 4) throw new RangeError("the series stream is empty");
  const length = new DataView(buffer).getUint32(0, true);
  if (4 + length > buffer.byteLength || (4 + length) % 8 !== 0)
    throw new RangeError("the series stream is cut off or not aligned");
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  let offset = 4 + length;
  const take = (/** @type {number} */ n) => {
    if (offset + 8 * n > buffer.byteLength) throw new RangeError("the series stream ends inside a trace");
    const view = new Float64Array(buffer, offset, n);
    offset += 8 * n;
    return view;
  };
  const traces = header.traces.map((/** @type {any} */ t) => ({ ...t, steps: take(t.n), values: take(t.n) }));
  const bands = (header.bands ?? []).map((/** @type {any} */ b) => ({
    ...b,
    steps: take(b.n),
    low: take(b.n),
    high: take(b.n),
    lowRanks: take(b.n),
    highRanks: take(b.n),
  }));
  return { ...header, traces, bands };
}

/** A series nobody has sent yet. @param {string} series @returns {Decoded} */
export const emptySeries = (series) => ({ series, unit: "", revision: 0, traces: [], bands: [], nonfinite: [] });

/**
 * Exponential moving average without start-up bias. It starts afresh after every gap, so nothing is drawn across one.
 * @param {ArrayLike<number>} values
 * @param {number} weight of the past, 0 (raw) to below 1
 * @returns {Float64Array} NaN where the value was not finite
 */
export function smooth(values, weight) {
  const out = new Float64Array(values.length);
  let mean = 0,
    mass = 0;
  for (let i = 0; i < values.length; i += 1) {
    const value = values[i];
    if (!Number.isFinite(value)) {
      mean = 0;
      mass = 0;
      out[i] = NaN;
      continue;
    }
    mean = weight * mean + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    out[i] = mean / mass;
  }
  return out;
}

/**
 * The trace with a NaN put in wherever steps are missing. Only a trace that was not thinned can tell: there, a stride of
 * more than ten usual ones is a hole in the telemetry.
 * @param {Trace} trace
 * @returns {{ steps: number[], values: number[] }}
 */
export function withGaps(trace) {
  const steps = Array.from(trace.steps),
    values = Array.from(trace.values);
  if (trace.n !== trace.count || trace.n < 3) return { steps, values };
  const usual = median(steps.slice(1).map((s, i) => s - steps[i]));
  /** @type {{ steps: number[], values: number[] }} */
  const out = { steps: [], values: [] };
  steps.forEach((s, i) => {
    if (i > 0 && usual !== null && s - steps[i - 1] > 10 * usual) {
      out.steps.push(s - usual);
      out.values.push(NaN);
    }
    out.steps.push(s);
    out.values.push(values[i]);
  });
  return out;
}

/**
 * The middle of the finite values, null when there are none.
 * @param {ArrayLike<number>} values
 */
export function median(values) {
  const sorted = finite(values);
  if (sorted.length === 0) return null;
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** The finite values, ascending. @param {ArrayLike<number>} values @returns {Float64Array} */
function finite(values) {
  return Float64Array.from(Array.from(values).filter(Number.isFinite)).sort();
}

const REACH = 12; // interquartile ranges beyond the quartiles: noise and a falling start stay in, an explosion does not

/**
 * The range that shows the bulk: an end is pulled in where what lies beyond it would flatten everything else. Quartiles, so
 * that even a long explosion does not widen it.
 * @param {ArrayLike<number>} values
 * @returns {[number, number] | null} null without a finite value
 */
export function robustRange(values) {
  const sorted = finite(values),
    n = sorted.length;
  if (n === 0) return null;
  if (n < 20) return [sorted[0], sorted[n - 1]];
  const low = sorted[Math.floor(0.25 * (n - 1))],
    high = sorted[Math.ceil(0.75 * (n - 1))];
  const reach = REACH * (high - low) || Math.abs(high) * 0.05 || 1;
  return [Math.max(sorted[0], low - reach), Math.min(sorted[n - 1], high + reach)];
}

/**
 * The y range of a chart, padded, in data units.
 * @param {ArrayLike<number>[]} columns values of all traces in view
 * @param {{ log?: boolean, robust?: boolean, base?: number, include?: number[] }} options `include` are values that must be seen (a limit line)
 * @returns {[number, number]}
 */
export function yRange(columns, { log = false, robust = false, base = 10, include = [] }) {
  const all = columns.flatMap((column) => Array.from(column)).filter((v) => Number.isFinite(v) && (!log || v > 0));
  const range = robust && !log ? robustRange(all) : extent(all);
  if (range === null) return log ? [1, base] : [0, 1];
  for (const value of include)
    if (Number.isFinite(value) && (!log || value > 0)) {
      range[0] = Math.min(range[0], value);
      range[1] = Math.max(range[1], value);
    }
  return log ? padLog(range, base) : padLinear(range);
}

/** @param {number[]} values @returns {[number, number] | null} */
function extent(values) {
  let low = Infinity,
    high = -Infinity;
  for (const v of values) {
    if (v < low) low = v;
    if (v > high) high = v;
  }
  return low > high ? null : [low, high];
}

/** @param {[number, number]} range @returns {[number, number]} */
function padLinear([low, high]) {
  const pad = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
  return [low >= 0 && low - pad < 0 ? 0 : low - pad, high + pad];
}

/** @param {[number, number]} range @param {number} base @returns {[number, number]} */
function padLog([low, high], base) {
  const unit = Math.log(base),
    span = (Math.log(high) - Math.log(low)) / unit;
  const pad = Math.max(0.08 * span, base === 2 ? 1.05 : 0.12); // a loss scale that never moves still shows three of its powers
  return [Math.exp(Math.log(low) - pad * unit), Math.exp(Math.log(high) + pad * unit)];
}

/**
 * At most `most` round ticks inside [low, high].
 * @param {number} low @param {number} high @param {number} most
 */
export function linearTicks(low, high, most) {
  if (!(high > low)) return [];
  for (let stride = niceStride((high - low) / (most + 1)); ; stride = niceStride(stride * 1.01)) {
    const first = Math.ceil(low / stride - 1e-9),
      last = Math.floor(high / stride + 1e-9);
    if (last - first + 1 > most) continue;
    return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => Number(((first + i) * stride).toPrecision(12)));
  }
}

/** The next of 1, 2, 5 times a power of ten. @param {number} raw */
function niceStride(raw) {
  const power = 10 ** Math.floor(Math.log10(raw) + 1e-12);
  return ([1, 2, 5].find((m) => m * power >= raw * (1 - 1e-9)) ?? 10) * power;
}

/**
 * Whole powers of `base`, thinned evenly to at most `most`; 1-2-5 steps when the range holds less than two of them.
 * @param {number} low @param {number} high @param {number} most @param {number} [base]
 */
export function logTicks(low, high, most, base = 10) {
  const unit = Math.log(base);
  const first = Math.ceil(Math.log(low) / unit - 1e-9),
    last = Math.floor(Math.log(high) / unit + 1e-9);
  if (last - first < 1) return linearTicks(low, high, most).filter((v) => v > 0);
  const stride = Math.ceil((last - first + 1) / most);
  const ticks = [];
  for (let k = Math.ceil(first / stride) * stride; k <= last; k += stride) ticks.push(base ** k);
  return ticks;
}

/**
 * Peaks cut off by the range, the tallest of each neighbourhood, at most `most`: they get a caret with their value.
 * @param {{ steps: ArrayLike<number>, values: ArrayLike<number> }[]} traces
 * @param {[number, number]} range in data units
 * @param {number} apart least distance in steps between two carets
 * @param {number} [most]
 * @returns {{ step: number, value: number, above: boolean }[]}
 */
export function offScale(traces, [low, high], apart, most = 4) {
  const found = [];
  for (const { steps, values } of traces) {
    for (let i = 0; i < values.length; i += 1) {
      const value = values[i];
      if (Number.isFinite(value) && (value > high || value < low)) found.push({ step: steps[i], value, above: value > high });
    }
  }
  found.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  /** @type {{ step: number, value: number, above: boolean }[]} */
  const kept = [];
  for (const peak of found) if (kept.length < most && kept.every((k) => Math.abs(k.step - peak.step) >= apart)) kept.push(peak);
  return kept.sort((a, b) => a.step - b.step);
}

const KINDS = /** @type {const} */ ([
  ["Infinity", "Inf"],
  ["-Infinity", "\u2212Inf"],
  ["NaN", "NaN"],
]);

/**
 * "3 Inf, 7 NaN"; empty when all is finite.
 * @param {{ value: string }[]} marks
 */
export function countNonfinite(marks) {
  return KINDS.map(([kind, word]) => [marks.filter((m) => m.value === kind).length, word])
    .filter(([count]) => count)
    .map(([count, word]) => `${count} ${word}`)
    .join(", ");
}

/**
 * Index of the point at or just before `step`, -1 when there is none. Steps ascend.
 * @param {ArrayLike<number>} steps
 * @param {number} step
 */
export function indexAt(steps, step) {
  let low = 0,
    high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] <= step) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/**
 * What the crosshair reads at `step`: the raw value of the nearest point of the traces that count, and which step it is of.
 * @param {Decoded} decoded
 * @param {number} step
 * @param {number} [rank]
 * @returns {{ step: number, value: number } | null}
 */
export function readAt(decoded, step, rank = 0) {
  let best = null;
  for (const trace of decoded.traces) {
    if (trace.superseded || trace.rank !== rank || trace.n === 0) continue;
    const before = indexAt(trace.steps, step);
    for (const i of [before, before + 1]) {
      if (i < 0 || i >= trace.n) continue;
      const away = Math.abs(trace.steps[i] - step);
      if (best === null || away < best.away) best = { away, step: trace.steps[i], value: trace.values[i] };
    }
  }
  if (best === null) return null;
  const { step: at, value } = best;
  const odd = Number.isNaN(value) ? decoded.nonfinite.find((m) => m.step === at && m.rank === rank && !m.superseded) : undefined;
  return { step: at, value: odd ? Number(odd.value) : value };
}

/**
 * The newest finite value that counts; null when there is none.
 * @param {Decoded} decoded
 * @returns {{ step: number, value: number } | null}
 */
export function lastFinite(decoded) {
  let last = null;
  for (const { steps, values, superseded, rank } of decoded.traces) {
    if (superseded || rank !== 0) continue;
    for (let i = values.length - 1; i >= 0; i -= 1) {
      if (!Number.isFinite(values[i])) continue;
      if (last === null || steps[i] > last.step) last = { step: steps[i], value: values[i] };
      break;
    }
  }
  return last;
}

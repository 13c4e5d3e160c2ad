import { test } from "node:test";
import assert from "node:assert/strict";
import {
  countNonfinite,
  decode,
  indexAt,
  lastFinite,
  linearTicks,
  logTicks,
  median,
  offScale,
  readAt,
  robustRange,
  smooth,
  withGaps,
  yRange,
} from "../../client/series.js";

/** The octet-stream of the API: header length, padded header, then steps and values of each trace. */
function stream(header, columns) {
  let json = JSON.stringify(header);
  while ((4 + new TextEncoder().encode(json).length) % 8 !== 0) json += " ";
  const head = new TextEncoder().encode(json),
    numbers = columns.flat();
  const buffer = new ArrayBuffer(4 + head.length + 8 * numbers.length),
    view = new DataView(buffer);
  view.setUint32(0, head.length, true);
  new Uint8Array(buffer, 4, head.length).set(head);
  numbers.forEach((v, i) => view.setFloat64(4 + head.length + 8 * i, v, true));
  return buffer;
}

const trace = (steps, values, more = {}) => ({
  segment: 0,
  rank: 0,
  superseded: false,
  n: steps.length,
  count: steps.length,
  steps: Float64Array.from(steps),
  values: Float64Array.from(values),
  ...more,
});
const HEADER = {
  series: "train/loss",
  unit: "",
  revision: 7,
  nonfinite: [{ step: 2, value: "Infinity", segment: 0, rank: 0, superseded: false }],
  traces: [
    { segment: 0, rank: 0, superseded: false, n: 3, count: 3 },
    { segment: 1, rank: 0, superseded: false, n: 1, count: 1 },
  ],
};

test("a stream decodes into its traces, bit for bit", () => {
  const read = decode(stream(HEADER, [[1, 2, 3], [0.1, NaN, 5e-324], [9], [-0]]));
  assert.equal(read.revision, 7);
  assert.deepEqual([...read.traces[0].steps], [1, 2, 3]);
  assert.equal(read.traces[0].values[0], 0.1);
  assert.ok(Number.isNaN(read.traces[0].values[1]));
  assert.equal(read.traces[0].values[2], 5e-324);
  assert.ok(Object.is(read.traces[1].values[0], -0));
});

test("a header with letters beyond ASCII is read by bytes, not by characters", () => {
  assert.equal(decode(stream({ ...HEADER, series: "train/损失", traces: [] }, [])).series, "train/损失");
});

test("a stream that is cut off is refused, not half drawn", () => {
  const whole = stream(HEADER, [[1, 2, 3], [1, 2, 3], [9], [1]]);
  for (const length of [0, 3, 40, whole.byteLength - 8]) assert.throws(() => decode(whole.slice(0, length)), RangeError);
});

test("smoothing has no start-up bias and leaves a constant alone", () => {
  assert.ok(smooth([2, 2, 2, 2], 0.9).every((v) => Math.abs(v - 2) < 1e-12));
  assert.equal(smooth([5, 7], 0)[1], 7);
});

test("smoothing never crosses a gap: after one it begins afresh", () => {
  const [, , gap, after] = smooth([1, 1, NaN, 9], 0.99);
  assert.ok(Number.isNaN(gap));
  assert.equal(after, 9);
});

test("an infinity is a gap too, and does not stick in the mean", () => {
  assert.deepEqual(
    [...smooth([1, Infinity, 3, -Infinity, 4], 0.5)].map((v) => (Number.isNaN(v) ? "gap" : v)),
    [1, "gap", 3, "gap", 4],
  );
});

test("segments are smoothed apart because each is a trace of its own", () => {
  assert.equal(smooth([100], 0.9)[0], 100);
});

test("missing steps are a gap, unless the trace was thinned and cannot tell", () => {
  const steps = [1, 2, 3, 4, 100, 101];
  assert.equal(withGaps(trace(steps, [1, 1, 1, 1, 1, 1])).values.filter(Number.isNaN).length, 1);
  assert.equal(withGaps(trace(steps, [1, 1, 1, 1, 1, 1], { count: 600 })).values.filter(Number.isNaN).length, 0);
  assert.deepEqual(withGaps(trace([1, 2, 3], [1, 2, 3])), { steps: [1, 2, 3], values: [1, 2, 3] });
});

test("the robust range keeps the bulk and cuts the explosion", () => {
  const calm = Array.from({ length: 500 }, (_, i) => 2 + 0.05 * Math.sin(i));
  const [low, high] = robustRange([...calm, 15.2, 60, NaN, Infinity]);
  assert.ok(low > 1.9 && high < 4);
  assert.deepEqual(robustRange([1, 2, NaN, 50]), [1, 50]);
  assert.equal(robustRange([NaN, Infinity]), null);
});

test("the robust range keeps a falling start", () => {
  const falling = Array.from({ length: 300 }, (_, i) => 2 + 3 * Math.exp(-i / 90));
  assert.equal(robustRange(falling)[1], falling[0]);
});

test("a range without a finite value is still a range", () => {
  assert.deepEqual(yRange([[NaN]], {}), [0, 1]);
  assert.deepEqual(yRange([[-1, 0]], { log: true }), [1, 10]);
  const [low, high] = yRange([[3, 3]], {});
  assert.ok(low < 3 && high > 3);
});

test("a log range ignores zero and holds the limit line", () => {
  const [low, high] = yRange([[0, 2, 2.5]], { log: true, include: [10] });
  assert.ok(low > 0 && low < 2 && high > 10);
});

test("ticks are round, inside the range and not too many", () => {
  assert.deepEqual(linearTicks(1.4, 4.2, 6), [1.5, 2, 2.5, 3, 3.5, 4]);
  assert.deepEqual(linearTicks(0, 0.3, 4), [0, 0.1, 0.2, 0.3]);
  assert.deepEqual(linearTicks(1, 1, 4), []);
  assert.deepEqual(logTicks(1, 2000, 5), [1, 10, 100, 1000]);
  assert.deepEqual(logTicks(16, 131072, 5, 2), [64, 512, 4096, 32768]);
  assert.deepEqual(logTicks(2, 9, 4), [2, 4, 6, 8]);
});

test("the tallest peak of a neighbourhood gets the caret", () => {
  const peaks = offScale([{ steps: [1, 2, 3, 100], values: [9, 15.2, 9, -3] }], [0, 4], 10);
  assert.deepEqual(
    peaks.map((p) => [p.step, p.value, p.above]),
    [
      [2, 15.2, true],
      [100, -3, false],
    ],
  );
});

test("non-finite points are counted by kind", () => {
  assert.equal(countNonfinite([{ value: "NaN" }, { value: "Infinity" }, { value: "NaN" }]), "1 Inf, 2 NaN");
  assert.equal(countNonfinite([{ value: "-Infinity" }]), "1 −Inf");
  assert.equal(countNonfinite([]), "");
});

test("the crosshair reads the nearest raw point of what counts, and tells Inf from NaN", () => {
  const data = { ...HEADER, traces: [trace([1, 2, 3], [1, NaN, 3]), trace([2, 3], [50, 60], { superseded: true })] };
  assert.deepEqual(readAt(data, 3), { step: 3, value: 3 });
  assert.equal(readAt(data, 2).value, Infinity);
  assert.equal(readAt({ ...data, traces: [] }, 2), null);
  assert.equal(indexAt([1, 5, 9], 4), 0);
  assert.equal(indexAt([1, 5, 9], 0), -1);
});

test("the last finite value is the newest one that counts", () => {
  assert.deepEqual(
    lastFinite({
      ...HEADER,
      traces: [trace([1, 2], [7, 15.2]), trace([3, 4], [NaN, Infinity]), trace([9], [1], { superseded: true })],
    }),
    { step: 2, value: 15.2 },
  );
  assert.equal(median([NaN, 3, 1, 2]), 2);
  assert.equal(median([NaN]), null);
});

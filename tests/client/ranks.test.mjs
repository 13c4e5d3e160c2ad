import { test } from "node:test";
import assert from "node:assert/strict";
import { areas, colorBeside, culprits, drawn, extremesAt, ranksIn } from "../../client/charts/ranks.js";
import { model } from "../../client/charts/model.js";
import { decode, emptySeries } from "../../client/series.js";
import { timeline } from "../../client/timeline.js";

const f64 = (...values) => Float64Array.from(values);
const trace = (rank, values, more = {}) => ({
  segment: 1,
  rank,
  superseded: false,
  n: values.length,
  count: values.length,
  steps: f64(...values.map((_, i) => i + 1)),
  values: f64(...values),
  ...more,
});
const band = (low, high, lowRanks, highRanks, more = {}) => ({
  segment: 1,
  superseded: false,
  ranks: 2,
  n: low.length,
  steps: f64(...low.map((_, i) => i + 1)),
  low: f64(...low),
  high: f64(...high),
  lowRanks: f64(...lowRanks),
  highRanks: f64(...highRanks),
  ...more,
});
const two = {
  ...emptySeries("train/loss"),
  traces: [trace(0, [3, 2, NaN, 1]), trace(1, [4, 1, NaN, NaN])],
  bands: [band([3, 1, NaN, 1], [4, 2, NaN, 1], [0, 1, NaN, 0], [1, 0, NaN, 0])],
  nonfinite: [
    { step: 3, value: "NaN", segment: 1, rank: 0, superseded: false },
    { step: 3, value: "NaN", segment: 1, rank: 1, superseded: false },
    { step: 4, value: "NaN", segment: 1, rank: 1, superseded: false },
  ],
};
const wish = (data, more = {}) => ({
  series: "train/loss",
  data,
  look: [0, 5],
  width: 600,
  height: 224,
  marks: timeline({}),
  smoothing: 0,
  robust: false,
  logY: false,
  labelled: true,
  words: { firstSign: "", restart: "", rollback: "", limit: "", offScale: "", ranks: "rank" },
  alt: "",
  ...more,
});

test("a band is drawn with the lowest rank, or each rank without it", () => {
  assert.deepEqual(ranksIn(two), [0, 1]);
  const banded = model(wish(two));
  assert.deepEqual([banded.lines.length, banded.areas.length], [1, 1]);
  const apart = model(wish(two, { eachRank: true }));
  assert.deepEqual([apart.lines.length, apart.areas.length], [2, 0]);
  assert.deepEqual(
    drawn(two, false).map((t) => t.rank),
    [0],
  );
});

test("a band keeps its extremes in view, though no line goes there", () => {
  assert.ok(model(wish(two)).y[1] >= 4);
});

test("a band breaks where no rank is finite, and at zero on a log axis", () => {
  const [area] = areas(two, false);
  assert.deepEqual(area.steps, [1, 2, 2, 1, NaN]);
  assert.deepEqual(area.values, [4, 2, 1, 3, NaN]);
  const zero = { ...two, bands: [band([1, 0, 1, 1], [2, 2, 2, 2], [0, 0, 0, 0], [1, 1, 1, 1])] };
  assert.deepEqual(areas(zero, true)[0].steps, [3, 4, 4, 3, NaN]);
});

test("the extremes at a step name their ranks, and who has no finite value", () => {
  assert.deepEqual(extremesAt(two, 2), { step: 2, ranks: 2, low: 1, lowRank: 1, high: 2, highRank: 0, odd: [] });
  assert.deepEqual(extremesAt(two, 4).odd, [{ rank: 1, value: "NaN" }]);
  assert.equal(extremesAt(emptySeries("train/loss"), 4), null);
});

test("the label of marks names their ranks, only where there are several", () => {
  assert.equal(culprits(two, two.nonfinite), "0, 1");
  assert.equal(model(wish(two)).nonfiniteText, "3 NaN, rank 0, 1");
  const alone = { ...two, bands: [], traces: [two.traces[0]], nonfinite: [two.nonfinite[0]] };
  assert.equal(model(wish(alone)).nonfiniteText, "1 NaN");
});

test("bands come after the traces in the stream", () => {
  const header = {
    traces: [{ segment: 1, rank: 0, superseded: false, n: 1, count: 1 }],
    bands: [{ segment: 1, superseded: false, ranks: 2, n: 1 }],
  };
  let json = JSON.stringify(header);
  while ((4 + json.length) % 8 !== 0) json += " ";
  const buffer = new ArrayBuffer(4 + json.length + 8 * 7),
    view = new DataView(buffer);
  view.setUint32(0, json.length, true);
  new Uint8Array(buffer, 4, json.length).set(new TextEncoder().encode(json));
  [5, 0.5, 5, 0.25, 0.75, 1, 0].forEach((v, i) => view.setFloat64(4 + json.length + 8 * i, v, true));
  const { bands } = decode(buffer);
  assert.deepEqual([bands[0].low[0], bands[0].high[0], bands[0].lowRanks[0], bands[0].highRanks[0]], [0.25, 0.75, 1, 0]);
});

test("the evaluation never has the colour of a rank's line", () => {
  const many = (n) => ({
    ...emptySeries("train/loss"),
    traces: Array.from({ length: n }, (_, rank) => trace(rank, [1, 2])),
    bands: two.bands,
  });
  assert.equal(colorBeside(many(2), false), 2);
  for (let n = 1; n <= 8; n += 1) {
    const lines = model({
      ...wish(many(n)),
      eachRank: true,
      dots: { ...emptySeries("eval/loss"), traces: [trace(0, [1, 2])] },
    }).lines;
    const of = (role) => lines.filter((l) => (l.role === "dots") === role).map((l) => l.color);
    assert.equal(of(false).includes(of(true)[0]), false, `${n} ranks`);
  }
});

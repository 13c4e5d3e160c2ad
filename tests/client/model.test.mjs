import { test } from "node:test";
import assert from "node:assert/strict";
import { model } from "../../client/charts/model.js";
import { emptySeries } from "../../client/series.js";
import { timeline } from "../../client/timeline.js";

const words = { firstSign: "first sign", restart: "restart", rollback: "rolled back", limit: "limit", offScale: "off scale" };
const steps = Float64Array.from({ length: 100 }, (_, i) => i),
  values = Float64Array.from(steps, (s) => 2 + 0.01 * Math.sin(s));
const trace = (more = {}) => ({ segment: 0, rank: 0, superseded: false, n: 100, count: 100, steps, values, ...more });
const wish = (more = {}) => ({
  series: "train/loss",
  data: { ...emptySeries("train/loss"), traces: [trace()] },
  look: [0, 99],
  width: 600,
  height: 224,
  marks: timeline({}),
  smoothing: 0.6,
  robust: true,
  logY: false,
  labelled: true,
  words,
  alt: "",
  ...more,
});
const roles = (m) => m.lines.map((l) => l.role);

test("raw lies beneath smoothed, superseded beneath both", () => {
  const data = { ...emptySeries("train/loss"), traces: [trace(), trace({ superseded: true })] };
  assert.deepEqual(roles(model(wish({ data }))), ["oldraw", "old", "raw", "line"]);
  assert.deepEqual(roles(model(wish({ data, smoothing: 0 }))), ["old", "line"]);
});

test("a loss scale is stepped, on powers of two, never smoothed", () => {
  const scale = trace({ values: Float64Array.from(steps, (s) => (s < 50 ? 65536 : 32)) });
  const m = model(wish({ series: "amp/loss_scale", data: { ...emptySeries("amp/loss_scale"), traces: [scale] } }));
  assert.deepEqual([roles(m), m.lines[0].stepped, m.log], [["line"], true, true]);
  assert.ok(m.yTicks.every((v) => Number.isInteger(Math.log2(v))));
  assert.equal(m.format(65536), "64Ki");
});

test("a scale that has slid to zero is a gap on a log axis, not a crash", () => {
  const m = model(
    wish({
      series: "amp/loss_scale",
      data: { ...emptySeries("amp/loss_scale"), traces: [trace({ values: Float64Array.from(steps, (s) => (s < 90 ? 64 : 0)) })] },
    }),
  );
  assert.ok(Number.isNaN(m.lines[0].values[99]));
  assert.ok(m.y[0] > 0);
});

test("a clipped peak gets a caret with its value", () => {
  const peak = Float64Array.from(values);
  peak[60] = 15.2;
  const m = model(wish({ data: { ...emptySeries("train/loss"), traces: [trace({ values: peak })] } }));
  assert.deepEqual(m.carets, [{ step: 60, above: true, text: "15.2 off scale" }]);
  assert.ok(m.y[1] < 15);
});

test("non-finite points are counted where they are seen, and what was superseded does not count against the living", () => {
  const nonfinite = [
    { step: 5, value: "NaN", superseded: true },
    { step: 40, value: "NaN", superseded: false },
    { step: 41, value: "Infinity", superseded: false },
    { step: 500, value: "NaN", superseded: false },
  ];
  const m = model(wish({ data: { ...emptySeries("train/loss"), traces: [trace()], nonfinite } }));
  assert.equal(m.nonfiniteText, "1 Inf, 1 NaN");
  assert.deepEqual(
    m.nonfinite.map((n) => n.step),
    [5, 40],
  ); // 41 is nearer than a mark is wide
});

test("a band is never thinner than four pixels and ends with the view", () => {
  const alert = (more) => ({
    state: "firing",
    severity: "critical",
    onset_step: 50,
    firing_step: 50,
    resolved_step: null,
    series: "train/loss",
    title: "x",
    ...more,
  });
  const [band] = model(
    wish({
      look: [0, 10000],
      marks: timeline({ alerts: [alert({ state: "resolved", resolved_step: 50, closed_because: "recovered" })] }),
    }),
  ).bands;
  assert.ok(band.to - band.from >= 4 * (10000 / (600 - 62)) - 1e-9);
  const pending = model(wish({ marks: timeline({ alerts: [alert({ firing_step: 70 })] }) })).bands;
  assert.deepEqual(
    pending.map((b) => [b.from, b.to, b.kind]),
    [
      [50, 70, "warn"],
      [70, 99, "crit"],
    ],
  );
});

test("alerts on the same steps are one tint, the graver winning", () => {
  const alert = (onset, severity) => ({
    state: "firing",
    severity,
    onset_step: onset,
    firing_step: onset,
    resolved_step: null,
    series: "train/loss",
    title: "x",
  });
  const { bands } = model(
    wish({
      marks: timeline({
        alerts: [alert(20, "warning"), alert(40, "critical"), alert(30, "warning"), alert(50, "critical"), alert(10, "info")],
      }),
    }),
  );
  assert.deepEqual(
    bands.map((b) => [b.from, b.to, b.kind, b.fill]),
    [
      [10, 20, "mute", false],
      [20, 40, "warn", true],
      [40, 99, "crit", true],
    ],
  );
});

const lined = (...lines) =>
  timeline({
    segments: [
      { segment: 0, cause: "start", from_step: 0, last_step: 99 },
      ...lines.map(([cause, from_step], i) => ({ segment: i + 1, cause, from_step, last_step: 99 })),
    ],
  });
const placed = (m) => m.labels.map((l) => [l.text, l.at, l.anchor]);

test("the label of a picked stretch stays on the plot: near the right edge it stands left of its mark", () => {
  const at = (from) => placed(model(wish({ brush: { from, to: 99, label: "back to 2, 9 steps are lost" } })));
  assert.deepEqual(
    [at(20)[0].slice(1), at(95)[0].slice(1)],
    [
      [20, "left"],
      [95, "right"],
    ],
  );
});

test("a band of a rule on trial has no fill and says what it is, where no weightier label stands", () => {
  const band = (more) => ({ alert_id: "a", severity: "critical", state: "firing", onset_step: 20, firing_step: 20, ...more });
  const drawn = (...alerts) => model(wish({ marks: timeline({ alerts }), firstSign: 80, words: { ...words, trial: "trial" } }));
  const alone = drawn(band({ trial: true }));
  assert.deepEqual(placed(alone), [["trial", 20, "left"]]);
  assert.deepEqual(
    alone.bands.map((b) => [b.kind, b.fill]),
    [["mute", false]],
  );
  const both = drawn(band({ trial: true, onset_step: 95, firing_step: 95 }), band({ onset_step: 80, firing_step: 80 }));
  assert.deepEqual(
    placed(both).map(([text]) => text),
    ["first sign 80"],
  );
});

test("the label names the first sign that the page names, and stands at no band of an earlier incident", () => {
  const band = (onset) => ({
    severity: "critical",
    state: "resolved",
    onset_step: onset,
    firing_step: onset,
    resolved_step: onset + 5,
  });
  const drawn = (firstSign, ...onsets) => placed(model(wish({ firstSign, marks: timeline({ alerts: onsets.map(band) }) })));
  assert.deepEqual(
    drawn(70, 80, 70).map(([text]) => text),
    ["first sign 70"],
  );
  assert.deepEqual([drawn(80, 40), drawn(null, 40)], [[], []]);
});

test("a label stands on the side of its line where no other line is near, so that it is never read as the other's", () => {
  assert.deepEqual(placed(model(wish({ marks: lined(["restart", 50], ["rollback", 52]) }))), [
    ["rolled back", 52, "left"],
    ["restart", 50, "right"],
  ]);
  // Between two neighbours a line has no side to itself: it goes without a label rather than with one at the wrong place.
  const crowded = model(wish({ marks: lined(["rollback", 48], ["restart", 50], ["rollback", 52]) }));
  assert.deepEqual(placed(crowded), [
    ["rolled back", 52, "left"],
    ["rolled back", 48, "right"],
  ]);
  assert.deepEqual(model(wish({ marks: lined(["restart", 50]), labelled: false })).labels, []);
});

test("a restart on a stretch that a rollback has left is a line without a word: the curve that counts did not restart there", () => {
  const m = model(wish({ marks: lined(["restart", 60], ["rollback", 40]) }));
  assert.deepEqual(placed(m), [["rolled back", 40, "left"]]);
  assert.deepEqual(
    m.events.map((e) => [e.step, e.superseded]),
    [
      [60, true],
      [40, false],
    ],
  );
});

test("at a step where two segments begin, the newer one speaks", () => {
  assert.deepEqual(placed(model(wish({ marks: lined(["restart", 50], ["rollback", 50]) }))), [["rolled back", 50, "left"]]);
  assert.deepEqual(placed(model(wish({ marks: lined(["rollback", 50], ["restart", 50]) }))), [["restart", 50, "left"]]);
});

test("a rollback says at its mark what it changed, where there is room for it", () => {
  const changed = { 1: ["without 1 document", "clipped at 1.0"] };
  const text = (more) => placed(model(wish({ marks: lined(["rollback", 40]), words: { ...words, changed }, ...more })))[0][0];
  assert.equal(text({}), "rolled back: without 1 document, clipped at 1.0");
  assert.equal(text({ width: 500 }), "rolled back: without 1 document");
  assert.equal(text({ width: 240 }), "rolled back");
});

test("memory starts at zero and has round ticks in GiB", () => {
  const m = model(
    wish({
      series: "system/host_memory_bytes",
      data: { ...emptySeries("x"), traces: [trace({ values: Float64Array.from(steps, () => 21.5 * 2 ** 30) })] },
    }),
  );
  assert.equal(m.y[0], 0);
  assert.deepEqual(m.yTicks.map(m.format), ["0", "5", "10", "15", "20"]);
});

test("a chart without a point has no scale", () => {
  const m = model(wish({ data: emptySeries("train/loss") }));
  assert.deepEqual([m.yTicks, m.lines, m.carets], [[], [], []]);
});

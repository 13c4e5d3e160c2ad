import { test } from "node:test";
import assert from "node:assert/strict";
import { ACTIVE, IDLE, decisive, figures, inOrder, lookAt, marks, request, seriesOf, step } from "../../client/backtests.js";
import { model } from "../../client/charts/model.js";
import { emptySeries } from "../../client/series.js";

const episode = (over = {}) => ({
  rule_id: "r",
  series: "train/grad_norm",
  rank: 0,
  segment: 0,
  severity: "critical",
  onset_step: 4972,
  firing_step: 4977,
  resolved_step: null,
  value: 12.5,
  limit: 7,
  text: "",
  ...over,
});
const curve = (steps, values) => ({
  ...emptySeries("train/grad_norm"),
  traces: [
    {
      segment: 0,
      rank: 0,
      superseded: false,
      n: steps.length,
      count: steps.length,
      steps: Float64Array.from(steps),
      values: Float64Array.from(values),
    },
  ],
});
const run = (name, verdict, over = {}) => ({
  run_id: name,
  name,
  project: "p",
  outcome: "healthy",
  ended_step: null,
  points: 100,
  verdict,
  lead_steps: null,
  episodes: [],
  episodes_before: 0,
  episodes_total: 0,
  problem: "",
  log: null,
  series: [],
  ...over,
});
const SUMMARY = {
  failed_runs: 18,
  caught: 17,
  caught_before: 17,
  lead_steps_median: 34,
  healthy_runs: 124,
  false_alarms: 2,
  false_alarms_before: 5,
  episodes_per_1000: 0.0312,
  episodes_per_1000_before: 0.1149,
};
const report = (state, over = {}) => ({
  backtest_id: "b1",
  state,
  done: 0,
  total: 3,
  seconds: 0,
  points: 0,
  problem: null,
  result: null,
  ...over,
});
const result = { summary: SUMMARY, runs: [run("quiet", "quiet"), run("dead", "early", { lead_steps: 47 })] };
const walk = (...inputs) => inputs.reduce(step, IDLE);
const START = { kind: "start", asked: "A" },
  STARTED = { kind: "started", id: "b1" };

test("a backtest goes from start over progress to its result, which belongs to the rule that was asked", () => {
  const running = walk(START, STARTED, { kind: "report", report: report("running", { done: 2 }) });
  assert.deepEqual([running.phase, running.done, running.total], ["running", 2, 3]);
  const done = step(running, { kind: "report", report: report("succeeded", { result, seconds: 1.4, points: 2e6 }) });
  assert.deepEqual([done.phase, done.of, done.chosen, done.points], ["succeeded", "A", "dead", 2e6]);
});

test("a second start while one runs does nothing, and the last result stays to be read while a new one runs", () => {
  const done = walk(START, STARTED, { kind: "report", report: report("succeeded", { result }) });
  const again = step(done, { kind: "start", asked: "B" });
  assert.equal(step(again, { kind: "start", asked: "C" }), again);
  assert.deepEqual([again.of, again.result], ["A", result]);
});

test("what is cancelled stays cancelled, whatever is reported of it afterwards", () => {
  const cancelled = walk(START, STARTED, { kind: "cancel" });
  assert.equal(step(cancelled, { kind: "report", report: report("succeeded", { result }) }), cancelled);
  assert.equal(walk(START, { kind: "cancel" }, STARTED).phase, "cancelled");
});

test("a report of another backtest is nobody's", () => {
  const second = walk(START, { kind: "started", id: "b2" });
  assert.equal(step(second, { kind: "report", report: report("failed") }), second);
});

test("a refusal and a failure carry their reason", () => {
  assert.equal(walk(START, { kind: "refused", problem: { detail: "no", fix: "" } }).problem.detail, "no");
  assert.equal(
    walk(START, STARTED, { kind: "report", report: report("failed", { problem: "a worker died" }) }).problem.detail,
    "a worker died",
  );
});

test("the run whose curve is looked at stays chosen when the backtest is run again", () => {
  const looked = walk(
    START,
    STARTED,
    { kind: "report", report: report("succeeded", { result }) },
    { kind: "choose", key: "quiet" },
    START,
    STARTED,
  );
  assert.equal(step(looked, { kind: "report", report: report("succeeded", { result }) }).chosen, "quiet");
});

test("no walk of inputs leaves the phases there are", () => {
  const inputs = [
    START,
    STARTED,
    { kind: "cancel" },
    { kind: "forget" },
    { kind: "choose", key: "x" },
    { kind: "refused", problem: { detail: "", fix: "" } },
    ...["queued", "running", "succeeded", "failed", "cancelled"].map((s) => ({
      kind: "report",
      report: report(s, { result: s === "succeeded" ? result : null }),
    })),
  ];
  const seen = new Set();
  const visit = (state, depth) => {
    seen.add(state.phase);
    if (depth > 0) for (const input of inputs) visit(step(state, input), depth - 1);
  };
  visit(IDLE, 4);
  assert.deepEqual([...seen].sort(), ["cancelled", "failed", "idle", "queued", "running", "starting", "succeeded"]);
  assert.deepEqual([...ACTIVE].sort(), ["queued", "running", "starting"]);
});

test("failed runs are listed first, the earliest warning on top, then false alarms, then the quiet ones", () => {
  const order = inOrder([
    run("q", "quiet"),
    run("f", "false_alarm"),
    run("m", "missed"),
    run("e16", "early", { lead_steps: 16 }),
    run("l", "late", { lead_steps: -3 }),
    run("e47", "early", { lead_steps: 47 }),
  ]);
  assert.deepEqual(
    order.map((r) => r.name),
    ["e47", "e16", "l", "m", "f", "q"],
  );
});

test("the figures mark false alarms, and fewer catches than before", () => {
  const by = Object.fromEntries(figures(SUMMARY).map((f) => [f.name, f]));
  assert.deepEqual([by.caught.value, by.caught.of, by.caught.before, by.caught.tone], [17, 18, 17, ""]);
  assert.deepEqual([by.alarms.tone, by.rate.value, by.rate.before], ["odd", 0.031, 0.11]);
  assert.equal(figures({ ...SUMMARY, caught: 12 })[0].tone, "bad");
  assert.equal(figures({ ...SUMMARY, lead_steps_median: null })[1].value, null);
});

test("a rule that is not saved yet has nothing to be compared with", () => {
  const fresh = {
    ...SUMMARY,
    caught_before: null,
    false_alarms_before: null,
    episodes_per_1000: null,
    episodes_per_1000_before: null,
  };
  assert.deepEqual(
    figures(fresh).map((f) => f.before),
    [null, null, null, null],
  );
  assert.deepEqual([figures(fresh)[0].tone, figures(fresh)[3].value], ["", null]);
});

test("what is asked names the runs that were chosen, and logs only where they were", () => {
  const logs = [{ name: "a.csv", text: "step,loss" }];
  assert.deepEqual(request({}, "r", "recent", ["x"], logs), {
    rule: {},
    rule_id: "r",
    pack: false,
    runs: { kind: "recent", days: 30 },
    logs: [],
  });
  assert.deepEqual(request({}, null, "picked", ["x"], logs).runs, { kind: "picked", run_ids: ["x"] });
  assert.deepEqual(
    [request({}, null, "logs", [], logs).runs, request({}, null, "logs", [], logs).logs],
    [{ kind: "none" }, logs],
  );
});

test("the bands of a run are amber from the first sign and red from the firing, to the end of a curve that was never well again", () => {
  const tested = run("dead", "early", { episodes: [episode(), episode({ series: "train/loss" })] });
  const bands = marks(tested, "train/grad_norm").bands;
  assert.deepEqual([bands.length, bands[0].from, bands[0].firing, bands[0].to, bands[0].open], [1, 4972, 4977, null, true]);
  const steps = Array.from({ length: 100 }, (_, i) => 4900 + i);
  const drawn = model({
    series: "train/grad_norm",
    data: curve(
      steps,
      steps.map(() => 2),
    ),
    look: [4900, 5000],
    width: 900,
    height: 224,
    marks: marks(tested, "train/grad_norm"),
    smoothing: 0,
    robust: true,
    logY: false,
    labelled: true,
    alt: "",
    words: { firstSign: "first sign", restart: "", rollback: "", limit: "", offScale: "", fires: "fires at" },
  });
  assert.deepEqual(
    drawn.bands.map((b) => [b.from, b.to, b.kind]),
    [
      [4972, 4977, "warn"],
      [4977, 5000, "crit"],
    ],
  );
  assert.deepEqual(
    drawn.labels.map((l) => l.text),
    ["fires at 4977"],
  );
});

test("a rule that only informs is drawn all the same: it is what is looked for", () => {
  assert.equal(marks(run("x", "quiet", { episodes: [episode({ severity: "info" })] }), "train/grad_norm").bands[0].kind, "warn");
});

test("a label that would begin before the plot stands right of the first sign", () => {
  const steps = [0, 1000];
  const drawn = model({
    series: "train/grad_norm",
    data: curve(steps, [1, 2]),
    look: [0, 1000],
    width: 400,
    height: 224,
    marks: marks(
      run("x", "early", { episodes: [episode({ onset_step: 10, firing_step: 12, resolved_step: 20 })] }),
      "train/grad_norm",
    ),
    smoothing: 0,
    robust: true,
    logY: false,
    labelled: true,
    alt: "",
    words: { firstSign: "", restart: "", rollback: "", limit: "", offScale: "", fires: "fires at" },
  });
  assert.deepEqual([drawn.labels[0].anchor, drawn.labels[0].at], ["left", 10]);
});

test("of a failed run the episode that warned of its end counts, not one that healed long before", () => {
  const healed = episode({ onset_step: 330, firing_step: 330, resolved_step: 340 });
  const died = run("x", "early", { ended_step: 5024, lead_steps: 47, episodes: [healed, episode()], episodes_total: 2 });
  assert.equal(decisive(died).firing_step, 4977);
  assert.equal(decisive({ ...died, lead_steps: null }).firing_step, 330);
  assert.equal(decisive(run("x", "quiet")), undefined);
  assert.ok(lookAt(died, "train/grad_norm", 5024)[0] > 4000);
});

test("a short run is seen whole, a long one around its first firing, one that does not fire whole", () => {
  const at = (over) => run("x", "early", { episodes: [episode(over)] });
  assert.deepEqual(lookAt(at({ onset_step: 50, firing_step: 52 }), "train/grad_norm", 200), [0, 203]);
  const [from, to] = lookAt(at({}), "train/grad_norm", 5024);
  assert.ok(from > 4000 && from < 4972 && to >= 5024, `${from} ${to}`);
  assert.deepEqual(lookAt(run("x", "quiet"), "train/grad_norm", 5000), [0, 5075]);
});

test("the curve shown is of the series on which the rule fired, else of the one it names", () => {
  assert.equal(seriesOf(run("x", "early", { episodes: [episode()] }), "train/*"), "train/grad_norm");
  assert.equal(seriesOf(run("x", "quiet"), "train/loss"), "train/loss");
  const log = run("x", "quiet", { run_id: null, log: 1, series: ["amp/loss_scale", "train/grad_norm.1", "train/loss"] });
  assert.equal(seriesOf(log, "train/loss"), "train/loss");
  assert.equal(seriesOf(log, "train/grad_norm*"), "train/grad_norm.1");
  assert.equal(seriesOf(log, "eval/*"), "amp/loss_scale");
});

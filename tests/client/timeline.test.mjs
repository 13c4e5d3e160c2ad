import { test } from "node:test";
import assert from "node:assert/strict";
import { alert as known } from "./kit.mjs";
import { lastSteps, limitOn, openOn, superseded, timeline, window } from "../../client/timeline.js";

const segment = (n, from, last, cause = n ? "rollback" : "start") => ({ segment: n, from_step: from, last_step: last, cause });
const alert = (more) => known({ onset_step: 10, firing_step: 12, ...more });

test("what a later segment started over is superseded, merged and clipped to its own segment", () => {
  assert.deepEqual(superseded([segment(0, 0, 4640), segment(1, 4500, 5030), segment(2, 4750, 5212)]), [
    [4500, 4640],
    [4750, 5030],
  ]);
  assert.deepEqual(superseded([segment(0, 0, 100), segment(1, 50, 90), segment(2, 40, 95)]), [[40, 100]]);
  assert.deepEqual(superseded([segment(0, 0, 100)]), []);
  assert.deepEqual(superseded([segment(0, 0, null), segment(1, 0, 5)]), []);
});

test("an open alert's band has no end, a rewound one keeps its place and loses its colour", () => {
  const { bands } = timeline({
    alerts: [
      alert(),
      alert({ state: "resolved", resolved_step: 30, closed_because: "rewound" }),
      alert({ severity: "info", state: "resolved", resolved_step: 5 }),
    ],
  });
  assert.deepEqual(
    bands.map((b) => [b.kind, b.to, b.open]),
    [
      ["mute", 30, false],
      ["mute", 5, false],
      ["crit", null, true],
    ],
  );
});

test("an alert of a rule on trial has its band without colour, no edge on a card and no limit line", () => {
  const trial = alert({ trial: true, limit: 10 });
  const [band] = timeline({ alerts: [trial] }).bands;
  assert.deepEqual([band.kind, band.trial, band.open], ["mute", true, true]);
  assert.equal(openOn([band], "train/loss"), null);
  assert.equal(limitOn({ alerts: [trial] }, "train/loss"), null);
});

test("an alert closed by a rollback or by the end held until its segment was left", () => {
  const closed = (because) =>
    timeline({ segments: [segment(1, 0, 290)], alerts: [alert({ state: "resolved", segment: 1, closed_because: because })] })
      .bands[0].to;
  assert.deepEqual(["run_ended", "rewound", "recovered"].map(closed), [290, 290, 12]);
});

test("starts are no marks, restarts and rollbacks are", () => {
  assert.deepEqual(timeline({ segments: [segment(0, 0, 9), segment(1, 5, 9, "restart"), segment(2, 4, 9)] }).lines, [
    { step: 5, cause: "restart", segment: 1, superseded: true }, // left by the rollback behind it
    { step: 4, cause: "rollback", segment: 2, superseded: false },
  ]);
});

test("the end of a run, told as information, is no band; what wants a person is one", () => {
  const of = (severity) => alert({ series: "run/end", severity, state: "resolved", closed_because: "run_ended" });
  const kinds = timeline({ segments: [segment(1, 0, 290)], alerts: [of("info"), of("warning")] }).bands.map((b) => b.kind);
  assert.deepEqual(kinds, ["warn"]);
});

test("checkpoints come by step, superseded ones beneath", () => {
  const marks = timeline({
    checkpoints: [
      { checkpoint_id: "b", step: 9, state: "unsound", superseded: true },
      { checkpoint_id: "a", step: 3, state: "sound" },
    ],
  }).checkpoints;
  assert.deepEqual(marks, [
    { step: 9, state: "unsound", id: "b", superseded: true },
    { step: 3, state: "sound", id: "a", superseded: false },
  ]);
});

test("only a firing alert of that series puts an edge on its card", () => {
  const bands = timeline({ alerts: [alert(), alert({ state: "pending", firing_step: null, series: "train/grad_norm" })] }).bands;
  assert.equal(openOn(bands, "train/loss")?.kind, "crit");
  assert.equal(openOn(bands, "train/grad_norm"), null);
});

test("a limit is drawn while its alert is open", () => {
  const run = {
    alerts: [alert({ series: "train/grad_norm", limit: 10 }), alert({ series: "train/loss", state: "resolved", limit: 3 })],
  };
  assert.equal(limitOn(run, "train/grad_norm"), 10);
  assert.equal(limitOn(run, "train/loss"), null);
  assert.equal(limitOn({ alerts: [alert({ limit: "NaN" })] }, "train/loss"), null);
});

test("the window follows the run unless it was fixed", () => {
  assert.deepEqual(window({ kind: "fixed", from: 5, to: 9 }, 100), [5, 9]);
  const [from, to] = window({ kind: "last", steps: 40 }, 100);
  assert.ok(from === 60 && to > 100 && to < 103);
  assert.equal(window({ kind: "whole" }, null)[0], 0);
});

test("the last range is a round number of steps", () => {
  assert.deepEqual([9375, 320, null, 1e6].map(lastSteps), [500, 50, 50, 50000]);
});

import { test } from "node:test";
import assert from "node:assert/strict";
import {
  badge,
  choices,
  commandSteps,
  doing,
  endedBefore,
  endsAt,
  filterRuns,
  grade,
  health,
  live,
  mayCommand,
  needsYou,
  orderSentence,
  reasonOf,
  remaining,
  stale,
  stepSeconds,
} from "../../client/reducers.js";

const alert = (more) => ({
  severity: "critical",
  state: "firing",
  title: "Loss is NaN",
  onset_step: 5000,
  firing_step: 5024,
  ...more,
});
const run = (more) => ({
  state: "running",
  alerts: [],
  commands: [],
  checkpoints: [],
  capabilities: ["stop", "rollback"],
  incapable_because: "",
  command: null,
  countdown: null,
  proposal: { target: "c3", passed_over: [], first_sign_step: null },
  ...more,
});

test("the live state is away from the first error until the next hello", () => {
  assert.deepEqual(
    [live("connecting", "hello"), live("live", "error"), live("away", "error"), live("away", "hello")],
    ["live", "away", "away", "live"],
  );
});

test("only runs with a newer revision are fetched again", () => {
  assert.deepEqual(stale({ a: 3, b: 4 }, { a: 3, b: 5, c: 1 }), ["b", "c"]);
});

test("a lost run's health is unknown, never healthy", () => {
  assert.equal(health(run({ state: "lost" })).say.key, "health.unknown");
  assert.equal(health(run({ state: "lost" })).grade, "warn");
  assert.equal(health(run({})).say.key, "health.healthy");
});

test("health names the gravest alert, and of those the earliest; info is not trouble", () => {
  const state = health(
    run({
      alerts: [
        alert({ title: "Grad norm ramps", severity: "warning", onset_step: 4958 }),
        alert({}),
        alert({ title: "Steps skipped", onset_step: 5021 }),
      ],
    }),
  );
  assert.deepEqual([state.say, state.grade, state.count, state.firstSign], ["Loss is NaN", "crit", 3, 4958]);
  assert.equal(health(run({ alerts: [alert({ severity: "info" }), alert({ state: "resolved" })] })).say.key, "health.healthy");
});

test("an end closes alerts but does not make a dead run healthy; a recovery or a rollback does", () => {
  const closed = (because, at = "2026-01-02T00:00:00Z") =>
    health(
      run({
        state: "stopped",
        ended_at: "2026-01-02T00:00:00Z",
        alerts: [alert({ state: "resolved", closed_because: because, resolved_at: at })],
      }),
    );
  assert.deepEqual([closed("run_ended").say, closed("run_ended").grade], ["Loss is NaN", "crit"]);
  for (const because of ["recovered", "rewound"]) assert.equal(closed(because).say.key, "health.healthy");
  assert.equal(closed("run_ended", "2026-01-01T00:00:00Z").say.key, "health.healthy", "an earlier end says nothing of this one");
});

test("a countdown comes before a command, a command before what was done last", () => {
  const command = { kind: "stop", state: "delivered" };
  assert.equal(doing(run({ countdown: { kind: "rollback" }, command })).say.key, "doing.countdown.rollback");
  assert.equal(doing(run({ command })).say.key, "doing.command.stop");
  assert.equal(doing(run({ state: "lost", command })).say.key, "doing.waiting");
  assert.equal(doing(run({ phase: "holding" })).say.key, "doing.holding");
  assert.equal(doing(run({ commands: [{ kind: "rollback", state: "succeeded" }] })).what, "last");
  const cancelled = { type: "countdown.ended", at: "2026-01-01T10:00:00Z", data: { state: "cancelled" } };
  const after = { kind: "stop", state: "cancelled", issued_at: "2026-01-01T11:00:00Z" };
  assert.equal(doing(run({ events: [cancelled] })).event, cancelled);
  assert.equal(doing(run({ events: [cancelled], commands: [after] })).event, undefined);
  assert.equal(doing(run({ state: "stopped", commands: [{ kind: "stop", state: "succeeded" }] })).say.key, "doing.stopped");
});

test("a phase from before the segment began is not claimed", () => {
  const held = (seconds) =>
    run({
      phase: "holding",
      heard_at: "2026-04-02T12:01:00Z",
      segments: [{ from_step: 1, started_at: new Date(Date.parse("2026-04-02T12:01:00Z") - seconds * 1000).toISOString() }],
    });
  assert.equal(doing(held(3)).say.key, "doing.nothing");
  assert.equal(doing(held(60)).say.key, "doing.holding");
});

test("a button that cannot be obeyed always has its reason", () => {
  const bare = run({ capabilities: ["stop"], incapable_because: "The bare callback cannot roll back." });
  assert.deepEqual(mayCommand(bare, "rollback"), { enabled: false, why: "The bare callback cannot roll back." });
  assert.equal(mayCommand(bare, "stop").enabled, true);
  for (const state of ["finished", "failed", "stopped", "created"]) assert.ok(mayCommand(run({ state }), "stop").why);
  assert.equal(mayCommand(run({ proposal: { target: null } }), "rollback").why.key, "why.no_sound");
  assert.equal(mayCommand(run({ command: { kind: "rollback" } }), "rollback").why.key, "why.active.rollback");
  assert.equal(mayCommand(run({ command: { kind: "rollback" } }), "stop").enabled, true);
  assert.equal(mayCommand(run({ state: "lost" }), "stop").enabled, true);
});

test("a command's dots say what is done, what is now and where it ended", () => {
  const history = [
    { state: "queued", at: "1" },
    { state: "delivered", at: "2" },
  ];
  assert.deepEqual(
    commandSteps({ kind: "rollback", state: "delivered", history }).map((s) => [s.state, s.mark]),
    [
      ["queued", "done"],
      ["delivered", "now"],
      ["running", ""],
      ["succeeded", ""],
    ],
  );
  assert.deepEqual(
    commandSteps({ kind: "stop", state: "succeeded", history }).map((s) => s.mark),
    ["done", "done", "done", "done"],
  );
  assert.deepEqual(
    commandSteps({ kind: "rollback", state: "rejected", history: [...history, { state: "rejected", at: "3" }] }).map((s) => [
      s.state,
      s.mark,
    ]),
    [
      ["queued", "done"],
      ["delivered", "done"],
      ["rejected", "fail"],
    ],
  );
});

test("a countdown runs by what the server said was left, whatever this clock shows", () => {
  assert.equal(remaining({ remaining_seconds: 42 }, 1000, 11000), 32);
  assert.equal(remaining({ remaining_seconds: 42 }, 0, 1e9), 0);
});

test("the proposed checkpoint is marked; passed-over, superseded and unsound ones cannot be chosen", () => {
  const listed = choices(
    run({
      checkpoints: [
        { checkpoint_id: "c1", step: 10, state: "sound", reason: "fit" },
        { checkpoint_id: "c3", step: 20, state: "sound", reason: "fit" },
        { checkpoint_id: "c4", step: 30, state: "sound", reason: "fit" },
        { checkpoint_id: "c5", step: 40, state: "unsound", reason: "sick" },
        { checkpoint_id: "c6", step: 50, state: "sound", superseded: true },
        { checkpoint_id: "c0", step: 5, state: "deleted" },
      ],
      proposal: { target: "c3", passed_over: [{ checkpoint_id: "c4", reason: "not older than the first sign (25)" }] },
    }),
  );
  assert.deepEqual(
    listed.map((c) => [c.checkpoint_id, c.enabled, c.proposed]),
    [
      ["c5", false, false],
      ["c4", false, false],
      ["c3", true, true],
      ["c1", true, false],
    ],
  );
  assert.equal(listed[1].reason, "not older than the first sign (25)");
});

test("the order is one sentence with its cost", () => {
  const order = orderSentence({ step: 4750, lost: 280, seconds: 4.3, data: "skip", clip: 1 });
  assert.deepEqual(
    [order.back.values.step, order.lost.values.steps, Math.round(order.lost.values.seconds), order.rest.map((s) => s.key)],
    [4750, 280, 1204, ["order.data.skip", "order.clip"]],
  );
  assert.equal(orderSentence({ step: 1, lost: 1, seconds: null, data: "replay", clip: null }).lost.key, "order.lost.one");
});

test("filters know who needs you", () => {
  const runs = [
    run({ name: "a", project: "p", host: "gpu-1", alerts: { firing: 1, worst: alert({}) } }),
    run({ name: "b", project: "p", host: "gpu-2", alerts: { firing: 0, worst: null } }),
    run({ name: "c", project: "q", host: "gpu-1", state: "failed", alerts: { firing: 1, worst: alert({}) } }),
  ];
  assert.deepEqual(
    ["all", "needs", "running", "ended"].map((f) => filterRuns(runs, f).length),
    [3, 1, 2, 1],
  );
  assert.equal(filterRuns(runs, "all", "GPU-1").length, 2);
  assert.equal(needsYou(run({ state: "lost", alerts: { worst: null } })), true);
  assert.equal(grade(run({ alerts: { worst: alert({ severity: "info" }) } })), "");
});

test("the end is foretold from the steps of this segment, or not at all", () => {
  const now = new Date("2026-04-02T12:00:00Z");
  const known = run({
    step: 110,
    total_steps: 210,
    heard_at: "2026-04-02T12:00:00Z",
    segments: [{ from_step: 10, started_at: "2026-04-02T11:56:40Z" }],
  });
  assert.equal(stepSeconds(known), 2);
  assert.equal(endsAt(known, now).toISOString(), "2026-04-02T12:03:20.000Z");
  assert.equal(endsAt(run({ step: null, total_steps: 10 }), now), null);
  assert.equal(stepSeconds(run({ latest: { "perf/step_seconds": { value: "NaN" } } })), null);
});

test("the badge counts firing alerts above info", () => {
  assert.equal(
    badge([
      alert({}),
      alert({ state: "pending" }),
      alert({ severity: "info" }),
      alert({ state: "resolved" }),
      alert({ state: "recovering" }),
    ]),
    2,
  );
});

test("each end has its reason in words; a type stays as it is, and of a lost run nothing is claimed", () => {
  const cases = [
    ["failed", "killed", { key: "reason.killed" }],
    ["failed", "left before its end", { key: "reason.left" }],
    ["failed", "OutOfMemoryError", "OutOfMemoryError"],
    ["stopped", "stopped by command", { key: "reason.command" }],
    ["stopped", "the loss is not finite at step 3", "the loss is not finite at step 3"],
    ["finished", "finished", ""],
    ["lost", "no word since 2026-03-01", ""],
    ["failed", "toString", "toString"],
  ];
  for (const [state, state_reason, said] of cases) assert.deepEqual(reasonOf(run({ state, state_reason })), said);
});

test("while a run goes on it says how the process before ended; once it has ended only its own end counts", () => {
  const event = (type, reason, step) => ({ type, step, data: { reason } });
  const events = [event("run.started", ""), event("run.incarnation_ended", "killed", 40), event("run.started", "")];
  assert.deepEqual(endedBefore(run({ events })), { reason: { key: "reason.killed" }, step: 40 });
  assert.equal(endedBefore(run({ events, state: "finished" })), null);
  assert.equal(endedBefore(run({ events: [] })), null);
});

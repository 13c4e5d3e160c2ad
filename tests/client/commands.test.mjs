import { test } from "node:test";
import assert from "node:assert/strict";
import {
  KINDS,
  clipping,
  commandSteps,
  doing,
  mayCommand,
  offered,
  rateFactor,
  reasons,
  stageKey,
} from "../../client/commands.js";
import { run } from "./kit.mjs";

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

test("a dry run says what would be done and does nothing, and so does its end", () => {
  const dry = doing(run({ countdown: { kind: "rollback", dry_run: true } }));
  assert.deepEqual([dry.say.key, dry.busy], ["doing.countdown.rollback.dry", false]);
  const ended = (state, dry_run) => ({ type: "countdown.ended", at: "2026-01-01T10:00:00Z", data: { state, dry_run } });
  const due = ended("due", true);
  assert.equal(doing(run({ events: [due] })).event, due);
  assert.equal(doing(run({ events: [ended("due", false)] })).event, undefined, "its command speaks");
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

test("a paused run says so, by whom, and waits; what came before it is not claimed", () => {
  const pause = { kind: "pause", state: "succeeded", issued_by: "mlops" };
  const paused = run({ state: "paused", commands: [pause, { kind: "save", state: "succeeded" }] });
  assert.deepEqual([doing(paused).what, doing(paused).command], ["paused", pause]);
  assert.deepEqual([offered(paused).includes("resume"), offered(paused).includes("pause")], [true, false]);
  assert.deepEqual([offered(run({})).includes("resume"), offered(run({})).includes("pause")], [false, true]);
});

test("a button that cannot be obeyed always has its reason", () => {
  const bare = run({ capabilities: ["stop"], incapable_because: "The bare callback cannot roll back." });
  assert.deepEqual(mayCommand(bare, "rollback"), { enabled: false, why: "The bare callback cannot roll back." });
  assert.equal(mayCommand(bare, "stop").enabled, true);
  for (const state of ["finished", "failed", "stopped", "created"]) assert.ok(mayCommand(run({ state }), "stop").why);
  assert.equal(mayCommand(run({ proposal: { target: null } }), "rollback").why.key, "why.no_sound");
  assert.deepEqual(mayCommand(run({ command: { kind: "rollback" } }), "rollback").why, {
    key: "why.other",
    values: { what: "rollback" },
  });
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

test("every order has its reasons; the same reason is said once for all it holds for", () => {
  const all = run({ capabilities: [...KINDS] });
  for (const kind of KINDS) assert.equal(mayCommand(all, kind).enabled, true, kind);
  assert.deepEqual(reasons(all, KINDS), []);
  const over = reasons(run({ state: "finished" }), KINDS);
  assert.deepEqual([over.length, over[0].kinds.length, over[0].why.key], [1, KINDS.length, "why.ended"]);
  const dead = run({ capabilities: [...KINDS], phase: "holding", heard_at: "2026-01-01T00:01:00Z" });
  assert.deepEqual(reasons(dead, KINDS), [{ why: { key: "why.dead" }, kinds: ["save"] }]);
  const busy = reasons({ ...all, command: { kind: "save" } }, KINDS);
  assert.deepEqual(
    busy.map((group) => [group.why.key, group.kinds]),
    [["why.other", KINDS.filter((kind) => kind !== "stop")]],
  );
});

test("a stop that waits behind a rollback is no second order", () => {
  const both = run({ command: { kind: "rollback" }, waiting_command: { kind: "stop" } });
  assert.deepEqual(mayCommand(both, "stop"), { enabled: false, why: { key: "why.other", values: { what: "stop" } } });
});

test("a rollback loads and takes a first step; the others run", () => {
  assert.deepEqual(
    ["queued", "running", "succeeded"].map((state) => stageKey("rollback", state)),
    ["command.state.queued", "stage.rollback.running", "stage.rollback.succeeded"],
  );
  assert.equal(stageKey("save", "running"), "command.state.running");
});

test("of a setting the newest segment speaks, and what was commanded since; what nobody said is not known, and not off", () => {
  assert.deepEqual([clipping(run({})), rateFactor(run({}))], [null, 1]);
  assert.equal(clipping(run({ attributes: { max_grad_norm: 0 } })), 0);
  const segments = [
    { segment: 1, attributes: { max_grad_norm: 1, learning_rate_factor: 0.5 } },
    { segment: 2, attributes: {} },
  ];
  const set = (kind, segment, value, state = "succeeded") => ({ kind: `set_${kind}`, segment, value, state });
  assert.deepEqual([clipping(run({ segments })), rateFactor(run({ segments }))], [null, 1]);
  assert.equal(clipping(run({ segments, attributes: { max_grad_norm: 3 } })), 3);
  assert.equal(clipping(run({ segments, commands: [set("max_grad_norm", 2, 0.5)] })), 0.5);
  const stale = [set("max_grad_norm", 2, 0.5, "rejected"), set("max_grad_norm", 1, 3), set("learning_rate_factor", 1, 0.25)];
  assert.deepEqual([clipping(run({ segments, commands: stale })), rateFactor(run({ segments, commands: stale }))], [null, 1]);
  const factors = [{ segment: 1 }, { segment: 2, attributes: { learning_rate_factor: 0.5 } }];
  assert.equal(rateFactor(run({ segments: factors, commands: stale })), 0.5);
  const twice = [set("learning_rate_factor", 2, 1), set("learning_rate_factor", 2, 0.1)]; // the newest first
  assert.equal(rateFactor(run({ segments: factors, commands: twice })), 1);
});

import { test } from "node:test";
import assert from "node:assert/strict";
import {
  badge,
  byUrgency,
  endedBefore,
  endsAt,
  filterRuns,
  firstSign,
  grade,
  health,
  live,
  needsYou,
  reasonOf,
  remaining,
  shownState,
  stale,
  stepSeconds,
} from "../../client/reducers.js";
import { alert, run } from "./kit.mjs";

test("what needs you: a countdown that acts comes first, what somebody has taken on comes last", () => {
  const sick = (run_id, severity, more = {}) => run({ run_id, alerts: { firing: 1, worst: alert({ severity }) }, ...more });
  const counts = (remaining_seconds, dry_run = false) => ({ countdown: { kind: "stop", remaining_seconds, dry_run } });
  const runs = [
    run({ run_id: "well" }),
    sick("taken", "critical"),
    sick("warned", "warning"),
    sick("dry", "critical", counts(5, true)),
    sick("later", "critical", counts(50)),
    sick("soon", "warning", counts(20)),
  ];
  const incidents = [
    { run_id: "taken", state: "acknowledged" },
    { run_id: "dry", state: "triggered" },
  ];
  assert.deepEqual(
    byUrgency(runs, incidents).map((r) => r.run_id),
    ["soon", "later", "dry", "warned", "taken"],
  );
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

test("a run that failed without an alert was not healthy", () => {
  assert.equal(health(run({ state: "failed" })).say.key, "health.unknown");
  assert.equal(health(run({ state: "finished" })).say.key, "health.healthy");
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

test("a countdown runs by what the server said was left, whatever this clock shows", () => {
  assert.equal(remaining({ remaining_seconds: 42 }, 1000, 11000), 32);
  assert.equal(remaining({ remaining_seconds: 42 }, 0, 1e9), 0);
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
  assert.equal(endsAt({ ...known, stalled: { since: "2026-04-02T11:59:00Z", limit_seconds: 20 } }, now), null);
  assert.equal(endsAt(run({ step: null, total_steps: 10 }), now), null);
  assert.equal(stepSeconds(run({ latest: { "perf/step_seconds": { value: "NaN" } } })), null);
});

test("an alert of a rule on trial concerns nobody: neither Health, nor the badge, nor the list of what needs you", () => {
  const trial = alert({ trial: true });
  assert.equal(health(run({ alerts: [trial] })).say.key, "health.healthy");
  assert.equal(needsYou(run({ alerts: [trial] })), false);
  assert.equal(badge([trial]), 0);
  const both = health(run({ alerts: [trial, alert({ severity: "warning", title: "Grad norm spikes" })] }));
  assert.deepEqual([both.say, both.count], ["Grad norm spikes", 1]);
  const over = alert({ trial: true, state: "resolved", closed_because: "run_ended", resolved_at: "x" });
  assert.equal(health(run({ state: "stopped", ended_at: "x", alerts: [over] })).say.key, "health.healthy");
});

test("a run that is heard of and takes no step is stalled and needs a person; a paused or ended one is not", () => {
  const stalled = { since: "2026-01-01T00:00:00Z", limit_seconds: 600 };
  assert.equal(shownState(run({ stalled })), "stalled");
  assert.equal(needsYou(run({ stalled })), true);
  assert.deepEqual(
    ["paused", "lost", "finished"].map((state) => shownState(run({ state, stalled }))),
    ["paused", "lost", "finished"],
  );
  assert.equal(shownState(run({ stalled: null })), "running");
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

test("the first sign is the earliest onset of the open incident, or else of the last one; trial, information and pending do not count", () => {
  const of = (incident_id, onset_step, firing_at, more) => alert({ incident_id, onset_step, firing_at, ...more });
  const [early, late] = ["2026-04-02T19:00:00Z", "2026-04-02T20:00:00Z"];
  const alerts = [of("i1", 10, early), of("i2", 60, late), of("i2", 50, late), of("i2", 5, late, { trial: true })];
  alerts.push(of("i2", 6, late, { severity: "info" }), of("i2", 7, late, { state: "pending" }));
  assert.equal(firstSign({ alerts, incident: { incident_id: "i1" } }), 10);
  assert.equal(firstSign({ alerts, incident: null }), 50);
  assert.equal(firstSign({ alerts: [], incident: null }), null);
});

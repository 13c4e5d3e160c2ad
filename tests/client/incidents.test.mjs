import { test } from "node:test";
import assert from "node:assert/strict";
import {
  againAfter,
  alertsOf,
  checkpointsAround,
  choices,
  filtered,
  firedAt,
  firstOf,
  lookOf,
  noFilter,
  openAlerts,
  seriesOf,
  sorted,
  spanOf,
  speakerOf,
  wantsPerson,
} from "../../client/incidents.js";
import { alert, event, incident, run } from "./kit.mjs";

const ids = (list) => list.map((i) => i.incident_id ?? i.alert_id ?? i.checkpoint_id);

test("open incidents come first: what nobody has taken on, then the gravest, then the earliest; resolved ones the newest first", () => {
  const at = (hour) => `2026-04-02T${hour}:00:00Z`;
  const { open, resolved } = sorted([
    incident({ incident_id: "old", state: "resolved", resolved_at: at("08") }),
    incident({ incident_id: "taken", state: "acknowledged", opened_at: at("01") }),
    incident({ incident_id: "warn", severity: "warning", opened_at: at("02") }),
    incident({ incident_id: "late", opened_at: at("04") }),
    incident({ incident_id: "early", opened_at: at("03") }),
    incident({ incident_id: "new", state: "resolved", resolved_at: at("09") }),
  ]);
  assert.deepEqual(ids(open), ["early", "late", "warn", "taken"]);
  assert.deepEqual(ids(resolved), ["new", "old"]);
});

test("only one that is triggered wants a person", () => {
  assert.deepEqual(
    [incident({}), incident({ state: "acknowledged" }), incident({ state: "resolved" }), null, undefined].map(wantsPerson),
    [true, false, false, false, false],
  );
});

test("an incident's alerts: open ones first, the gravest on top, and equals always in the same order", () => {
  const listed = alertsOf({
    alerts: [
      alert({ alert_id: "over", state: "resolved" }),
      alert({ alert_id: "b", severity: "warning" }),
      alert({ alert_id: "a", severity: "warning" }),
      alert({ alert_id: "crit", onset_step: 9000 }),
    ],
  });
  assert.deepEqual(ids(listed), ["crit", "a", "b", "over"]);
});

test("the step a link leads to is that at which the worst fired; without alerts the first step of the incident", () => {
  const early = alert({ severity: "warning", onset_step: 4958, firing_step: 4977 });
  assert.equal(firedAt(incident({ alerts: [early, alert({})] })), 5024);
  assert.equal(firedAt(incident({ alerts: [alert({ firing_step: null })] })), 5000);
  assert.equal(firedAt(incident({ alerts: [], first_step: 12 })), 12);
});

test("the alert that a rule acted on speaks for all, else the gravest, else the earliest", () => {
  const alerts = [
    alert({ alert_id: "warn", severity: "warning", onset_step: 1 }),
    alert({ alert_id: "late", onset_step: 9 }),
    alert({ alert_id: "early", onset_step: 5 }),
  ];
  const counted = (id) => [event("countdown.started", { alert_id: id }), event("alert.firing", { alert_id: "early" })];
  assert.equal(speakerOf({ alerts }).alert_id, "early");
  assert.equal(speakerOf({ alerts, timeline: counted("late") }).alert_id, "late");
  assert.equal(speakerOf({ alerts, timeline: counted("gone") }).alert_id, "early");
  assert.equal(speakerOf({ alerts: [] }), null);
});

test("it lasts from the first sign to the present step, or to where its segment was left", () => {
  const segments = [
    { segment: 1, cause: "start", from_step: 0, last_step: 5044 },
    { segment: 2, cause: "rollback", from_step: 4750, last_step: null },
  ];
  const early = alert({ severity: "warning", onset_step: 4958 });
  assert.deepEqual(spanOf(incident({ alerts: [early, alert({})] }), run({ step: 4800, segments })), [4958, 5044]);
  const live = run({ step: 5030, segments: [{ segment: 1, cause: "start", from_step: 0, last_step: null }] });
  assert.deepEqual(spanOf(incident({}), live), [5000, 5030]);
  const over = alert({ state: "resolved", resolved_step: 5010 });
  assert.deepEqual(spanOf(incident({ alerts: [over] }), live), [5000, 5010]);
  assert.deepEqual(spanOf(incident({ alerts: [], first_step: null }), run({ step: null })), [0, 0]);
});

test("the charts show what happened, as much before it, and a checkpoint that is not far off; never a step below zero", () => {
  const live = (checkpoints) => run({ step: 5030, checkpoints });
  const sound = { checkpoint_id: "c", step: 4900, state: "sound" };
  const [from, to] = lookOf(incident({}), live([]));
  assert.ok(from === 4960 && to > 5030 && to < 5050);
  assert.equal(lookOf(incident({}), live([sound]))[0], 4895);
  assert.equal(lookOf(incident({}), live([{ ...sound, step: 10 }]))[0], 4960, "too far off");
  const early = lookOf(incident({ first_step: 3, alerts: [alert({ onset_step: 3, firing_step: 3 })] }), run({ step: 5 }));
  assert.equal(early[0], 0);
  assert.ok(early[1] > early[0]);
});

test("the checkpoints around it: all saved while it lasted, and the last two sound ones before the first sign", () => {
  const at = (step, state, more) => ({
    checkpoint_id: `c${step}`,
    step,
    state,
    segment: 1,
    saved_at: "2026-04-02T19:00:30Z",
    ...more,
  });
  const checkpoints = [
    at(4000, "sound"),
    at(4250, "sound"),
    at(4500, "sound"),
    at(4750, "unsound"),
    at(4900, "sound", { superseded: true }),
    at(5010, "unsound"),
    at(5020, "corrupt"),
    at(5025, "deleted"),
    at(9000, "sound"),
  ];
  assert.deepEqual(ids(checkpointsAround(incident({}), run({ step: 5030, checkpoints }))), ["c5020", "c5010", "c4500", "c4250"]);
  const later = at(5015, "sound", { saved_at: "2026-04-03T00:00:00Z" });
  const over = incident({ state: "resolved", resolved_at: "2026-04-02T20:00:00Z" });
  assert.deepEqual(ids(checkpointsAround(over, run({ step: 5030, checkpoints: [later] }))), [], "saved after it was over");
});

test("its curves are loss and gradient norm, then those of its alerts; what is judged by time has none", () => {
  const alerts = [alert({ series: "amp/loss_scale" }), alert({ series: "run/step" }), alert({})];
  assert.deepEqual(seriesOf({ alerts }, ["train/loss", "amp/loss_scale", "perf/step_seconds"]), [
    "train/loss",
    "train/grad_norm",
    "amp/loss_scale",
  ]);
});

test("each filter leaves out what it names, together they leave what passes all", () => {
  const all = [
    alert({ alert_id: "a" }),
    alert({ alert_id: "b", severity: "info", state: "resolved" }),
    alert({ alert_id: "c", trial: true, run_id: "r2", run_name: "two" }),
    alert({ alert_id: "d", rule_id: "spike", rule_name: "Spike" }),
  ];
  const left = (more) => ids(filtered(all, { ...noFilter(), ...more })).join("");
  assert.deepEqual(
    [{}, { severity: "info" }, { run: "r2" }, { rule: "spike" }, { kind: "trial" }, { kind: "paging" }, { state: "open" }].map(
      left,
    ),
    ["abcd", "b", "c", "d", "c", "abd", "acd"],
  );
  assert.equal(left({ severity: "critical", kind: "paging", state: "open" }), "ad");
  assert.deepEqual(choices(all), {
    runs: [
      { id: "r1", name: "one" },
      { id: "r2", name: "two" },
    ],
    rules: [
      { id: "loss-not-finite", name: "Loss is not finite" },
      { id: "spike", name: "Spike" },
    ],
  });
});

test("rollbacks are counted from one, whatever restarts lie between", () => {
  const segments = ["start", "restart", "rollback", "rollback"].map((cause, i) => ({ segment: i + 1, cause }));
  assert.equal(againAfter(alert({}), segments), null);
  assert.equal(againAfter(alert({ again_after: 3 }), segments), 1);
  assert.equal(againAfter(alert({ again_after: 4 }), segments), 2);
  assert.equal(againAfter(alert({ again_after: 2 })), 1);
});

test("a row tells the step and the time of the first sign together, and a title counts what is open", () => {
  const first = alert({ severity: "warning", onset_step: 4958, onset_at: "2026-04-02T18:59:00Z", state: "resolved" });
  const of = incident({ alerts: [alert({ onset_at: "2026-04-02T19:01:00Z" }), first] });
  assert.deepEqual(firstOf(of), { step: 4958, at: "2026-04-02T18:59:00Z" });
  assert.deepEqual(firstOf(incident({ alerts: [] })), { step: 5000, at: "2026-04-02T19:00:00Z" });
  assert.equal(openAlerts(of), 1);
});

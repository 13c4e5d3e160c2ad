import { test } from "node:test";
import assert from "node:assert/strict";
import { entries } from "../../client/history.js";
import en from "../../client/i18n/en.js";
import { alert, event } from "./kit.mjs";

const told = (...events) => entries(events, [alert({}), alert({ alert_id: "t", trial: true })]);
const one = (type, data, more) => told(event(type, data, more))[0];

test("the oldest comes first, and of one moment the one written first", () => {
  const [a, b, c] = [event("run.lost"), event("run.found"), event("run.paused")];
  const together = { ...c, at: b.at };
  assert.deepEqual(
    told(together, b, a).map((e) => e.id),
    [a, b, together].map((e) => String(e.event_id)),
  );
});

test("an alert speaks with its own sentence and in its severity's mark; one on trial quietly", () => {
  const fires = one("alert.firing", { alert_id: "a" });
  assert.deepEqual([fires.tone, fires.icon, fires.speaks, fires.alert.title], ["c", "firing", "sentence", "Loss is NaN"]);
  const trial = one("alert.firing", { alert_id: "t" });
  assert.deepEqual([trial.tone, trial.icon], ["n", "flask"]);
  const unknown = one("alert.firing", { alert_id: "gone", title: "Spike", severity: "warning", text: "spike" });
  assert.deepEqual([unknown.tone, unknown.alert.title], ["w", "Spike"], "an alert of another incident speaks from its event");
  assert.deepEqual([one("alert.resolved", { alert_id: "a" }).tone, one("alert.rewound", { alert_id: "a" }).tone], ["s", "n"]);
});

test("alerts that a rollback ends at one stroke are one entry, and others stay by themselves", () => {
  const rewound = (alert_id, at) => ({ ...event("alert.rewound", { alert_id, title: alert_id }), at });
  const [now, then] = ["2026-04-02T19:04:49.100Z", "2026-04-02T19:09:00Z"];
  const listed = told(rewound("a", now), rewound("b", "2026-04-02T19:04:49.900Z"), rewound("c", then));
  assert.deepEqual(
    listed.map((e) => [e.title.key, e.alerts.map((a) => a.title)]),
    [
      ["history.alert.rewound.many", ["Loss is NaN", "b"]],
      ["history.alert.rewound", ["c"]],
    ],
  );
  assert.equal(listed[0].title.values.count, 2);
});

test("of a checkpoint its verdict is told, not each step of its writing", () => {
  const sick = one("checkpoint.changed", { state: "unsound", reason: "saved 42 steps after the first sign" }, { step: 5000 });
  assert.deepEqual(
    [sick.title.key, sick.title.values.step, sick.text],
    ["history.checkpoint.unsound", 5000, "saved 42 steps after the first sign"],
  );
  for (const state of ["writing", "complete", "deleted"]) assert.equal(one("checkpoint.changed", { state }), undefined, state);
});

test("a countdown that was carried out is told by its command, a dry run by itself", () => {
  assert.equal(one("countdown.ended", { kind: "stop", state: "due" }), undefined);
  assert.equal(one("countdown.ended", { kind: "stop", state: "due", dry_run: true }).title.key, "history.countdown.due.dry");
  assert.equal(one("countdown.ended", { kind: "stop", state: "cancelled" }).title.key, "history.countdown.cancelled");
  const started = one("countdown.started", { kind: "rollback", target_step: 4750, total_seconds: 60, dry_run: true });
  assert.deepEqual([started.title.key, started.title.values.step], ["history.countdown.rollback.dry", 4750]);
});

test("of a command its order and its end are told", () => {
  const data = { kind: "rollback", target_step: 4750, issued_by: "mlops" };
  const steps = told(...["queued", "delivered", "running", "succeeded"].map((state) => event(`command.${state}`, data)));
  assert.deepEqual(
    steps.map((e) => [e.title.key, e.command.rollback.target_step, e.speaks]),
    [
      ["history.command.queued", 4750, "author"],
      ["history.command.succeeded", 4750, ""],
    ],
  );
  assert.equal(one("command.rejected", data).tone, "c");
  assert.equal(one("command.succeeded", { kind: "stop", target_step: null }).command.rollback, null);
});

test("starts are not told, restarts and rollbacks are; a check of a resume only when it found something", () => {
  assert.equal(one("run.segment_started", { cause: "start", from_step: 0 }), undefined);
  const back = one("run.segment_started", { cause: "rollback", from_step: 4750 }, { segment: 3 });
  assert.deepEqual(back.title, { key: "history.segment.rollback", values: { segment: 3, step: 4750 } });
  assert.equal(one("run.resume_checked", { findings: [] }), undefined);
  assert.equal(one("run.resume_checked", { findings: ["scaler not restored"] }).text, "scaler not restored");
});

test("what the server has written in Chinese too is told in each language, and in English alone where it has not", () => {
  const both = { en: "stopped by command: train/loss is 20", zh: "\u5df2\u6309\u6307\u4ee4\u505c\u6b62" };
  const cases = [
    ["run.stopped", "reason"],
    ["command.failed", "reason"],
    ["checkpoint.changed", "reason"],
    ["checkpoint.save_failed", "reason"],
    ["countdown.ended", "outcome"],
    ["rule.failed", "text"],
    ["rule.noted", "text"],
    ["audit.looked", "text"],
  ];
  for (const [type, name] of cases) {
    const facts = { kind: "stop", state: type.startsWith("checkpoint") ? "corrupt" : "withdrawn", [name]: both.en };
    const told = one(type, { ...facts, zh: { [name]: both.zh } });
    assert.deepEqual([told.text, told.texts], [both.en, both], type);
    for (const zh of [undefined, {}, { [name]: both.en }]) assert.equal(one(type, { ...facts, zh }).texts, null, type);
  }
});

test("who took it on and what was noted", () => {
  const taken = one("incident.acknowledged", { by: "mlops", note: "looking" });
  assert.deepEqual([taken.title.values.who, taken.text], ["mlops", "looking"]);
});

test("what nobody has words for yet is shown by its name and never hides the rest", () => {
  assert.deepEqual(one("audit.looked", { text: "someone looked" }).title, { key: "audit.looked" });
  assert.equal(told(event("alert.unheard_of"), event("run.lost")).length, 2);
});

test("every entry that can come has its words", () => {
  const types = [
    "alert.firing",
    "alert.resolved",
    "alert.rewound",
    "checkpoint.save_failed",
    "incident.resolved",
    "incident.acknowledged",
  ];
  const all = [
    ...types.map((type) => event(type, { alert_id: "a", by: "x" })),
    ...["sound", "unsound", "corrupt"].map((state) => event("checkpoint.changed", { state })),
    ...["queued", "succeeded", "failed", "unconfirmed", "rejected", "cancelled", "expired", "superseded"].map((state) =>
      event(`command.${state}`, { kind: "stop" }),
    ),
    ...["started", "lost", "found", "lives", "finished", "failed", "stopped", "paused", "resumed"].map((what) =>
      event(`run.${what}`),
    ),
    ...[false, true].flatMap((dry_run) => [
      ...["rollback", "stop"].map((kind) => event("countdown.started", { kind, dry_run })),
      ...["cancelled", "withdrawn", "overtaken"].map((state) => event("countdown.ended", { kind: "stop", state, dry_run })),
    ]),
    event("countdown.ended", { kind: "stop", state: "due", dry_run: true }),
  ];
  const listed = told(...all);
  assert.equal(listed.length, all.length);
  for (const { title } of listed) assert.equal(typeof en[title.key], "string", title.key);
});

test("what is noted of a rule and why it failed have titles of their own", () => {
  const data = { rule_name: "Mine", series: "a/b", what: "never_seen", text: "said" };
  const said = (type, more = {}) => one(type, { ...data, ...more }, { step: 200 });
  const unseen = said("rule.noted");
  assert.deepEqual([unseen.title.key, unseen.text.key], ["history.rule.never_seen", "history.rule.never_seen.text"]);
  assert.deepEqual(unseen.text.values, { rule: "Mine", series: "a/b", step: 200 });
  assert.deepEqual(
    [said("rule.noted", { what: "else" }).title.key, said("rule.noted", { what: "else" }).text],
    ["history.rule.noted", "said"],
  );
  const failed = said("rule.failed");
  assert.deepEqual([failed.tone, failed.title.key, failed.text], ["w", "history.rule.failed", "said"]);
});

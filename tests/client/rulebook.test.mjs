import { test } from "node:test";
import assert from "node:assert/strict";
import { EMPTY, NEW, counts, current, flawsOf, step, unsaved } from "../../client/rulebook.js";

const DETECTORS = [
  {
    kind: "spike",
    meaning: "",
    companions: [],
    across_ranks: false,
    settings: [{ name: "times", default: 3, minimum: 1, maximum: 9, whole: false, meaning: "" }],
  },
];
const rule = (id, over = {}) => ({
  rule_id: id,
  name: id,
  title: id,
  series: "train/loss",
  detector: "spike",
  settings: {},
  for_points: 1,
  keep_firing_for_points: 10,
  severity: "warning",
  enabled: true,
  action: { kind: "notify", countdown_seconds: 60, data: "skip", max_grad_norm: null, dry_run: false },
  version: 1,
  reason: "",
  scope: { kind: "all", name: "" },
  trial: false,
  edited: false,
  is_default: true,
  failure: null,
  never_seen: [],
  open_alerts: 0,
  ...over,
});
const walk = (book, ...inputs) => inputs.reduce(step, book);
const rules = (...all) => ({ kind: "rules", rules: all, detectors: DETECTORS });
const edit = (field, value) => ({ kind: "edit", field, value });
const start = (...more) => walk(EMPTY, rules(rule("a"), rule("b")), ...more);

test("the first rule is open where none was asked for, and the one asked for stays", () => {
  assert.equal(start().open, "a");
  assert.equal(walk({ ...EMPTY, open: "b" }, rules(rule("a"), rule("b"))).open, "b");
  assert.equal(walk({ ...EMPTY, open: "gone" }, rules(rule("a"))).open, "a");
});

test("typing makes a draft, and typing it back leaves none", () => {
  const typed = start(edit("for_points", "5"));
  assert.ok(unsaved(typed) && current(typed).edited);
  assert.ok(!unsaved(step(typed, edit("for_points", "1"))));
});

test("a draft stays with its rule while another is open", () => {
  const there = start(edit("for_points", "5"), { kind: "select", id: "b" });
  assert.equal(current(there).draft.for_points, "1");
  assert.equal(current(step(there, { kind: "select", id: "a" })).draft.for_points, "5");
});

test("what is saved elsewhere shows at once where nothing was typed", () => {
  const book = start(rules(rule("a", { for_points: 7, version: 2 }), rule("b")));
  assert.equal(current(book).draft.for_points, "7");
  assert.equal(current(book).theirs, null);
});

test("what is saved elsewhere under a draft is a conflict that names the fields, and the draft stays", () => {
  const book = start(edit("for_points", "5"), rules(rule("a", { severity: "critical", version: 2 }), rule("b")));
  const now = current(book);
  assert.equal(now.draft.for_points, "5");
  assert.equal(now.draft.severity, "warning");
  assert.deepEqual([now.theirs.rule.version, now.theirs.fields], [2, ["severity"]]);
});

test("a conflict ends by taking theirs or by keeping mine on top of it", () => {
  const book = start(edit("for_points", "5"), rules(rule("a", { severity: "critical", version: 2 }), rule("b")));
  const theirs = current(step(book, { kind: "discard" })),
    mine = current(step(book, { kind: "mine" }));
  assert.deepEqual([theirs.edited, theirs.draft.severity, theirs.theirs], [false, "critical", null]);
  assert.deepEqual([mine.edited, mine.draft.severity, mine.theirs, mine.base.version], [true, "warning", null, 2]);
});

test("a draft that says what somebody else has saved is no draft any more", () => {
  assert.ok(!unsaved(start(edit("for_points", "5"), rules(rule("a", { for_points: 5, version: 2 }), rule("b")))));
});

test("counts that move do not touch a draft and are no conflict", () => {
  const now = current(start(edit("for_points", "5"), rules(rule("a", { open_alerts: 3 }), rule("b"))));
  assert.deepEqual([now.draft.for_points, now.theirs, now.rule.open_alerts], ["5", null, 3]);
});

test("switching a rule off keeps what was typed and is no conflict with it", () => {
  const off = rule("a", { enabled: false, version: 2 });
  const now = current(start(edit("for_points", "5"), { kind: "switched", rule: off }));
  assert.deepEqual([now.draft.for_points, now.theirs, now.base.version, now.rule.enabled], ["5", null, 2, false]);
});

test("a switch stays where the hand has put it until the server answers, whatever is read or saved meanwhile", () => {
  const put = start(edit("for_points", "5"), { kind: "switching", id: "a", enabled: false });
  assert.deepEqual([current(put).rule.enabled, current(put).draft.for_points, current(put).theirs], [false, "5", null]);
  for (const older of [rules(rule("a"), rule("b")), { kind: "saved", rule: rule("a") }])
    assert.equal(current(step(put, older)).rule.enabled, false);
  assert.deepEqual(step(put, { kind: "switching", id: "gone", enabled: true }), put);
});

test("a switch that the server refuses goes back, and one that it has taken follows the list again", () => {
  const put = start({ kind: "switching", id: "a", enabled: false });
  assert.equal(current(step(put, { kind: "unswitched", id: "a", enabled: false })).rule.enabled, true);
  const taken = step(put, { kind: "switched", rule: rule("a", { enabled: false, version: 2 }) });
  assert.equal(current(step(taken, rules(rule("a", { version: 3 }), rule("b")))).rule.enabled, true);
});

test("a switch put back before the first answer has come stays where it was put last", () => {
  const twice = start({ kind: "switching", id: "a", enabled: false }, { kind: "switching", id: "a", enabled: true });
  const first = step(twice, { kind: "switched", rule: rule("a", { enabled: false, version: 2 }) });
  assert.equal(current(first).rule.enabled, true);
  assert.equal(current(step(twice, { kind: "unswitched", id: "a", enabled: false })).rule.enabled, true);
});

test("saving ends the draft and shows the answer", () => {
  const book = start(edit("for_points", "5"), { kind: "saved", rule: rule("a", { for_points: 5, version: 2 }) });
  assert.ok(!unsaved(book));
  assert.equal(current(book).rule.version, 2);
});

test("a rule deleted elsewhere under a draft is told, and its draft stays until it is discarded", () => {
  const book = start(edit("for_points", "5"), rules(rule("b")));
  assert.deepEqual([current(book).gone, current(book).draft.for_points], [true, "5"]);
  const after = step(book, { kind: "discard" });
  assert.deepEqual([after.open, unsaved(after)], ["b", false]);
});

test("a rule deleted elsewhere without a draft gives way to the first", () => {
  assert.equal(start(rules(rule("b"))).open, "b");
});

test("a new rule counts as unsaved from its first letter, is created and takes its place", () => {
  const fresh = start({ kind: "select", id: NEW });
  assert.ok(current(fresh).isNew && !unsaved(fresh));
  const typed = step(fresh, edit("name", "Mine"));
  assert.ok(unsaved(typed));
  assert.ok(unsaved(step(typed, rules(rule("a"), rule("b")))), "the list comes again");
  const made = step(typed, { kind: "saved", rule: rule("c") });
  assert.deepEqual([made.open, made.rules.map((r) => r.rule_id), unsaved(made)], ["c", ["a", "b", "c"], false]);
  assert.equal(step(typed, { kind: "discard" }).open, "a");
});

test("deleting opens another", () => {
  const book = start({ kind: "deleted", id: "a" });
  assert.deepEqual([book.open, book.rules.length], ["b", 1]);
  assert.equal(current(step(book, { kind: "deleted", id: "b" })), null);
});

test("every input leaves a book that can be shown, in any order", () => {
  const inputs = [
    rules(rule("a"), rule("b")),
    rules(rule("b", { version: 9, for_points: 3 })),
    rules(),
    { kind: "select", id: NEW },
    { kind: "select", id: "b" },
    edit("for_points", "5"),
    edit("detector", "spike"),
    { kind: "discard" },
    { kind: "mine" },
    { kind: "saved", rule: rule("a", { version: 4 }) },
    { kind: "switched", rule: rule("b", { version: 5, enabled: false }) },
    { kind: "deleted", id: "a" },
  ];
  let seed = 7;
  const pick = () => inputs[(seed = (seed * 1103515245 + 12345) % 2147483648) % inputs.length];
  let book = EMPTY;
  for (let i = 0; i < 3000; i += 1) {
    book = step(book, pick());
    const now = current(book);
    if (now === null) assert.ok((book.rules ?? []).length === 0 || book.rules === null);
    else assert.ok(now.rule !== null || now.isNew || now.gone);
    if (now && !now.edited) assert.equal(now.theirs, null);
  }
});

test("the counts say how many rules there are and how many are on", () => {
  assert.deepEqual(counts([rule("a"), rule("b", { enabled: false })]), { count: 2, on: 1 });
});

test("what the server finds wrong stands at its field, and what it says of all settings at the first of them", () => {
  const errors = [
    { field: "for_points", message: "must lie between 1 and 100000" },
    { field: "settings", message: "must give above or below" },
  ];
  assert.deepEqual(
    flawsOf(errors, DETECTORS, "spike").map((flaw) => [flaw.field, flaw.text]),
    [
      ["for_points", "must lie between 1 and 100000"],
      ["settings.times", "must give above or below"],
    ],
  );
});

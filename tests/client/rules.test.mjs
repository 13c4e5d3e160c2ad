import { test } from "node:test";
import assert from "node:assert/strict";
import { blank, body, changed, changes, draftOf, edits, fields, numberIn, problems } from "../../client/rules.js";
import { pieces } from "../../client/sentences.js";

const setting = (name, value, minimum, maximum, whole = false) => ({
  name,
  default: value,
  minimum,
  maximum,
  whole,
  meaning: name,
});
const DETECTORS = [
  {
    kind: "threshold",
    meaning: "",
    companions: [],
    across_ranks: false,
    settings: [setting("above", null, -1e9, 1e9), setting("below", null, -1e9, 1e9)],
  },
  {
    kind: "spike",
    meaning: "",
    companions: [],
    across_ranks: false,
    settings: [setting("times", 3, 1, 1e6), setting("history", 32, 2, 128, true)],
  },
  { kind: "zero", meaning: "", companions: ["train/grad_norm"], across_ranks: false, settings: [] },
  { kind: "lost", meaning: "", companions: [], across_ranks: false, settings: [setting("seconds", 30, 1, 1e6)] },
];
const RULE = {
  rule_id: "grad-norm-spike",
  name: "Gradient norm far above its recent past",
  title: "Grad norm spikes",
  series: "train/grad_norm",
  detector: "spike",
  settings: { times: 3 },
  for_points: 1,
  keep_firing_for_points: 10,
  severity: "warning",
  enabled: true,
  action: { kind: "notify", countdown_seconds: 60, data: "skip", max_grad_norm: null, dry_run: false },
  version: 3,
  reason: "The earliest sign.",
  scope: { kind: "all", name: "" },
  trial: false,
  edited: false,
  is_default: true,
  failure: null,
  never_seen: [],
  open_alerts: 0,
};
const draft = (over = {}) => ({ ...draftOf(RULE, DETECTORS), ...over });
const wrong = (over) => problems(draft(over), DETECTORS).map((w) => [w.field, w.key]);

test("a draft of a saved rule says what is saved, its settings filled up, and has nothing wrong or changed", () => {
  assert.equal(draft()["settings.times"], "3");
  assert.equal(draft()["settings.history"], "32");
  assert.deepEqual(problems(draft(), DETECTORS), []);
  assert.deepEqual(edits(draft(), RULE, DETECTORS), []);
});

test("a number is compared as a number and not as it was typed", () => {
  assert.deepEqual(edits(draft({ "settings.times": "3.0", for_points: " 1 " }), RULE, DETECTORS), []);
  assert.deepEqual(edits(draft({ "settings.times": "3.5" }), RULE, DETECTORS), ["settings.times"]);
  assert.ok(Number.isNaN(numberIn("  ")));
  assert.ok(Number.isNaN(numberIn("1,5")));
});

test("what is wrong is named by its field, in the order of the form", () => {
  const cases = [
    [{ for_points: "0" }, [["for_points", "wrong.least"]]],
    [{ for_points: "1.5" }, [["for_points", "wrong.whole"]]],
    [{ for_points: "" }, [["for_points", "wrong.number"]]],
    [{ keep_firing_for_points: "100001" }, [["keep_firing_for_points", "wrong.most"]]],
    [{ "settings.times": "0.5" }, [["settings.times", "wrong.least"]]],
    [{ "settings.times": "NaN" }, [["settings.times", "wrong.number"]]],
    [{ "settings.times": "Infinity" }, [["settings.times", "wrong.number"]]],
    [{ "settings.history": "3.5" }, [["settings.history", "wrong.whole"]]],
    [{ "settings.times": "" }, []], // its default
    [{ series: "Loss" }, [["series", "wrong.series"]]],
    [{ series: "train/loss*" }, []],
    [{ series: "" }, [["series", "wrong.series"]]],
    [{ detector: "zero", series: "train/*" }, [["series", "wrong.series.one"]]],
    [{ name: " " }, [["name", "wrong.empty"]]],
    [{ title: " " }, []], // the name
    [{ title: "x".repeat(201) }, [["title", "wrong.long"]]],
    [{ reason: "x".repeat(4001) }, [["reason", "wrong.long"]]],
    [{ "scope.kind": "project" }, [["scope.name", "wrong.scope.project"]]],
    [{ severity: "info", "action.kind": "stop" }, [["severity", "wrong.severity"]]],
    [{ "action.kind": "stop", "action.countdown_seconds": "-1" }, [["action.countdown_seconds", "wrong.least"]]],
    [{ "action.kind": "stop", "action.countdown_seconds": "86401" }, [["action.countdown_seconds", "wrong.most"]]],
    [{ "action.kind": "rollback", "action.max_grad_norm": "0" }, [["action.max_grad_norm", "wrong.positive"]]],
    [{ "action.kind": "notify", "action.countdown_seconds": "nonsense" }, []], // does not count
  ];
  for (const [over, expected] of cases) assert.deepEqual(wrong(over), expected, JSON.stringify(over));
});

test("a threshold needs one of its sides, and either will do", () => {
  const one = (over) => problems(changed(draft(over), "detector", "threshold", DETECTORS), DETECTORS).map((w) => w.field);
  assert.deepEqual(one({}), ["settings.above"]);
  assert.deepEqual(one({ "settings.below": "1" }), []);
  assert.deepEqual(one({ "settings.above": "10", "settings.below": "1" }), []);
});

test("the fields are those that count: options of an action, the name of a scope", () => {
  assert.ok(!fields(draft(), DETECTORS).includes("action.countdown_seconds"));
  assert.deepEqual(
    fields(draft({ "action.kind": "rollback" }), DETECTORS).filter((f) => f.startsWith("action.")),
    ["action.kind", "action.countdown_seconds", "action.data", "action.max_grad_norm", "action.dry_run"],
  );
  assert.ok(fields(draft({ "scope.kind": "run" }), DETECTORS).includes("scope.name"));
});

test("points count for nothing where silence is judged", () => {
  const silent = changed(draft(), "detector", "lost", DETECTORS);
  assert.ok(!fields(silent, DETECTORS).includes("for_points"));
});

test("another condition brings its own settings, and what was typed for the first comes back with it", () => {
  const typed = changed(draft(), "settings.times", "5", DETECTORS);
  const there = changed(typed, "detector", "threshold", DETECTORS),
    back = changed(there, "detector", "spike", DETECTORS);
  assert.deepEqual([there["settings.above"], there["settings.below"]], ["", ""]);
  assert.equal(back["settings.times"], "5");
});

test("a condition on silence goes by its own series, and leaving it leaves that", () => {
  const silent = changed(draft(), "detector", "lost", DETECTORS);
  assert.equal(silent.series, "run/heartbeat");
  assert.deepEqual(problems(silent, DETECTORS), []);
  assert.equal(changed(silent, "detector", "spike", DETECTORS).series, "train/loss");
});

test("a change sends what differs with the version it was made on, and a setting taken out as null", () => {
  assert.deepEqual(changes(draft({ for_points: "5" }), RULE, DETECTORS, false), { version: 3, for_points: 5 });
  assert.deepEqual(changes(draft(), RULE, DETECTORS, true), { version: 3, trial: true });
  const both = { ...RULE, detector: "threshold", settings: { above: 10, below: 1 } };
  const one = { ...draftOf(both, DETECTORS), "settings.below": "" };
  assert.deepEqual(changes(one, both, DETECTORS, false), { version: 3, settings: { above: 10, below: null } });
  const other = changed(draft(), "detector", "zero", DETECTORS);
  assert.deepEqual(changes(other, RULE, DETECTORS, false).settings, { times: null });
});

test("the body of a new rule is whole, with numbers, and an empty limit as null", () => {
  const made = {
    ...blank(DETECTORS),
    name: " Mine ",
    title: "Mine",
    "action.kind": "rollback",
    "action.max_grad_norm": "0.5",
    "action.dry_run": "true",
  };
  assert.deepEqual(body(made, DETECTORS, { trial: true }), {
    name: "Mine",
    title: "Mine",
    series: "train/loss",
    detector: "spike",
    settings: { times: 3, history: 32 },
    for_points: 1,
    keep_firing_for_points: 10,
    severity: "warning",
    action: { kind: "rollback", countdown_seconds: 60, data: "skip", max_grad_norm: 0.5, dry_run: true },
    scope: { kind: "all", name: "" },
    reason: "",
    trial: true,
    enabled: true,
  });
  assert.equal(body(draft(), DETECTORS).action.max_grad_norm, null);
  assert.equal(body(draft({ title: "" }), DETECTORS).title, draft().name);
});

test("what an unused field holds is never sent as something that is no number", () => {
  const sent = JSON.stringify(body(draft({ "action.countdown_seconds": "soon" }), DETECTORS));
  assert.ok(!sent.includes('"countdown_seconds":null'), sent);
});

test("a sentence takes the first way of saying it whose places are filled", () => {
  const place = (text) => ({ text, field: text });
  const words = "over {a} or under {b}|over {a}|under {b}";
  const said = (places) =>
    pieces(words, places)
      ?.map((p) => p.text)
      .join("") ?? null;
  assert.equal(said({ a: place("1"), b: place("2") }), "over 1 or under 2");
  assert.equal(said({ a: null, b: place("2") }), "under 2");
  assert.equal(said({ a: null, b: null }), null);
  assert.deepEqual(pieces("x {a}", { a: { parts: [place("1"), { text: " y" }] } }), [{ text: "x " }, place("1"), { text: " y" }]);
});

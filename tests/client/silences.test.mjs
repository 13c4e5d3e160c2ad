import { test } from "node:test";
import assert from "node:assert/strict";
import { covers, holds, lacking, proposed, silenceBody, sorted } from "../../client/silences.js";
import { MOST_HOURS, endOfTerm, hoursOf, lackingTerm, proposedTerm, termBody } from "../../client/terms.js";
import { silence } from "./kit.mjs";

const NOON = new Date("2026-04-02T12:00:00Z");

test("a silence holds until its end, or until somebody ends it", () => {
  assert.equal(holds(silence({}), NOON), true);
  assert.equal(holds(silence({ ends_at: NOON.toISOString() }), NOON), false);
  assert.equal(holds(silence({ ended_at: "2026-04-02T11:00:00Z" }), NOON), false);
});

test("active ones by their end, past ones the newest first", () => {
  const { active, past } = sorted(
    [
      silence({ silence_id: "late", ends_at: "2026-04-03T00:00:00Z" }),
      silence({ silence_id: "soon" }),
      silence({ silence_id: "old", ends_at: "2026-04-01T00:00:00Z" }),
      silence({ silence_id: "cut", ended_at: "2026-04-02T11:00:00Z" }),
    ],
    NOON,
  );
  assert.deepEqual(
    [active, past].map((list) => list.map((s) => s.silence_id)),
    [
      ["soon", "late"],
      ["cut", "old"],
    ],
  );
});

test("what it covers is one sentence: a rule, a run, a project, or a rule in one of them", () => {
  const key = (more) => covers(silence({ run_id: null, run_name: null, ...more })).key;
  assert.deepEqual(
    [
      { run_id: "r" },
      { project: "p" },
      { rule_id: "x" },
      { rule_id: "x", run_id: "r" },
      { rule_id: "x", project: "p" },
      { run_id: "r", project: "p" },
      {},
    ].map(key),
    [
      "silence.covers.run",
      "silence.covers.project",
      "silence.covers.rule",
      "silence.covers.rule.run",
      "silence.covers.rule.project",
      "silence.covers.run",
      "silence.covers.all",
    ],
  );
  assert.deepEqual(covers(silence({ run_name: null })).values.run, "r1", "a run without a name by its id");
});

test("hours are one of the spans or a number by hand, more than none and at most thirty days", () => {
  const by = (other) => hoursOf({ ...proposedTerm(), hours: "other", other });
  assert.equal(hoursOf(proposedTerm()), 4);
  assert.deepEqual([by("0.5"), by("0,5"), by(" 720 "), by(".25")], [0.5, 0.5, MOST_HOURS, 0.25]);
  for (const bad of ["", "0", "-1", "721", "1e2", "Infinity", "NaN", "4h"]) assert.ok(Number.isNaN(by(bad)), bad);
  assert.equal(endOfTerm({ ...proposedTerm(), hours: "24" }, NOON).toISOString(), "2026-04-03T12:00:00.000Z");
  assert.equal(endOfTerm({ ...proposedTerm(), hours: "other", other: "x" }, NOON), null);
});

test("without what it is of, an end or a reason a silence is not sent", () => {
  const ready = { ...proposed({ run: "r1" }), reason: " maintenance " };
  assert.equal(lacking(ready), null);
  assert.equal(lacking({ ...ready, run: "" }), "lacks.silence");
  assert.equal(lacking({ ...ready, hours: "other", other: "0" }), "lacks.hours");
  assert.equal(lackingTerm({ ...ready, reason: "  " }), "lacks.reason");
  assert.deepEqual(silenceBody(ready), { run_id: "r1", hours: 4, reason: "maintenance" });
  assert.deepEqual(silenceBody({ ...ready, run: "", project: "p", rule: "x" }), {
    project: "p",
    rule_id: "x",
    hours: 4,
    reason: "maintenance",
  });
  assert.deepEqual(termBody(ready), { hours: 4, reason: "maintenance" });
});

import { test } from "node:test";
import assert from "node:assert/strict";
import { standing } from "../../client/checkpoints.js";
import { counted, ranges } from "../../client/samples.js";
import { differences, resumeChecks, resumeTrouble } from "../../client/segments.js";

const segment = (n, attributes = {}) => ({ segment: n, from_step: 10 * n, attributes });
const keys = (run, n) => differences(run, run.segments[n]).map((said) => said.key);

test("a segment says what it does otherwise than the one before it, and only that", () => {
  const segments = [
    segment(0, { max_grad_norm: 1 }),
    segment(1, { max_grad_norm: 1, data: "skip", skip_from_step: 12, skip_to_step: 20 }),
    segment(2, {
      max_grad_norm: 0.5,
      data: "exclude",
      excluded_samples: 3,
      excluded_documents: "a, b",
      learning_rate_factor: 0.5,
    }),
    segment(3, { max_grad_norm: 0, learning_rate_factor: 0.5 }),
  ];
  const run = { attributes: { max_grad_norm: 1 }, segments };
  assert.deepEqual(keys(run, 0), []);
  assert.deepEqual(differences(run, segments[1]), [{ key: "segment.skipped", values: { from: 12, to: 20 } }]);
  assert.deepEqual(keys(run, 2), ["order.data.exclude.documents", "order.clip", "order.factor"]);
  assert.deepEqual(keys(run, 3), ["segment.unclipped"]);
  const few = { segments: [segment(0, { data: "exclude", excluded_samples: 3, excluded_documents: "" })] };
  assert.deepEqual(keys(few, 0), ["order.data.exclude.samples"]);
});

test("a factor that was taken back is said, whether it came with the segment before or was set in it", () => {
  const said = (run) => differences(run, run.segments[1]);
  const back = [{ key: "order.factor", values: { factor: "1" } }];
  assert.deepEqual(said({ segments: [segment(0, { learning_rate_factor: 0.5 }), segment(1)] }), back);
  const set = { kind: "set_learning_rate_factor", state: "succeeded", segment: 0, value: 0.5 };
  assert.deepEqual(said({ segments: [segment(0), segment(1)], commands: [set] }), back);
  assert.deepEqual(said({ segments: [segment(0), segment(1, { learning_rate_factor: 0.5 })], commands: [set] }), []);
});

test("a resume check speaks for its segment; findings of a segment that was left trouble nobody", () => {
  const checked = (n, resume_findings) => ({ segment: n, resume_findings });
  const run = { segment: 3, segments: [checked(1, null), checked(2, ["scaler not restored"]), checked(3, [])] };
  assert.deepEqual(
    [...resumeChecks(run)],
    [
      [2, ["scaler not restored"]],
      [3, []],
    ],
  );
  assert.equal(resumeTrouble(run), null);
  assert.deepEqual(resumeTrouble({ ...run, segment: 2 }), ["scaler not restored"]);
  assert.equal(resumeTrouble({ segment: 1, segments: [{ segment: 1 }] }), null);
});

test("a checkpoint says why it is kept", () => {
  const run = {
    ended_at: null,
    proposal: { target: "a" },
    command: { rollback: { checkpoint_id: "b" } },
    segments: [{ segment: 1, checkpoint_id: "c" }],
    commands: [
      { kind: "save", state: "succeeded", segment: 1, step: 7 },
      { kind: "save", state: "failed", segment: 1, step: 8 },
    ],
  };
  const of = (checkpoint_id, step = 1, more = {}) => standing({ ...run, ...more }, { checkpoint_id, segment: 1, step });
  assert.deepEqual([of("a"), of("b"), of("c"), of("d", 7), of("d", 8)], [["proposed"], ["target"], ["parent"], ["by_hand"], []]);
  assert.deepEqual(of("a", 1, { ended_at: "2026-01-01T00:00:00Z" }), []);
});

test("sample ids that follow each other are a range, in the order in which they went in", () => {
  assert.deepEqual(ranges([17, 40, 41, 42, 9, 10]), { text: "17, 40\u201342, 9, 10", more: 0 });
  const many = ranges(Array.from({ length: 200 }, (_, i) => 2 * i));
  assert.equal(many.text.split(", ").length + many.more, 200);
  assert.deepEqual(counted(["a", "b", "a"]), [
    { document: "a", samples: 2 },
    { document: "b", samples: 1 },
  ]);
});

import { test } from "node:test";
import assert from "node:assert/strict";
import { choices, lacking, modes, orderBody, orderSentence, parseSamples, positive, proposed } from "../../client/rollbacks.js";
import { run } from "./kit.mjs";

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
    [4750, 280, 1204, ["order.data.skip", "order.clip", "order.factor.same"]],
  );
  assert.equal(orderSentence({ step: 1, lost: 1, seconds: null, data: "replay", clip: null }).lost.key, "order.lost.one");
});

test("the order says what is left out, in how many, and the learning rate", () => {
  const said = (more) =>
    orderSentence({ step: 1, lost: 2, seconds: null, data: "exclude", clip: null, ...more }).rest.map((r) => r.key);
  assert.deepEqual(said({ documents: 1, factor: 0.5 }), ["order.data.exclude.document", "order.clip.same", "order.factor"]);
  assert.equal(said({ samples: 1 })[0], "order.data.exclude.sample");
  assert.equal(said({ documents: 2, samples: 3 })[0], "order.data.exclude.documents.samples");
});

test("sample ids are read as people write them, and nothing else is", () => {
  assert.deepEqual(parseSamples("17, 40-44").ids, [17, 40, 41, 42, 43, 44]);
  assert.deepEqual(parseSamples(" 3\uff0c1\u30012 2 ").ids, [1, 2, 3]);
  assert.deepEqual(parseSamples("").ids, []);
  for (const bad of ["x", "-1", "4-2", "1.5", "1e3", "17,,4a"]) assert.ok(parseSamples(bad).bad !== null, bad);
  assert.equal(parseSamples("0-9999").ids.length, 10_000);
  assert.equal(parseSamples("0-10000").many, true);
  assert.equal(parseSamples("0-999999999999999").many, true); // at once, not after counting
});

test("a number above zero, nothing, or none", () => {
  assert.deepEqual([positive("1.5"), positive("0,5"), positive(" ")], [1.5, 0.5, null]);
  for (const bad of ["0", "-1", "x", "Infinity", "NaN", "1e999"]) assert.ok(Number.isNaN(positive(bad)), bad);
});

const ready = (more) =>
  run({
    step: 30,
    checkpoints: [{ checkpoint_id: "c3", step: 20, state: "sound" }],
    data_modes: ["replay", "skip", "exclude"],
    attributes: { max_grad_norm: 0 },
    ...more,
  });

test("a mode that the run cannot do has its reason; an older agent replays and skips", () => {
  const said = modes(run({ data_modes: ["replay"], data_modes_because: "the loop draws its own batches" }));
  assert.deepEqual(
    said.map((m) => [m.mode, m.enabled, m.why]),
    [
      ["replay", true, ""],
      ["skip", false, "the loop draws its own batches"],
      ["exclude", false, "the loop draws its own batches"],
    ],
  );
  assert.deepEqual(
    modes(run({})).map((m) => m.enabled),
    [true, true, false],
  );
});

test("clipping is proposed only where it is known to be off; the learning rate stays as it is", () => {
  assert.deepEqual([proposed(ready({})).clip, proposed(ready({ attributes: {} })).clip], ["1.0", ""]);
  assert.equal(proposed(ready({ attributes: { max_grad_norm: 2 } })).clip, "");
  assert.deepEqual(
    [proposed(ready({})).factor, orderBody(ready({}), proposed(ready({}))).learning_rate_factor],
    ["1", undefined],
  );
  const lowered = ready({ segments: [{ segment: 1, attributes: { learning_rate_factor: 0.1 } }] });
  assert.deepEqual([proposed(lowered).factor, proposed(lowered).other], ["other", "0.1"]);
  assert.equal(orderBody(lowered, proposed(lowered)).learning_rate_factor, 0.1); // said and sent, although it holds
  assert.equal(orderBody(lowered, { ...proposed(lowered), factor: "1" }).learning_rate_factor, 1);
});

test("a factor that was taken back is proposed as 1, and the one chosen then is sent", () => {
  const segments = [
    { segment: 1, attributes: { learning_rate_factor: 0.5 } },
    { segment: 2, attributes: {} },
  ];
  const back = ready({ segments });
  assert.equal(proposed(back).factor, "1");
  assert.equal(orderBody(back, { ...proposed(back), factor: "0.5" }).learning_rate_factor, 0.5);
});

test("with the data is proposed what the server does where nobody says, as far as the run can", () => {
  const told = (data) => ({ proposal: { target: "c3", passed_over: [], first_sign_step: null, data } });
  assert.deepEqual([proposed(ready(told("replay"))).data, proposed(ready(told("skip"))).data], ["replay", "skip"]);
  assert.equal(proposed(ready({ ...told("skip"), data_modes: ["replay"] })).data, "replay");
  assert.equal(proposed(ready({})).data, "replay"); // an older server says nothing
});

test("an order is sent whole or not at all", () => {
  const chosen = (more) => ({ ...proposed(ready({})), ...more });
  assert.equal(lacking(ready({}), chosen({})), null);
  assert.equal(lacking(ready({}), chosen({ id: "gone" })), "lacks.checkpoint");
  assert.equal(lacking(ready({}), chosen({ clip: "0" })), "lacks.clip");
  assert.equal(lacking(ready({}), chosen({ factor: "other", other: "" })), "lacks.factor");
  assert.equal(lacking(ready({}), chosen({ data: "exclude" })), "lacks.culprits");
  assert.equal(lacking(ready({}), chosen({ data: "exclude", samples: "x" })), "lacks.samples");
  assert.equal(lacking(ready({}), chosen({ data: "skip", samples: "x" })), null);
  assert.equal(lacking(ready({}), chosen({ data: "exclude", documents: new Set(["a"]) })), null);
  assert.deepEqual(
    orderBody(
      ready({}),
      chosen({
        data: "exclude",
        documents: new Set(["b", "a"]),
        samples: "3, 1-2",
        clip: "0.5",
        factor: "0.25",
        reason: "bad batch",
      }),
    ),
    {
      kind: "rollback",
      checkpoint_id: "c3",
      data: "exclude",
      exclude_samples: [1, 2, 3],
      exclude_documents: ["a", "b"],
      max_grad_norm: 0.5,
      learning_rate_factor: 0.25,
      reason: "bad batch",
    },
  );
  const skip = orderBody(ready({}), chosen({ data: "skip", documents: new Set(["a"]), samples: "1", clip: "" }));
  assert.deepEqual(skip, { kind: "rollback", checkpoint_id: "c3", data: "skip" });
});

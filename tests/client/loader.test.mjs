import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError } from "../../client/api.js";
import { createLoader } from "../../client/loader.js";

const turn = () => new Promise((done) => setTimeout(done, 0));

test("hints that come while a read is under way are answered by one more read, not by one each", async () => {
  /** @type {(() => void)[]} */ const open = [];
  let settled = 0;
  const loader = createLoader(
    () => new Promise((done) => open.push(done)),
    () => settled++,
    0,
  );
  void loader.load();
  for (let i = 0; i < 5; i++) void loader.load();
  assert.equal(open.length, 1);
  open[0]();
  await turn();
  await turn();
  assert.equal(open.length, 2);
  open[1]();
  await turn();
  await turn();
  assert.deepEqual([open.length, settled], [2, 2]);
});

test("a refusal is drawn after the read that follows it; being signed out is not a problem of the view", async () => {
  /** @type {any[]} */ const drawn = [];
  const loader = createLoader(
    async () => {},
    (problem) => drawn.push(problem),
  );
  await loader.attempt(async () => {
    throw new ApiError(409, { detail: "no", fix: "wait" });
  });
  assert.deepEqual(
    drawn.map((problem) => problem && [problem.detail, problem.fix, problem.status]),
    [null, ["no", "wait", 409]],
  );
  const out = createLoader(
    async () => {
      throw new ApiError(401, { detail: "sign in" });
    },
    (problem) => drawn.push(problem),
  );
  await out.load();
  assert.equal(drawn.at(-1), null);
});

test("nothing is drawn after the view is gone", async () => {
  /** @type {() => void} */ let finish = () => {};
  let settled = 0;
  const loader = createLoader(
    () => new Promise((done) => (finish = done)),
    () => settled++,
  );
  const reading = loader.load();
  loader.close();
  finish();
  await reading;
  assert.equal(settled, 0);
});

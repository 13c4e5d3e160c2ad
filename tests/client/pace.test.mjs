import { test } from "node:test";
import assert from "node:assert/strict";
import { paced } from "../../client/pace.js";

const until = async (holds) => {
  for (let i = 0; i < 500 && !holds(); i += 1) await new Promise((next) => setTimeout(next, 10));
};

test("of many askings the first is done at once and the last when its time has come", async () => {
  let done = 0;
  const pace = paced(300, () => (done += 1));
  for (let i = 0; i < 5; i += 1) pace.ask();
  assert.equal(done, 1);
  await until(() => done > 1);
  assert.equal(done, 2);
});

test("now does not wait, and answers what was still waiting; stopped is stopped", () => {
  let done = 0;
  const pace = paced(60_000, () => (done += 1));
  pace.ask();
  pace.ask();
  pace.now();
  assert.equal(done, 2);
  pace.ask();
  pace.stop();
  assert.equal(done, 2);
});

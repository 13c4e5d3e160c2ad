import { test } from "node:test";
import assert from "node:assert/strict";
import { translator } from "../../client/clauses.js";

const translate = translator({
  clauses: {
    killed: "被强制终止",
    "saved {count} steps after the first sign ({step})": "保存于最早征兆（{step}）之后 {count} 步",
    "holds no {parts}, so a rollback would not be exact": "缺少{parts}，回滚不会精确",
    "{who} gave the command {kind}": "{who} 发出了“{kind}”指令",
    "not done: {why}": "没有执行：{why}",
    "{because}; nothing can be done: {why}": "{because}；做不了什么：{why}",
    "{because} ({why})": "{because}（{why}）",
    "a {kind} is {state} on this run": "这个训练上的“{kind}”{state}",
  },
  words: { stop: "停止", queued: "已排队", optimizer: "优化器", scaler: "缩放器" },
});

test("a clause is said with what fills its places, and within another clause too", () => {
  assert.equal(translate("saved 42 steps after the first sign (4958)"), "保存于最早征兆（4958）之后 42 步");
  assert.equal(
    translate("holds no optimizer and no scaler, so a rollback would not be exact"),
    "缺少优化器和缩放器，回滚不会精确",
  );
  assert.equal(translate("not done: killed"), "没有执行：被强制终止");
  assert.equal(translate("mlops gave the command stop"), "mlops 发出了“停止”指令");
  assert.equal(translate("killed (no space left: 1 GB)"), "被强制终止（no space left: 1 GB）");
  assert.equal(translate("a stop is queued on this run"), "这个训练上的“停止”已排队");
});

test("several are said each by itself, where one of them is known", () => {
  assert.equal(translate("killed; no space left: 1 GB"), "被强制终止；no space left: 1 GB");
  assert.equal(translate("not done: killed; killed"), "没有执行：被强制终止；被强制终止");
  assert.equal(translate("one; another"), "one; another");
});

test("what is no clause stays as it is, also where it only looks like one", () => {
  for (const text of [
    "",
    "no space left: 1 GB",
    "it is killed",
    "mlops gave the command dance",
    "a stop is dancing on this run",
    "mlops gave the command constructor",
    "holds no toString, so a rollback would not be exact",
    "holds no sway, so a rollback would not be exact",
  ])
    assert.equal(translate(text), text);
  assert.equal(translate("CUDA error (unspecified)"), "CUDA error (unspecified)", "its beginning would have to be a clause");
  assert.equal(translate(`not done: ${"x".repeat(600)}`).startsWith("not done"), true);
});

test("a value is text, whatever it holds", () => {
  assert.equal(translate("$& {kind} gave the command stop"), "$& {kind} 发出了“停止”指令");
});

test("a text made to fit many clauses within each other is looked at once for each of its parts", () => {
  let text = "z",
    looks = 0;
  for (let level = 0; level < 8; level += 1) text = `x; nothing can be done: y (${text})`;
  const exec = RegExp.prototype.exec;
  RegExp.prototype.exec = function (within) {
    looks += 1;
    return exec.call(this, within);
  };
  try {
    assert.equal(translate(text), text);
  } finally {
    RegExp.prototype.exec = exec;
  }
  assert.equal(looks < 2000, true, `${looks} looks`);
});

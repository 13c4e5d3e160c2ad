import { test } from "node:test";
import assert from "node:assert/strict";
import en from "../../client/i18n/en.js";
import zh from "../../client/i18n/zh.js";
import { route, runPath } from "../../client/router.js";

const places = (text) => [...text.matchAll(/\{\w*\}/g)].map(([p]) => p).sort();

test("both dictionaries have the same keys and the same places", () => {
  assert.deepEqual(Object.keys(en).sort(), Object.keys(zh).sort());
  for (const key of Object.keys(en)) if (typeof en[key] === "string") assert.deepEqual(places(zh[key]), places(en[key]), key);
});

test("addresses lead to views, and a run's id survives them", () => {
  assert.deepEqual(route("/"), { view: "runs" });
  assert.deepEqual(route(runPath("a/b c#d")), { view: "run", id: "a/b c#d" });
  assert.deepEqual(route("/signin", "#CODE"), { view: "signin", code: "CODE" });
  assert.deepEqual(route("/nowhere/at/all"), { view: "missing" });
  assert.deepEqual(route("/runs/%zz"), { view: "run", id: "%zz" });
  assert.deepEqual([route("/alerts").view, route("/webhooks").view], ["alerts", "webhooks"]);
});

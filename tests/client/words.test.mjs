import { test } from "node:test";
import assert from "node:assert/strict";
import en from "../../client/i18n/en.js";
import zh from "../../client/i18n/zh.js";
import { alertsPath, incidentPath, route, runPath, sameView, stepsPath } from "../../client/router.js";

const places = (text) => [...text.matchAll(/\{\w*\}/g)].map(([p]) => p).sort();

test("both dictionaries have the same keys and the same places", () => {
  assert.deepEqual(Object.keys(en).sort(), Object.keys(zh).sort());
  for (const key of Object.keys(en)) if (typeof en[key] === "string") assert.deepEqual(places(zh[key]), places(en[key]), key);
});

test("addresses lead to views, and a run's id survives them", () => {
  assert.deepEqual(route("/"), { view: "runs" });
  assert.deepEqual(route(runPath("a/b c#d")), { view: "run", id: "a/b c#d", steps: null });
  assert.deepEqual(route("/signin", "#CODE"), { view: "signin", code: "CODE" });
  assert.deepEqual(route("/nowhere/at/all"), { view: "missing" });
  assert.deepEqual(route("/runs/%zz"), { view: "run", id: "%zz", steps: null });
  assert.deepEqual([route("/alerts").view, route("/webhooks").view], ["alerts", "webhooks"]);
});

/** @param {string} path */
const at = (path) => route(path.split("#")[0], path.includes("#") ? `#${path.split("#")[1]}` : "");

test("an incident has its address below its run, the alerts have three", () => {
  assert.deepEqual(at(incidentPath("a/b", "i 1")), { view: "incident", run: "a/b", id: "i 1" });
  for (const tab of ["incidents", "all", "silences"]) assert.deepEqual(at(alertsPath(tab)), { view: "alerts", tab });
  assert.equal(at("/alerts/nothing").view, "missing");
  assert.equal(at("/runs/r1/incidents").view, "missing");
});

test("a link to steps of a run keeps to whole ones and never to none; what is not well formed is no range", () => {
  assert.deepEqual(at(stepsPath("r1", [4958.4, 5044.2])), { view: "run", id: "r1", steps: [4958, 5045] });
  assert.deepEqual(at(stepsPath("r1", [3, 3])).steps, [3, 4]);
  assert.deepEqual(at(stepsPath("r1", [-5, 3])).steps, [0, 3]);
  for (const bad of ["#steps=9-3", "#steps=x-3", "#steps=1-1", "#alerts"]) assert.equal(route("/runs/r1", bad).steps, null, bad);
});

test("the steps of a link make no other view, another tab or run does", () => {
  assert.equal(sameView(at("/runs/r1"), at("/runs/r1#steps=3-9")), true);
  assert.equal(sameView(at("/runs/r1"), at("/runs/r2")), false);
  assert.equal(sameView(at("/alerts"), at("/alerts/all")), false);
  assert.equal(sameView(at("/signin"), at("/signin")), false);
});

/** The backtest under the editor: what to replay, how far it is, and what came out, run by run. */
import { ACTIVE, decisive, figures, inOrder, keyOf } from "../backtests.js";
import { axisNumber, number } from "../format.js";
import { runPath } from "../router.js";
import { clause, t } from "../i18n/index.js";
import { plotPlace } from "./backtestplot.js";
import { h } from "./dom.js";
import { glyph, icon } from "./icons.js";
import { meter, runState, th } from "./parts.js";

/**
 * @typedef {import("../backtests.js").Backtest} Backtest
 * @typedef {import("../backtests.js").Tested} Tested
 * @typedef {{ choice: import("../backtests.js").Choice, picked: string[], logs: { name: string }[], find: string, all: boolean, runs: any[],
 *   whyNot: string | null, stale: boolean }} Ask `whyNot`: why it cannot run; `stale`: what came out is of another rule than the editor's; `all`: list every run
 */

const CHOICES = /** @type {import("../backtests.js").Choice[]} */ (["recent", "all", "picked", "logs"]);
const FEW = 12; // runs in the table before it is unfolded
const MOST_OFFERED = 100;

/** @param {Backtest} test @param {Ask} ask */
export function backtestPanel(test, ask) {
  const { result } = test;
  return h(
    "section",
    { class: "card pad stack backtest", "data-key": "backtest", "aria-label": t("backtest") },
    head(test, ask),
    h(
      "div",
      { class: "progress-line", "data-key": "progress" },
      ACTIVE.has(test.phase) && meter(test.total ? test.done / test.total : 0, "busy"),
    ),
    ask.choice === "picked" && pickRuns(ask),
    ask.choice === "logs" && pickFiles(ask),
    result === null && h("p", { class: "quiet", "data-key": "about" }, t("backtest.about")),
    result !== null && result.runs.length === 0 && h("p", { class: "quiet", "data-key": "none" }, t("backtest.none")),
    result !== null && result.runs.length > 0 && [summary(result.summary), plotPlace(), table(result.runs, test.chosen, ask.all)],
  );
}

/** @param {Backtest} test @param {Ask} ask */
function head(test, ask) {
  const active = ACTIVE.has(test.phase);
  return h(
    "div",
    { class: "bar", "data-key": "head" },
    h("h2", {}, t("backtest")),
    h(
      "div",
      { class: "seg scrollbar-x", role: "group", "aria-label": t("backtest") },
      CHOICES.map((choice) =>
        h(
          "button",
          { "data-act": "choice", "data-id": choice, "aria-pressed": String(choice === ask.choice) },
          t(`backtest.${choice}`),
        ),
      ),
    ),
    active
      ? h("button", { class: "btn", "data-act": "cancel-backtest", "data-key": "act" }, t("backtest.cancel"))
      : h(
          "button",
          { class: "btn", "data-act": "backtest", "data-key": "act", "aria-disabled": String(ask.whyNot !== null) },
          t(test.result ? "backtest.again" : "backtest.run"),
        ),
    h("span", { class: "said quiet", role: "status" }, said(test, ask)),
  );
}

/** @param {Backtest} test @param {Ask} ask @returns {import("./dom.js").Child} */
function said(test, ask) {
  if (test.phase === "running") return t("backtest.running", { done: test.done, total: test.total });
  if (ACTIVE.has(test.phase)) return t(`backtest.${test.phase}`);
  if (test.phase === "failed") return h("span", { class: "crit" }, t("backtest.failed", { detail: clause(test.problem?.detail ?? "") }));
  if (test.phase === "cancelled") return t("backtest.cancelled");
  if (ask.whyNot) return ask.whyNot;
  if (!test.result) return null;
  if (ask.stale) return h("span", { class: "warn" }, t("backtest.stale"));
  const runs = test.result.runs.length;
  const all = t(runs === 1 ? "backtest.summary.one" : "backtest.summary", {
    runs,
    points: axisNumber(test.points),
    seconds: number(Number(test.seconds.toPrecision(2))),
  });
  return test.result.left_out > 0 ? `${all}${t("order.and")}${t("backtest.left_out", { count: test.result.left_out })}` : all;
}

/** @param {import("../backtests.js").Summary} result */
const summary = (result) =>
  h(
    "dl",
    { class: "figures four", "data-key": "figures" },
    figures(result).map(({ name, value, of, before, tone }) =>
      h(
        "div",
        { class: tone || null, "data-figure": name },
        h("dt", {}, t(`backtest.${name}`)),
        h("dd", {}, number(value), " ", h("small", {}, value === null ? null : besides(name, of, before))),
      ),
    ),
  );

/** What a figure is of, and what it was before. @param {string} name @param {number | null} of @param {number | null} before */
const besides = (name, of, before) =>
  [
    name === "lead" ? t("backtest.lead.of") : of !== null && t(`backtest.${name}.of`, { of }),
    before !== null && t("backtest.was", { before: number(before) }),
  ]
    .filter(Boolean)
    .join(t("order.and"));

/** @param {Tested[]} runs @param {string} chosen @param {boolean} all */
function table(runs, chosen, all) {
  const rows = inOrder(runs),
    shown = all ? rows : rows.slice(0, FEW);
  return h(
    "div",
    { "data-key": "table" },
    h(
      "div",
      { class: "scroll", role: "region", tabindex: 0, "aria-label": t("backtest") },
      h(
        "table",
        { class: "tested" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            th(t("col.run")),
            th(t("backtest.what")),
            th(t("backtest.fires"), "num"),
            th(t("backtest.before"), "num"),
            th(t("backtest.reads")),
            th(""),
          ),
        ),
        h(
          "tbody",
          {},
          shown.map((run) => row(run, keyOf(run) === chosen)),
        ),
      ),
    ),
    shown.length < rows.length &&
      h("button", { class: "btn bare", "data-act": "all-runs" }, t("backtest.more", { count: rows.length })),
  );
}

/** @param {Tested} run @param {boolean} isChosen */
function row(run, isChosen) {
  const key = keyOf(run);
  const pick = {
    class: "as-link",
    "data-act": "curve",
    "data-id": key,
    "aria-pressed": String(isChosen),
    "aria-label": t("backtest.curve", { name: run.name }),
  };
  return h(
    "tr",
    { "data-key": key, "data-act": "curve", "data-id": key, class: isChosen ? "picked" : null },
    h("td", { class: "c-run" }, h("button", pick, run.name)),
    h("td", { class: "c-what soft" }, happened(run)),
    h("td", { class: "c-fires num", "data-label": t("backtest.fires") }, fires(run)),
    h("td", { class: "c-before num quiet", "data-label": t("backtest.before") }, run.episodes_before ?? "\u2013"),
    h("td", { class: "c-reads" }, reads(run)),
    h("td", { class: "c-open num" }, run.run_id !== null && h("a", { href: runPath(run.run_id) }, t("act.open"))),
  );
}

/** @param {Tested} run */
function fires(run) {
  const first = decisive(run),
    more = run.episodes_total - 1;
  if (!first) return "\u2013";
  return more > 0 ? t("backtest.fires.more", { step: first.firing_step, count: more }) : first.firing_step;
}

/** @param {Tested} run */
function happened(run) {
  const known = run.outcome === "dead" || run.outcome === "diverged";
  return known ? t(`backtest.${run.outcome}`, { step: run.ended_step ?? "\u2013" }) : t(`backtest.${run.outcome}`);
}

const TONES = /** @type {Record<string, string>} */ ({
  early: "good strong",
  late: "warn strong",
  missed: "crit strong",
  false_alarm: "warn strong",
  quiet: "",
});

/** @param {Tested} run */
export function verdictWords(run) {
  const { verdict } = run;
  if (verdict === "not_judged") return run.problem ? clause(run.problem) : t("backtest.not_judged");
  if (verdict !== "early" && verdict !== "late") return t(`backtest.${verdict}`);
  const steps = Math.abs(run.lead_steps ?? 0);
  if (steps === 0) return t("backtest.early.zero");
  return t(`backtest.${verdict}${steps === 1 ? ".one" : ""}`, { steps });
}

/** @param {Tested} run */
const reads = (run) => h("span", { class: TONES[run.verdict] || null }, verdictWords(run));

/** @param {Ask} ask */
function pickRuns(ask) {
  const wanted = ask.find.trim().toLowerCase();
  const offered = ask.runs.filter((run) => !wanted || `${run.name} ${run.project} ${run.run_id}`.toLowerCase().includes(wanted));
  return h(
    "fieldset",
    { class: "picks", "data-key": "picks" },
    h("legend", { class: "sr" }, t("backtest.picked")),
    h(
      "div",
      { class: "bar" },
      h("input", {
        class: "input sought",
        type: "search",
        "data-find": "run",
        placeholder: t("backtest.find"),
        "aria-label": t("backtest.find"),
      }),
      h("span", { class: "quiet" }, t("backtest.picked.count", { count: ask.picked.length })),
    ),
    h(
      "div",
      { class: "pick runs-pick" },
      offered.slice(0, MOST_OFFERED).map((run) =>
        h(
          "label",
          { "data-key": run.run_id },
          h("input", {
            type: "checkbox",
            "data-run": run.run_id,
            "data-value": String(ask.picked.includes(run.run_id)),
            checked: ask.picked.includes(run.run_id),
          }),
          h("span", { class: "name" }, run.name),
          runState(run.state),
          h("span", { class: "quiet" }, run.step === null ? "" : t("chart.step", { step: run.step })),
        ),
      ),
    ),
  );
}

/** @param {Ask} ask */
const pickFiles = (ask) =>
  h(
    "div",
    { class: "bar files", "data-key": "files" },
    h(
      "label",
      { class: "btn file" },
      icon("plus"),
      t("backtest.files.choose"),
      h("input", {
        type: "file",
        class: "sr",
        multiple: true,
        "data-files": "logs",
        accept: ".json,.jsonl,.ndjson,.csv,.txt,.log",
      }),
    ),
    ask.logs.map((log) => h("span", { class: "tag", "data-key": log.name }, glyph("dot"), log.name)),
  );

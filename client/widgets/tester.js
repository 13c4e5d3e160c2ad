/** The backtest as it lives on the page: started, followed, cancelled, its curve. What is decided about it is in `backtests.js`. */
import { ApiError, api } from "../api.js";
import { ACTIVE, IDLE, keyOf, request, step } from "../backtests.js";
import { size } from "../format.js";
import { problemOf } from "../loader.js";
import { ABSENCE, body } from "../rules.js";
import { state as store } from "../store.js";
import { t } from "../i18n/index.js";
import { backtestPanel } from "./backtestpanel.js";
import { createBacktestPlot } from "./backtestplot.js";
import { fieldLabel, wrongText } from "./rulewords.js";

const LOOK_MS = [150, 250, 400, 600]; // between two looks at how far it is
const MOST_BYTES = 8_000_000; // of log files, as they travel: a little less than the server takes

/** @typedef {NonNullable<ReturnType<typeof import("../rulebook.js").current>>} Current */

/** @param {{ runs: () => any[], changed: () => void }} on */
export function createTester(on) {
  let test = IDLE,
    sent = /** @type {any} */ (null), // the rule as it would be sent now; null while it is wrong
    saved = /** @type {string | null} */ (null), // the id of the rule as it is stored, which the figures before are of
    why = /** @type {string | null} */ (null),
    of = "",
    gone = false,
    timer = 0;
  /** @type {{ choice: import("../backtests.js").Choice, picked: string[], logs: { name: string, text: string, bytes: number }[], find: string, all: boolean }} */
  let ask = { choice: "recent", picked: [], logs: [], find: "", all: false };
  const plot = createBacktestPlot({ smoothing: () => 0, robust: () => store.robust, logY: () => store.logY });

  /** @param {import("../backtests.js").Input} input */
  const take = (input) => {
    test = step(test, input);
    if (gone) return;
    on.changed();
    const run = test.result?.runs.find((r) => keyOf(r) === test.chosen);
    if (run) plot.show(run, JSON.parse(test.of).series, test.id);
  };
  const follow = (/** @type {string} */ id, tries = 0) => {
    timer = window.setTimeout(
      async () => {
        if (gone || test.id !== id || !ACTIVE.has(test.phase)) return;
        try {
          take({ kind: "report", report: await api.backtest(id) });
        } catch (error) {
          const problem = problemOf(error);
          if (problem.status !== 0) take({ kind: "refused", problem }); // a server that is away is asked again
        }
        if (ACTIVE.has(test.phase)) follow(id, tries + 1);
      },
      LOOK_MS[Math.min(tries, LOOK_MS.length - 1)],
    );
  };
  const start = async () => {
    if (sent === null || why !== null || ACTIVE.has(test.phase)) return;
    take({ kind: "start", asked: JSON.stringify(sent) });
    try {
      const { backtest_id: id } = await api.startBacktest(
        request(
          sent,
          saved,
          ask.choice,
          ask.picked,
          ask.logs.map(({ name, text }) => ({ name, text })),
        ),
      );
      if (test.phase === "starting" && !gone) {
        take({ kind: "started", id });
        follow(id);
      } else drop(id); // cancelled before it had a name
    } catch (error) {
      take({ kind: "refused", problem: problemOf(error) });
    }
  };
  /** Whoever is not waited for need not go on. @param {string} id */
  const drop = (id) => {
    api.cancelBacktest(id).catch((error) => {
      if (!(error instanceof ApiError)) throw error; // over already, or the server is away
    });
  };
  const cancel = () => {
    const { id, phase } = test;
    window.clearTimeout(timer);
    take({ kind: "cancel" });
    if (id && ACTIVE.has(phase)) drop(id);
  };
  /** @param {Partial<typeof ask>} change */
  const asked = (change) => {
    ask = { ...ask, ...change };
    on.changed();
  };
  const readFiles = async (/** @type {FileList} */ files) => asked({ logs: await Promise.all([...files].map(readFile)) });

  /** @param {Current} now @param {import("../rules.js").Detector[]} detectors @param {string | null} whyNot */
  const reason = (now, detectors, whyNot) => {
    const [first] = now.wrong.filter((w) => w.field !== "name" && w.field !== "title");
    if (whyNot) return whyNot;
    if (now.draft.detector in ABSENCE) return t("backtest.off.silent");
    if (first)
      return t("backtest.off.wrong", { field: fieldLabel(first.field, now.draft, detectors), problem: wrongText(first) });
    if (ask.choice === "picked" && ask.picked.length === 0) return t("backtest.off.picked");
    if (ask.choice !== "logs") return null;
    if (ask.logs.length === 0) return t("backtest.off.logs");
    return ask.logs.reduce((sum, log) => sum + log.bytes, 0) > MOST_BYTES
      ? t("backtest.off.large", { size: size(MOST_BYTES) })
      : null;
  };
  return {
    /** @param {Current} now @param {import("../rules.js").Detector[]} detectors @param {string | null} whyNot */
    panel(now, detectors, whyNot) {
      why = reason(now, detectors, whyNot);
      saved = now.rule?.rule_id ?? null;
      sent = now.wrong.every((w) => w.field === "name" || w.field === "title") ? named(body(now.draft, detectors)) : null;
      const stale = test.result !== null && (sent === null || differs(test.of, sent));
      return backtestPanel(test, { ...ask, runs: on.runs(), whyNot: why, stale });
    },
    /** Puts the chart where the panel keeps its place. @param {Element} host */
    drawn(host) {
      const place = host.querySelector("[data-place=plot]");
      if (place && place !== plot.element) {
        place.replaceWith(plot.element);
        plot.redraw();
      }
    },
    /** Another rule: what came out of the last one is not this one's. @param {string} id */
    opened(id) {
      if (id === of) return;
      of = id;
      if (ACTIVE.has(test.phase)) cancel();
      ask = { ...ask, all: false };
      test = IDLE;
      on.changed();
    },
    acts: {
      backtest: () => void start(),
      "cancel-backtest": cancel,
      choice: (/** @type {HTMLElement} */ target) =>
        asked({ choice: /** @type {import("../backtests.js").Choice} */ (target.dataset.id) }),
      curve: (/** @type {HTMLElement} */ target) => take({ kind: "choose", key: target.dataset.id ?? "" }),
      "all-runs": () => asked({ all: true }),
    },
    /** @param {HTMLInputElement} field @param {string} type of the event */
    input(field, type) {
      const { run, find, files } = field.dataset;
      if (run !== undefined && type === "change")
        asked({ picked: field.checked ? [...ask.picked, run] : ask.picked.filter((id) => id !== run) });
      else if (find !== undefined) asked({ find: field.value });
      else if (files !== undefined && type === "change" && field.files) void readFiles(field.files);
    },
    restyle: () => plot.redraw(),
    destroy() {
      if (ACTIVE.has(test.phase)) cancel();
      gone = true;
      window.clearTimeout(timer);
      plot.destroy();
    },
  };
}

/** @param {File} file */
async function readFile(file) {
  const text = await file.text();
  return { name: file.name, text, bytes: new Blob([JSON.stringify(text)]).size };
}

/** A rule that has no name yet can be tried all the same. @param {any} rule */
const named = (rule) => ({ ...rule, name: rule.name || "-", title: rule.title || rule.name || "-" });

const WORDS = ["name", "title", "reason", "enabled", "trial"];

/** Whether two rules would fire differently. @param {string} of @param {any} sent */
function differs(of, sent) {
  const plain = (/** @type {any} */ rule) => JSON.stringify({ ...rule, ...Object.fromEntries(WORDS.map((name) => [name, ""])) });
  return plain(JSON.parse(of)) !== plain(sent);
}

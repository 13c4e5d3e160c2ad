/** The curve of one replayed run, with the bands in which the rule would have fired. */
import { ApiError, api } from "../api.js";
import { decisive, keyOf, lookAt, marks, seriesOf } from "../backtests.js";
import { decode, emptySeries } from "../series.js";
import { createChart } from "../charts/frame.js";
import { model } from "../charts/model.js";
import { chartWords } from "../charts/panel.js";
import { t } from "../i18n/index.js";
import { h, patch } from "./dom.js";

const MOST_POINTS = 1000;

/** Where the chart goes. The chart itself is never part of what is drawn anew: it would leave the page each time. */
export const plotPlace = () =>
  h("figure", { class: "chart flat tested-plot", "data-own": true, "data-key": "plot", "data-place": "plot" });

/** @typedef {import("../backtests.js").Tested} Tested */

/** @param {{ smoothing: () => number, robust: () => boolean, logY: () => boolean }} settings */
export function createBacktestPlot(settings) {
  const head = h("header", {}),
    plot = h("div", { class: "plot", role: "img", tabindex: 0, "data-own": true }),
    empty = h("div", { class: "empty-plot", hidden: true });
  const element = plotPlace();
  element.append(head, plot);
  /** @type {Tested | null} */ let run = null;
  let series = "",
    backtest = "", // the one that the log came with
    whole = emptySeries(""),
    data = emptySeries("");
  /** @type {[number, number] | null} */ let look = null;
  let isWhole = false;
  let reading = /** @type {AbortController | null} */ (null);

  const last = () => Math.max(run?.ended_step ?? 0, ...whole.traces.map((trace) => trace.steps.at(-1) ?? 0), 1);
  /** @returns {[number, number]} */
  const range = () => look ?? (isWhole || !run ? [0, last() * 1.015] : lookAt(run, series, last()));
  const chart = createChart(plot, {
    zoom: (from, to) => show([Math.max(0, from), to], isWhole),
    reset: () => show(null, isWhole),
  });
  plot.append(empty);

  const words = () => {
    if (!run) return;
    const pick = (/** @type {boolean} */ all, /** @type {string} */ text) =>
      h("button", { "data-act": all ? "whole" : "around", "aria-pressed": String(look === null && isWhole === all) }, text);
    patch(head, [
      h("h3", {}, run.name),
      h("span", { class: "unit" }, series),
      h("span", { class: "gap" }),
      run.episodes.length > 0 &&
        h("div", { class: "seg small" }, pick(false, t("backtest.around")), pick(true, t("backtest.whole"))),
    ]);
    empty.hidden = data.traces.some((trace) => trace.n > 0);
    empty.textContent = t("backtest.no_points");
  };
  const draw = () =>
    chart.draw(({ width, height }) => {
      const shown = /** @type {Tested} */ (run);
      return model({
        series,
        data,
        look: range(),
        width,
        height,
        marks: marks(shown, series),
        smoothing: settings.smoothing(),
        robust: settings.robust(),
        logY: settings.logY(),
        labelled: true,
        words: { ...chartWords(), fires: t("backtest.fires_at") },
        alt: altOf(shown, series),
      });
    });
  /** What is in view, as finely as it is wanted: a whole run is thinned, a stretch of it less. @param {AbortSignal} signal */
  const readPart = async (signal) => {
    const [from, to] = range(),
      thinned = whole.traces.some((trace) => trace.n < trace.count);
    if (!run?.run_id || !thinned || (from <= 0 && to >= last())) return whole;
    return decode(await api.series(run.run_id, series, Math.max(0, from), to, MOST_POINTS, signal));
  };
  /** @param {[number, number] | null} next @param {boolean} all */
  const show = (next, all) => {
    look = next;
    isWhole = all;
    void read(false);
  };
  /** @param {boolean} anew whether the run or series is another */
  const read = async (anew) => {
    reading?.abort();
    const mine = (reading = new AbortController());
    words();
    try {
      if (anew) whole = await readWhole(mine.signal);
      data = await readPart(mine.signal);
    } catch (error) {
      if (mine.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      data = whole = emptySeries(series); // a run that is gone has no curve, and its row says enough
    }
    if (mine.signal.aborted) return;
    words();
    await draw();
  };
  /** @param {AbortSignal} signal */
  const readWhole = async (signal) => {
    if (!run) return emptySeries(series);
    if (run.run_id === null) return decode(await api.logSeries(backtest, run.log ?? 0, series, MOST_POINTS, signal));
    return decode(await api.series(run.run_id, series, 0, 1e12, MOST_POINTS, signal));
  };
  head.addEventListener("click", (event) => {
    const act = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("[data-act]"))?.dataset.act;
    if (act === "whole" || act === "around") show(null, act === "whole");
  });
  return {
    element,
    /** @param {Tested} next @param {string} named the rule's series @param {string} id of the backtest */
    show(next, named, id) {
      const of = seriesOf(next, named);
      if (run !== null && keyOf(run) === keyOf(next) && of === series && run === next) return;
      const other = run === null || keyOf(run) !== keyOf(next) || of !== series;
      run = next;
      backtest = id;
      series = of;
      look = null;
      if (other) {
        isWhole = false;
        whole = data = emptySeries(of);
      }
      void read(other || next.run_id === null);
    },
    redraw() {
      words();
      if (run) void draw();
    },
    destroy() {
      reading?.abort();
      chart.destroy();
    },
  };
}

/** @param {Tested} run @param {string} series */
function altOf(run, series) {
  const about = decisive(run),
    first = about?.series === series ? about : run.episodes.find((e) => e.series === series);
  const what = first ? t("backtest.alt.fires", { onset: first.onset_step, firing: first.firing_step }) : t("backtest.alt.quiet");
  return t("backtest.alt", { name: run.name, series, what });
}

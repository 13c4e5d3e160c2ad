/** The chart in the rollback dialog: the gradient norm with the checkpoints, and what going back to the chosen one gives up. */
import { paced } from "../pace.js";
import { emptySeries } from "../series.js";
import { firstSign } from "../reducers.js";
import { timeline } from "../timeline.js";
import { createChart } from "../charts/frame.js";
import { model } from "../charts/model.js";
import { chartWords } from "../charts/panel.js";
import { t } from "../i18n/index.js";
import { h } from "./dom.js";

const SERIES = "train/grad_norm";
/** Between two readings of what the open dialog shows of a run that trains on. */
export const EVERY_MS = 3000;

/**
 * @param {import("./order.js").Context} context
 * @param {() => string | null} picked id of the chosen checkpoint
 */
export function createPickPlot(context, picked) {
  const plot = h("div", { class: "plot pick-plot", role: "img", "data-own": true });
  const chart = createChart(plot);
  let data = emptySeries(SERIES),
    loaded = { of: "", step: /** @type {number | null} */ (null) };
  const draw = () => {
    void chart.draw(({ width, height }) => {
      const run = context.run(),
        id = picked(),
        now = run.step ?? 0,
        step = run.checkpoints.find((/** @type {any} */ c) => c.checkpoint_id === id)?.step ?? 0,
        from = Math.max(0, step - Math.max(50, (now - step) * 2));
      const back = t("chart.back_to", { step });
      return model({
        series: SERIES,
        data,
        look: [from, now + Math.max(1, (now - from) * 0.02)],
        width,
        height,
        marks: timeline(run),
        firstSign: firstSign(run),
        smoothing: 0.6,
        robust: true,
        logY: true,
        labelled: true,
        words: chartWords(),
        alt: t("rollback.chart", { step }),
        brush: {
          from: step,
          to: Math.max(step, run.proposal.first_sign_step ?? now),
          label: width < 500 ? back : `${back}${t("order.and")}${t("chart.lost", { steps: Math.max(0, now - step) })}`,
        },
        picked: id,
      });
    });
  };
  const load = () => {
    const { run_id, segment, step } = context.run(),
      of = `${run_id}/${segment}`;
    if (loaded.of === of && loaded.step === step) return;
    loaded = { of, step };
    void context
      .load(SERIES, 0, step ?? 0)
      .then((points) => {
        if (loaded.of !== of) return;
        data = points;
        draw();
      })
      .catch(() => {
        loaded = { of: "", step: null }; // the live state tells it; asked again when the run moves on
      });
  };
  const pace = paced(EVERY_MS, load);
  return {
    get element() {
      return h(
        "figure",
        { class: "chart flat", "data-key": "chart" },
        h("header", {}, h("h3", {}, SERIES), h("span", { class: "unit" }, t("rollback.log"))),
        plot,
      );
    },
    draw,
    /** Reads the curve of the run as it stands. */
    reload() {
      draw();
      pace.now();
    },
    /** The run has moved on: its steps at once, its curve from time to time. */
    follow() {
      draw();
      pace.ask();
    },
    destroy() {
      pace.stop();
      chart.destroy();
    },
  };
}

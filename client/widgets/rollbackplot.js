/** The chart in the rollback dialog: the gradient norm with the checkpoints, and what going back to the chosen one gives up. */
import { emptySeries } from "../series.js";
import { timeline } from "../timeline.js";
import { createChart } from "../charts/frame.js";
import { model } from "../charts/model.js";
import { chartWords } from "../charts/panel.js";
import { t } from "../i18n/index.js";
import { h } from "./dom.js";

const SERIES = "train/grad_norm";

/**
 * @param {import("./order.js").Context} context
 * @param {() => string | null} picked id of the chosen checkpoint
 */
export function createPickPlot(context, picked) {
  const plot = h("div", { class: "plot pick-plot", role: "img", "data-own": true });
  const chart = createChart(plot);
  let data = emptySeries(SERIES),
    loaded = "";
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
        smoothing: 0.6,
        robust: true,
        logY: true,
        labelled: true,
        words: chartWords(),
        alt: t("rollback.chart", { step }),
        brush: {
          from: step,
          to: Math.max(step, run.proposal.first_sign_step ?? now),
          label: width < 500 ? back : `${back}, ${t("chart.lost", { steps: Math.max(0, now - step) })}`,
        },
        picked: id,
      });
    });
  };
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
      const { run_id, segment, step } = context.run();
      if (loaded === `${run_id}/${segment}`) return;
      loaded = `${run_id}/${segment}`;
      void context.load(SERIES, 0, step ?? 0).then((points) => {
        data = points;
        draw();
      });
    },
    destroy: () => chart.destroy(),
  };
}

/** One chart with its head, legend and tools. The head shows the raw last value; the crosshair's values go into the legend. */
import { number, shownUnit, toNumber, valueFormat } from "../format.js";
import { readAt } from "../series.js";
import { t } from "../i18n/index.js";
import { h, patch } from "../widgets/dom.js";
import { icon } from "../widgets/icons.js";
import { createChart } from "./frame.js";
import { MOST_LINES, colorBeside, extremesAt, ranksIn } from "./ranks.js";

/**
 * @typedef {import("../series.js").Decoded} Decoded
 * @typedef {{ name: string, width: "w4" | "w6" | "w12", short: boolean, companion: string | null }} Spec
 */

/** The series drawn with another: evaluation points on the loss, skipped steps on the loss scale. */
export const COMPANIONS = /** @type {Record<string, string>} */ ({ "train/loss": "eval/loss", "amp/loss_scale": "amp/overflow" });

/**
 * @param {Spec} spec
 * @param {{ zoom: (from: number, to: number) => void, reset: () => void, cross: (step: number | null) => void, pick?: (step: number) => void, table: () => void, smoothed: () => boolean, eachRank: () => boolean }} on
 */
export function createFigure(spec, on) {
  const empty = h("div", { class: "empty-plot", hidden: true });
  const head = h("header", {}),
    plot = h("div", { class: "plot", role: "img", tabindex: 0, "data-own": true }),
    legend = h("figcaption", { class: "legend" });
  const tools = h("div", { class: "tools" });
  const element = h("figure", { class: "chart", "data-series": spec.name }, head, plot, legend, tools);
  const chart = createChart(plot, on);
  plot.append(empty);
  /** @type {Decoded | null} */ let data = null;
  /** @type {Decoded | null} */ let companion = null;
  let enlarged = false;
  let summary = /** @type {any} */ (null),
    edge = "",
    superseded = /** @type {[number, number][]} */ ([]);
  /** @type {number | null} */ let step = null;

  const shape = () => {
    element.className = ["chart", enlarged ? "w12 tall" : spec.width, !enlarged && spec.short ? "short" : "", edge]
      .filter(Boolean)
      .join(" ");
  };
  // A short chart has no legend: its crosshair value stands in the head, so that nothing below it moves.
  const read = () => {
    const at = step === null || !data || !spec.short ? null : readAt(data, step);
    const span = step === null || !data || !spec.short ? null : extremesAt(data, step);
    patch(head, headOf(spec, summary, companion, at ? at.value : null, span));
    patch(
      legend,
      data && !spec.short
        ? legendOf(spec, data, { companion, superseded, step, smoothed: on.smoothed(), each: on.eachRank() })
        : [],
    );
  };
  const words = () => {
    patch(tools, [
      h(
        "button",
        {
          class: "btn bare icon small",
          "data-act": "table",
          title: t("chart.table"),
          "aria-label": `${t("chart.table")} ${spec.name}`,
        },
        icon("rows"),
      ),
      h(
        "button",
        {
          class: "btn bare icon small",
          "data-act": "enlarge",
          title: t("chart.enlarge"),
          "aria-pressed": String(enlarged),
          "aria-label": `${t("chart.enlarge")} ${spec.name}`,
        },
        icon("grow"),
      ),
    ]);
    empty.textContent = t("chart.none");
    read();
    shape();
  };
  tools.addEventListener("click", (event) => {
    const act = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("[data-act]"))?.dataset.act;
    if (act === "table") on.table();
    if (act === "enlarge") {
      enlarged = !enlarged;
      words();
    }
  });
  words();
  return {
    element,
    spec,
    chart,
    get data() {
      return data;
    },
    get companion() {
      return companion;
    },
    /** @param {Decoded} own @param {Decoded | null} other */
    take(own, other) {
      data = own;
      companion = other;
      empty.hidden = own.traces.length > 0;
    },
    /** @param {any} seriesSummary @param {string} firing @param {[number, number][]} stretches */
    tell(seriesSummary, firing, stretches) {
      summary = seriesSummary;
      edge = firing;
      superseded = stretches;
      words();
    },
    /** @param {number | null} at */
    cross(at) {
      step = at;
      chart.cross(at);
      read();
    },
    toggleSize() {
      enlarged = !enlarged;
      words();
    },
    words,
    destroy: () => chart.destroy(),
  };
}

/** @param {Spec} spec @param {any} summary @param {Decoded | null} companion @param {number | null} crossed @param {import("./ranks.js").Extremes | null} span */
function headOf(spec, summary, companion, crossed, span) {
  const last = crossed ?? toNumber(summary?.last?.value ?? null),
    odd = last !== null && !Number.isFinite(last);
  return [
    h("h3", {}, spec.name),
    h("span", { class: "unit" }, span ? spanText(spec, span) : note(spec.name, summary?.unit ?? "", companion)),
    h("span", { class: odd ? "now crit" : "now" }, valueFormat(spec.name)(last)),
  ];
}

/** @param {string} name @param {string} unit @param {Decoded | null} companion */
function note(name, unit, companion) {
  if (name === "train/grad_norm") return t("chart.before_clipping");
  if (name === "system/host_memory_bytes") return t("chart.host_memory");
  if (name !== "amp/loss_scale" || !companion) return shownUnit(name, unit);
  const traces = companion.traces.filter((trace) => !trace.superseded && trace.rank === 0);
  const skipped = traces.reduce((sum, trace) => sum + Array.from(trace.values).filter((v) => v > 0).length, 0);
  // A thinned trace has lost some of the ones: say so instead of guessing.
  if (skipped === 0) return t("chart.none_skipped");
  const exact = traces.every((trace) => trace.n === trace.count);
  return t(exact ? (skipped === 1 ? "chart.skipped.one" : "chart.skipped") : "chart.skipped.least", { steps: skipped });
}

/** @param {number} rank */
const ofRank = (rank) => t("order.aside", { aside: t("chart.rank", { rank }) });

/** "0.21 (rank 2) – 0.25 (rank 0)", then the ranks without a finite value. @param {Spec} spec @param {import("./ranks.js").Extremes} span */
function spanText(spec, span) {
  const format = valueFormat(spec.name);
  const end = (/** @type {number} */ value, /** @type {number} */ rank) => `${format(value)}${ofRank(rank)}`;
  if (span.low === span.high && span.odd.length === 0) return t("chart.same", { value: format(span.low) });
  const range = Number.isFinite(span.low) ? [`${end(span.low, span.lowRank)} \u2013 ${end(span.high, span.highRank)}`] : [];
  return [...range, ...span.odd.map(({ rank, value }) => `${value}${ofRank(rank)}`)].join(t("order.and"));
}

/**
 * @param {Spec} spec
 * @param {Decoded} data
 * @param {{ companion: Decoded | null, superseded: [number, number][], step: number | null, smoothed: boolean, each: boolean }} now
 */
function legendOf(spec, data, { companion, superseded, step, smoothed, each }) {
  const value = (/** @type {Decoded} */ of, rank = 0) => {
    const read = step === null ? null : readAt(of, step, rank);
    return read === null ? "" : valueFormat(spec.name)(read.value);
  };
  const item = (/** @type {string} */ color, /** @type {string} */ line, /** @type {string} */ name, text = "") =>
    h(
      "span",
      { class: `key ${color}` },
      h("b", { class: line }),
      h("span", { class: "soft" }, name),
      text && h("span", { class: "value" }, text),
    );
  const ranks = ranksIn(data),
    isBand = data.bands.length > 0 && !each,
    span = step === null ? null : extremesAt(data, step);
  const dots = spec.companion === "eval/loss" ? companion : null;
  const left = superseded.map(([from, to]) => `${from}\u2013${to}`).join(t("order.and"));
  return [
    ...ranks
      .slice(0, isBand ? 1 : MOST_LINES)
      .map((rank) =>
        item(
          `series-${(rank % 8) + 1}`,
          "",
          data.bands.length > 0 || ranks.length > 1 ? t("chart.rank", { rank }) : spec.name.split("/")[0],
          value(data, rank),
        ),
      ),
    isBand &&
      item(
        "series-1",
        "area",
        t("chart.span", { ranks: Math.max(...data.bands.map((b) => b.ranks)) }),
        span ? spanText(spec, span) : "",
      ),
    dots && dots.traces.length > 0 && item(`series-${colorBeside(data, each)}`, "", "eval/loss", value(dots)),
    smoothed && data.traces.length > 0 && item("series-1", "thin", t("chart.raw")),
    data.traces.some((trace) => trace.superseded) && item("old", "dash", `${t("chart.superseded")} ${left}`),
    step !== null && h("span", { class: "at" }, t("chart.step", { step: number(step) })),
  ];
}

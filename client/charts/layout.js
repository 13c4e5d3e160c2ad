/**
 * What stands around the traces, in Plotly's words: shapes, annotations and axes from a `Model`. It only makes values; `chart.js`
 * hands them over.
 *
 * Plotly parses a small set of tags in labels, so every text is escaped.
 */
import { MARGIN } from "./labels.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {(name: string) => string} Paint a colour of the present theme */

const NONFINITE_LANE = 16,
  CHECKPOINT_LANE = 18; // pixels

const escape = (/** @type {string} */ text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

/** @param {Model} m @param {Paint} paint @param {{ floor: number, pixel: number }} frame `floor`: paper y of the axis; `pixel`: one pixel of paper */
function shapes(m, paint, { floor, pixel }) {
  const upright = (/** @type {number} */ x, /** @type {any} */ line) => ({
    type: "line",
    xref: "x",
    yref: "paper",
    x0: x,
    x1: x,
    y0: floor,
    y1: 1,
    line,
    layer: "below",
  });
  const block = (/** @type {any} */ b, /** @type {number} */ y0, /** @type {string} */ fillcolor) => ({
    type: "rect",
    xref: "x",
    yref: "paper",
    x0: b.from,
    x1: b.to,
    y0,
    y1: 1,
    line: { width: 0 },
    fillcolor,
    layer: "below",
  });
  const bar = (/** @type {any} */ b) => paint(b.kind === "brush" ? "accent" : `${b.kind}-mark`);
  return [
    ...m.bands.filter((b) => b.fill).map((b) => block(b, floor, paint(`band-${b.kind}`))),
    ...m.bands.map((b) => block(b, 1 - 2 * pixel, bar(b))),
    ...m.checkpoints.filter((c) => c.picked).map((c) => upright(c.step, { color: paint("accent"), width: 1.5 })),
    ...m.events.map((e) =>
      upright(
        e.step,
        e.kind === "rollback" && !e.superseded
          ? { color: paint("accent"), width: 1.2 }
          : { color: paint(e.superseded ? "line-2" : "line-3"), width: 1, dash: "1px,3px" },
      ),
    ),
    ...(m.limit === null
      ? []
      : [
          {
            type: "line",
            xref: "paper",
            yref: "y",
            x0: 0,
            x1: 1,
            y0: m.limit,
            y1: m.limit,
            line: { color: paint("crit-mark"), width: 1, dash: "2px,4px" },
            layer: "below",
          },
        ]),
    {
      type: "line",
      xref: "paper",
      yref: "paper",
      x0: 0,
      x1: 1,
      y0: floor,
      y1: floor,
      line: { color: paint("line-2"), width: 1 },
      layer: "above",
    },
  ];
}

/** A label goes left of its mark, unless the plot begins there. @param {number} step @param {Model} m */
const beside = (step, m) =>
  (step - m.x[0]) / (m.x[1] - m.x[0]) > 0.35 ? { xanchor: "right", xshift: -7 } : { xanchor: "left", xshift: 7 };

/** @param {Model} m @param {Paint} paint @param {{ pixel: number }} frame */
function annotations(m, paint, { pixel }) {
  const tones = { crit: "crit-ink", warn: "warn-ink", acc: "accent", mute: "axis-ink" };
  const note = (/** @type {string} */ text, /** @type {string} */ color, /** @type {any} */ place) => ({
    text: escape(text),
    showarrow: false,
    borderpad: 0,
    font: { color: paint(color), size: 11, weight: 500 },
    ...place,
  });
  const atY = (/** @type {number} */ v) => (m.log ? Math.log10(v) : v);
  const first = m.nonfinite.find((n) => !n.superseded) ?? m.nonfinite[0],
    last = m.nonfinite.at(-1);
  const roomLeft = first && (first.step - m.x[0]) / (m.x[1] - m.x[0]) > 0.25;
  return [
    ...m.labels.map((l) =>
      note(l.text, tones[l.tone], {
        x: l.at,
        xref: "x",
        y: 1,
        yref: "paper",
        xanchor: l.anchor,
        yanchor: "bottom",
        xshift: l.anchor === "left" ? 3 : l.tone === "acc" || l.tone === "mute" ? -3 : 0,
        yshift: 0,
      }),
    ),
    ...(first && last
      ? [
          note(m.nonfiniteText, first.superseded ? "axis-ink" : "crit-ink", {
            x: roomLeft ? first.step : last.step,
            xref: "x",
            y: 1 - (NONFINITE_LANE / 2) * pixel,
            yref: "paper",
            xanchor: roomLeft ? "right" : "left",
            yanchor: "middle",
            xshift: roomLeft ? -7 : 7,
            bgcolor: paint("surface"), // an upright line behind it would read as a letter
            opacity: 0.92,
          }),
        ]
      : []),
    ...(m.limit === null
      ? []
      : [
          note(m.limitText, "crit-ink", {
            x: 0,
            xref: "paper",
            y: atY(m.limit),
            yref: "y",
            xanchor: "left",
            yanchor: "bottom",
            xshift: 3,
          }),
        ]),
    ...m.carets.map((c) =>
      note(c.text, "axis-ink", {
        x: c.step,
        xref: "x",
        y: atY(c.above ? m.y[1] : m.y[0]),
        yref: "y",
        yanchor: c.above ? "top" : "bottom",
        ...beside(c.step, m),
        bgcolor: paint("surface"),
        opacity: 0.92,
      }),
    ),
  ];
}

/** @param {Model} m @param {number} width @param {number} height @param {Paint} paint */
export function layout(m, width, height, paint) {
  const inner = Math.max(60, height - MARGIN.top - MARGIN.bottom),
    pixel = 1 / inner;
  const floor = CHECKPOINT_LANE * pixel,
    ceiling = 1 - NONFINITE_LANE * pixel;
  const lane = (/** @type {[number, number]} */ domain) => ({ domain, range: [0, 1], visible: false, fixedrange: true });
  const range = m.log ? m.y.map(Math.log10) : m.y;
  return {
    width,
    height,
    margin: { l: MARGIN.left, r: MARGIN.right, t: MARGIN.top, b: MARGIN.bottom, pad: 0 },
    autosize: false,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    hovermode: false,
    dragmode: "zoom",
    showlegend: false,
    font: { family: paint("font-sans"), size: 11, color: paint("axis-ink") },
    shapes: shapes(m, paint, { floor, pixel }),
    annotations: annotations(m, paint, { pixel }),
    xaxis: {
      range: m.x,
      anchor: "free",
      position: 0,
      tickvals: m.xTicks,
      ticktext: m.xTicks.map(String),
      showgrid: false,
      zeroline: false,
      showline: false,
      ticks: "",
    },
    yaxis: {
      type: m.log ? "log" : "linear",
      range,
      domain: [floor, ceiling],
      tickvals: m.yTicks,
      ticktext: m.yTicks.map(m.format),
      gridcolor: paint("grid"),
      gridwidth: 1,
      zeroline: false,
      showline: false,
      ticks: "",
      ticklabelstandoff: 4,
      fixedrange: true,
    },
    yaxis2: lane([ceiling, 1]),
    yaxis3: lane([0, floor]),
  };
}

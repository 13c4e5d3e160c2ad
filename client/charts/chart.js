/**
 * The only module that knows Plotly: loads the library when the first chart is drawn, and turns a `Model` into traces and
 * layout. `frame.js` decides when.
 *
 * Plotly parses a small set of tags in labels, so every text is escaped.
 */
import { MARGIN } from "./labels.js";
import { h } from "../widgets/dom.js";

/** @typedef {import("./model.js").Model} Model */

const NONFINITE_LANE = 16,
  CHECKPOINT_LANE = 18; // pixels

/** The id under which Plotly looks for its map styles before it adds them inline, which the content policy forbids. We draw no maps. */
const MAP_STYLES = "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53";

/** @type {Promise<any> | null} */
let library = null;

/** Plotly, fetched once, when first needed: it is 4.8 MB and two seconds of work. @returns {Promise<any>} */
function loadLibrary() {
  library ??= new Promise((resolve, reject) => {
    document.head.append(h("meta", { id: MAP_STYLES })); // found, so the map half of the library leaves the page's styles alone
    const script = h("script", { src: "/vendor/plotly.min.js" });
    script.addEventListener("load", () => resolve(/** @type {any} */ (window).Plotly));
    script.addEventListener("error", () => {
      library = null;
      reject(new Error("the chart library did not load"));
    });
    document.head.append(script);
  });
  return library;
}

const escape = (/** @type {string} */ text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

/** The colours of the present theme, read from the tokens. */
function paints() {
  const style = getComputedStyle(document.documentElement);
  return (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
}

/** @typedef {(name: string) => string} Paint */

const VERDICTS = /** @type {Record<string, [string, string, string]>} */ ({
  // symbol, colour, fill
  sound: ["circle", "good-mark", "good-mark"],
  unsound: ["diamond", "crit-mark", "surface"],
  corrupt: ["x-thin-open", "crit-mark", "crit-mark"],
  complete: ["circle", "mute-mark", "surface"],
  writing: ["circle-dot", "accent", "surface"],
  deleted: ["circle", "mute-line", "surface"],
});

/** @param {Model["lines"][number]} line @param {Paint} paint */
function trace(line, paint) {
  const old = line.role === "old" || line.role === "oldraw",
    thin = line.role === "raw" || line.role === "oldraw";
  const color = old ? paint("series-faint") : paint(line.color ? `series-${line.color}` : "ink");
  const dots = line.role === "dots";
  return {
    type: "scatter",
    mode: dots ? "lines+markers" : "lines",
    x: line.steps,
    y: line.values,
    connectgaps: dots,
    hoverinfo: "skip",
    showlegend: false,
    opacity: line.role === "raw" ? 0.34 : line.role === "oldraw" ? 0.38 : 1,
    line: {
      color,
      width: thin ? 1 : old ? 1.4 : 1.6,
      dash: line.role === "old" ? "4px,2.5px" : "solid",
      shape: line.stepped ? "hv" : "linear",
      simplify: true,
    },
    ...(dots ? { marker: { symbol: "circle", size: 6, color: paint("surface"), line: { color, width: 1.6 } } } : {}),
  };
}

/** The outline of a band, filled. @param {Model["areas"][number]} area @param {Paint} paint */
const bandTrace = (area, paint) => ({
  type: "scatter",
  mode: "lines",
  x: area.steps,
  y: area.values,
  fill: "toself",
  fillcolor: paint(area.superseded ? "series-faint" : "series-1"),
  opacity: area.superseded ? 0.2 : 0.34,
  line: { width: 0 },
  hoverinfo: "skip",
  showlegend: false,
});

/** The value at `share` of the plot's height. @param {Model} m @param {number} share */
const lift = (m, share) => (m.log ? m.y[0] * (m.y[1] / m.y[0]) ** share : m.y[0] + share * (m.y[1] - m.y[0]));

/** Marks on one lane or edge. @param {number[]} x @param {number} y @param {string} axis @param {any} marker */
const marks = (x, y, axis, marker) => ({
  type: "scatter",
  mode: "markers",
  x,
  y: x.map(() => y),
  yaxis: axis,
  marker,
  hoverinfo: "skip",
  showlegend: false,
  cliponaxis: false,
});

/** @param {Model} m @param {Paint} paint @param {number} height */
function markTraces(m, paint, height) {
  const symbols = /** @type {Record<string, string>} */ ({
    NaN: "x-thin-open",
    Infinity: "triangle-up",
    "-Infinity": "triangle-down",
  });
  const odd = m.nonfinite.map((n) => paint(n.superseded ? "series-faint" : "crit-mark"));
  const verdict = m.checkpoints.map((c) => VERDICTS[c.state] ?? VERDICTS.complete);
  return [
    marks(
      m.nonfinite.map((n) => n.step),
      0.5,
      "y2",
      { symbol: m.nonfinite.map((n) => symbols[n.value]), size: 7, color: odd, line: { color: odd, width: 1.5 } },
    ),
    marks(
      m.checkpoints.map((c) => c.step),
      0.5,
      "y3",
      {
        symbol: verdict.map((v) => v[0]),
        size: m.checkpoints.map((c) => (c.picked ? 10 : 7)),
        opacity: m.checkpoints.map((c) => (c.superseded ? 0.45 : 1)),
        color: verdict.map((v) => paint(v[2])),
        line: { color: verdict.map((v) => paint(v[1])), width: 1.6 },
      },
    ),
    marks(m.skips, lift(m, 4 / Math.max(60, height - 66)), "y", {
      symbol: "line-ns-open",
      size: 8,
      color: paint("warn-mark"),
      line: { color: paint("warn-mark"), width: 1.5 },
    }),
    marks(
      m.carets.filter((c) => c.above).map((c) => c.step),
      m.y[1],
      "y",
      { symbol: "triangle-up", size: 8, color: paint("series-1") },
    ),
    marks(
      m.carets.filter((c) => !c.above).map((c) => c.step),
      m.y[0],
      "y",
      { symbol: "triangle-down", size: 8, color: paint("series-1") },
    ),
  ].filter((t) => t.x.length > 0);
}

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
        e.kind === "rollback" ? { color: paint("accent"), width: 1.2 } : { color: paint("line-3"), width: 1, dash: "1px,3px" },
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
function layout(m, width, height, paint) {
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

const CONFIG = { displayModeBar: false, doubleClick: false, showTips: false, responsive: false, scrollZoom: false };

/**
 * Draws `model` into `plot`, or brings what is there up to it.
 * @param {HTMLElement} plot
 * @param {Model} model
 * @param {{ width: number, height: number }} size
 */
export async function render(plot, model, { width, height }) {
  const plotly = await loadLibrary(),
    paint = paints();
  const traces = [
    ...model.areas.filter((area) => area.steps.length > 0).map((area) => bandTrace(area, paint)),
    ...model.lines.map((line) => trace(line, paint)),
    ...markTraces(model, paint, height),
  ];
  await plotly.react(plot, traces, layout(model, width, height, paint), CONFIG);
}

/**
 * Tells of the reader's zoom along the steps, and of the double click that takes it back. Once per plot, after the first `render`.
 * @param {HTMLElement} plot
 * @param {(from: number, to: number) => void} zoom
 * @param {() => void} reset
 */
export function listen(plot, zoom, reset) {
  const emitter = /** @type {any} */ (plot);
  emitter.on("plotly_relayout", (/** @type {any} */ change) => {
    const from = change["xaxis.range[0]"],
      to = change["xaxis.range[1]"];
    if (Number.isFinite(from) && Number.isFinite(to)) zoom(from, to);
  });
  emitter.on("plotly_doubleclick", reset);
}

/** Frees what Plotly keeps of a plot. @param {HTMLElement} plot */
export const erase = (plot) => /** @type {any} */ (window).Plotly?.purge(plot);

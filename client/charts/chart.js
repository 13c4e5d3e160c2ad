/**
 * The only module that calls Plotly: loads the library when the first chart is drawn, and turns a `Model` into traces;
 * `layout.js` has what stands around them, `frame.js` decides when.
 */
import { layout } from "./layout.js";
import { h } from "../widgets/dom.js";

/** @typedef {import("./model.js").Model} Model */

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

/** The colours of the present theme, read from the tokens. */
function paints() {
  const style = getComputedStyle(document.documentElement);
  return (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
}

/** @typedef {import("./layout.js").Paint} Paint */

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

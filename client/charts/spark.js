/** The loss of a run in 116 by 28 pixels: a line, and a cross where it is not finite. */
import { toNumber } from "../format.js";
import { robustRange } from "../series.js";
import { h } from "../widgets/dom.js";

const WIDTH = 116,
  HEIGHT = 28;

/**
 * @param {(number | string)[]} raw `number*`, oldest first
 * @param {{ faded?: boolean, share?: number }} [options] `share`: how far the run is, so that a young one draws a short line
 * @returns {Node | string}
 */
export function spark(raw, { faded = false, share = 1 } = {}) {
  const values = raw.map((v) => toNumber(v) ?? NaN);
  const range = robustRange(values);
  if (values.length < 2 || (range === null && values.length === 0)) return "\u2013";
  const [low, top] = range ?? [0, 1],
    high = Math.max(top, low + 0.35 * Math.abs(low)); // a flat run looks flat
  const x = (/** @type {number} */ i) => 2 + (i / (values.length - 1)) * (WIDTH - 8) * Math.max(0.12, Math.min(1, share * 4));
  const y = (/** @type {number} */ v) => HEIGHT - 3 - Math.min(1, Math.max(0, (v - low) / (high - low || 1))) * (HEIGHT - 10);
  let d = "",
    pen = false;
  values.forEach((v, i) => {
    const ok = Number.isFinite(v);
    if (ok) d += `${pen ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
    pen = ok;
  });
  return h(
    "svg",
    { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" },
    h("path", { d: d || "M0 0", class: faded ? "spark-line faded" : "spark-line" }),
    crosses(values, x),
  );
}

/** @param {number[]} values @param {(i: number) => number} x */
function crosses(values, x) {
  let last = -9;
  return values.flatMap((v, i) => {
    if (Number.isFinite(v) || x(i) - last < 6) return [];
    last = x(i);
    return [h("path", { class: "nf", d: `M${(last - 3).toFixed(1)} 2l6 6m0 -6l-6 6` })];
  });
}

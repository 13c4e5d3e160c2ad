/**
 * Several ranks in one chart: the band they span, or each rank by itself. Pure.
 *
 * @typedef {import("../series.js").Decoded} Decoded
 * @typedef {import("../series.js").Trace} Trace
 * @typedef {{ steps: number[], values: number[], superseded: boolean }} Area
 * @typedef {{ step: number, ranks: number, low: number, lowRank: number, high: number, highRank: number, odd: { rank: number, value: string }[] }} Extremes
 */
import { indexAt } from "../series.js";

/** So many ranks can be told apart by colour; of more, the server sends the band and one of them. */
export const MOST_LINES = 8;

/** The ranks whose points are there, ascending. @param {Decoded} data */
export const ranksIn = (data) => [...new Set(data.traces.map((trace) => trace.rank))].sort((a, b) => a - b);

/**
 * The colour of what is drawn with the ranks (the evaluation): the second, or the first that no line of a rank has. Beside eight
 * lines none is left and it is drawn in ink, 0.
 * @param {Decoded} data
 * @param {boolean} each
 */
export function colorBeside(data, each) {
  const lines = each ? Math.max(1, ...ranksIn(data).map((rank) => rank + 1)) : 1;
  return lines < MOST_LINES ? lines + 1 : 0;
}

/** The traces drawn as lines: all of them, or beside a band only those of the lowest rank. @param {Decoded} data @param {boolean} each */
export function drawn(data, each) {
  if (each || data.bands.length === 0) return data.traces;
  const [lowest] = ranksIn(data);
  return data.traces.filter((trace) => trace.rank === lowest);
}

/**
 * The bands as closed outlines, a NaN between two of them: along the highest values and back along the lowest. A band breaks
 * where no rank has a finite value, and on a logarithmic axis where one is not above zero.
 * @param {Decoded} data
 * @param {boolean} positive
 * @returns {Area[]}
 */
export function areas(data, positive) {
  return data.bands.map((band) => {
    /** @type {Area} */
    const area = { steps: [], values: [], superseded: band.superseded };
    /** @type {number[]} */
    let piece = [];
    const close = () => {
      if (piece.length > 1) {
        const back = [...piece].reverse();
        area.steps.push(...piece.map((i) => band.steps[i]), ...back.map((i) => band.steps[i]), NaN);
        area.values.push(...piece.map((i) => band.high[i]), ...back.map((i) => band.low[i]), NaN);
      }
      piece = [];
    };
    for (let i = 0; i < band.n; i += 1) {
      if (band.low[i] <= band.high[i] && !(positive && band.low[i] <= 0)) piece.push(i);
      else close();
    }
    close();
    return area;
  });
}

/** The edges of the bands, to be kept in view with the lines. @param {Decoded} data */
export const edges = (data) =>
  data.bands.flatMap((band) =>
    [band.low, band.high].map((values) => ({ steps: band.steps, values, superseded: band.superseded })),
  );

/**
 * What the ranks span at the step nearest to `step`, and which of them have no finite value there.
 * @param {Decoded} data
 * @param {number} step
 * @returns {Extremes | null}
 */
export function extremesAt(data, step) {
  let best = null;
  for (const band of data.bands) {
    if (band.superseded) continue;
    const before = indexAt(band.steps, step);
    for (const i of [before, before + 1]) {
      if (i < 0 || i >= band.n) continue;
      const away = Math.abs(band.steps[i] - step);
      if (best === null || away < best.away) best = { away, band, i };
    }
  }
  if (best === null) return null;
  const { band, i } = best,
    at = band.steps[i];
  const odd = data.nonfinite.filter((mark) => mark.step === at && !mark.superseded).map(({ rank, value }) => ({ rank, value }));
  return {
    step: at,
    ranks: band.ranks,
    low: band.low[i],
    lowRank: band.lowRanks[i],
    high: band.high[i],
    highRank: band.highRanks[i],
    odd,
  };
}

/** The ranks of marks, where several ranks are there to tell from: `2`, `0, 2`. @param {Decoded} data @param {{ rank: number }[]} marks */
export function culprits(data, marks) {
  if (data.bands.length === 0) return "";
  const ranks = [...new Set(marks.map((mark) => mark.rank))].sort((a, b) => a - b);
  return ranks.length > 4 ? `${ranks.slice(0, 4).join(", ")}, \u2026` : ranks.join(", ");
}

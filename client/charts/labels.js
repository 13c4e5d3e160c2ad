/**
 * The labels above a plot: what begins at the marks, each at its own mark and none over another. Pure.
 *
 * @typedef {{ at: number, text: string, tone: "crit" | "warn" | "acc" | "mute", anchor: "left" | "right" }} Label
 * @typedef {{ firstSign: string, restart: string, rollback: string, limit: string, offScale: string, trial?: string, fires?: string, ranks?: string, changed?: Record<number, string[]>, colon?: string, and?: string }} Words
 * `changed`: by segment, what is different since it began; `fires`: said instead of the first sign, at the step of the first firing
 */

export const MARGIN = { left: 48, right: 14, top: 14, bottom: 18 };
const LETTER = 6.3; // pixels, the widest face of the stack at 11 px
const WIDE = 11; // of a Chinese one

/**
 * Labels above the plot, the gravest first; one that would cover another is left out.
 * @param {{ marks: import("../timeline.js").Timeline, look: [number, number], labelled: boolean, words: Words, firstSign?: number | null, brush?: { from: number, to: number, label: string } | null }} wish
 * @param {number} perPixel
 * @returns {Label[]}
 */
export function labels({ marks, look, labelled, words, brush, firstSign = null }, perPixel) {
  if (!labelled) return [];
  /** @type {Label[]} */
  const wanted = brush ? [onPlot({ at: brush.from, text: brush.label, tone: "acc", anchor: "left" }, look, perPixel)] : [];
  const open = marks.bands
    .filter((b) => b.kind !== "mute" && (words.fires || (firstSign !== null && b.firing !== null && b.from >= firstSign)))
    .sort((a, b) => Number(b.open) - Number(a.open) || (a.kind === "crit" ? -1 : 1));
  const first = open.find((b) => (b.to ?? look[1]) >= look[0] && b.from <= look[1]);
  if (first) {
    const at = Math.min(first.to ?? look[1], look[1]),
      text = words.fires ? `${words.fires} ${first.firing ?? first.from}` : `${words.firstSign} ${firstSign}`;
    const label = /** @type {Label} */ ({ at, text, tone: first.kind, anchor: "right" });
    // Where the plot begins before the label would, it stands on the other side of the first sign.
    wanted.push(
      span(label, perPixel)[0] < look[0] - MARGIN.left * perPixel
        ? { ...label, at: Math.max(first.from, look[0]), anchor: "left" }
        : label,
    );
  }
  const taken = placed(wanted, perPixel);
  for (const line of lineLabels(marks.lines, words)) {
    const label = beside(line, marks.lines, taken, look, perPixel);
    if (label === null) continue;
    taken.push(span(label, perPixel));
    wanted.push(label);
  }
  for (const label of trialLabels(marks.bands, words, look)) {
    const place = span(label, perPixel);
    if (place[1] > look[1] || taken.some((other) => other !== null && place[0] < other[1] && place[1] > other[0])) continue;
    taken.push(place);
    wanted.push(label);
  }
  return wanted.filter((_, i) => taken[i] !== null);
}

/**
 * A band of a rule on trial is quiet and says that it is one, where there is room.
 * @param {import("../timeline.js").Band[]} bands @param {Words} words @param {[number, number]} look
 * @returns {Label[]}
 */
const trialLabels = (bands, words, look) =>
  bands
    .filter((b) => b.trial && b.firing !== null && b.from >= look[0] && b.from <= look[1])
    .map((b) => ({ at: b.from, text: words.trial ?? "", tone: "mute", anchor: "left" }));

/**
 * What to write at the lines, the newest first, each at length, shorter and in a word; a step at which several segments begin is one line, and its
 * newest one speaks. A line on a superseded stretch is drawn and says nothing: the curve that counts did not begin anew there.
 * @param {import("../timeline.js").Line[]} all @param {Words} words
 */
function lineLabels(all, words) {
  const newest = new Map(
    [...all]
      .filter((line) => !line.superseded)
      .sort((a, b) => a.segment - b.segment)
      .map((line) => [line.step, line]),
  );
  return [...newest.values()]
    .sort((a, b) => b.segment - a.segment)
    .map(({ step, cause, segment }) => {
      const short = words[cause],
        more = words.changed?.[segment] ?? [];
      const told = more.length > 1 ? [more, more.slice(0, 1)] : more.length ? [more] : [];
      return {
        step,
        cause,
        texts: [...told.map((part) => `${short}${words.colon ?? ": "}${part.join(words.and ?? ", ")}`), short],
      };
    });
}

/**
 * A label on the side of its line where it covers no other label, stays on the plot and has no other line near it: between two
 * lines it would be read as the other's. The short one where the long one finds no place, null where neither does.
 * @param {ReturnType<typeof lineLabels>[number]} line
 * @param {import("../timeline.js").Line[]} all
 * @param {([number, number] | null)[]} taken @param {[number, number]} look @param {number} perPixel
 * @returns {Label | null}
 */
function beside({ step, cause, texts }, all, taken, look, perPixel) {
  if (step < look[0] || step > look[1]) return null;
  const tone = cause === "rollback" ? "acc" : "mute";
  const tries = texts.flatMap((text) =>
    /** @type {const} */ (["left", "right"]).map((anchor) => ({ at: step, text, tone, anchor })),
  );
  return /** @type {Label | null} */ (
    tries.find((label) => {
      const [from, to] = span(/** @type {Label} */ (label), perPixel);
      return (
        taken.every((other) => other === null || from >= other[1] || to <= other[0]) &&
        all.every((other) => other.step === step || other.step < from || other.step > to) &&
        from >= look[0] &&
        to <= look[1] + MARGIN.right * perPixel
      );
    }) ?? null
  );
}

/** A label that would run off the right edge stands on the other side of its mark. @param {Label} label @param {[number, number]} look @param {number} perPixel @returns {Label} */
const onPlot = (label, look, perPixel) =>
  span(label, perPixel)[1] > look[1] + MARGIN.right * perPixel ? { ...label, anchor: "right" } : label;

/** About how wide a text is, in pixels. @param {string} text */
export const lengthOf = (text) => [...text].reduce((sum, letter) => sum + (letter > "\u2e80" ? WIDE : LETTER), 8);

/** The steps a label covers. @param {Label} label @param {number} perPixel @returns {[number, number]} */
function span({ at, text, anchor }, perPixel) {
  const length = lengthOf(text) * perPixel;
  return anchor === "right" ? [at - length, at] : [at, at + length];
}

/** The places of labels in order of weight; null for one that would cover a weightier one. @param {Label[]} wanted @param {number} perPixel */
function placed(wanted, perPixel) {
  /** @type {([number, number] | null)[]} */
  const taken = [];
  for (const label of wanted) {
    const [from, to] = span(label, perPixel);
    taken.push(taken.some((other) => other !== null && from < other[1] && to > other[0]) ? null : [from, to]);
  }
  return taken;
}

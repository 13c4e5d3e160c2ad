/**
 * The labels above a plot: what begins at the marks, each at its own mark and none over another. Pure.
 *
 * @typedef {{ at: number, text: string, tone: "crit" | "warn" | "acc" | "mute", anchor: "left" | "right" }} Label
 * @typedef {{ firstSign: string, restart: string, rollback: string, limit: string, offScale: string, ranks?: string, changed?: Record<number, string[]>, colon?: string, and?: string }} Words
 * `changed`: by segment, what is different since it began
 */

export const MARGIN = { left: 48, right: 14, top: 14, bottom: 18 };
const LETTER = 6.3; // pixels, the widest face of the stack at 11 px
const WIDE = 11; // of a Chinese one

/**
 * Labels above the plot, the gravest first; one that would cover another is left out.
 * @param {{ marks: import("../timeline.js").Timeline, look: [number, number], labelled: boolean, words: Words, brush?: { from: number, to: number, label: string } | null }} wish
 * @param {number} perPixel
 * @returns {Label[]}
 */
export function labels({ marks, look, labelled, words, brush }, perPixel) {
  if (!labelled) return [];
  /** @type {Label[]} */
  const wanted = brush ? [onPlot({ at: brush.from, text: brush.label, tone: "acc", anchor: "left" }, look, perPixel)] : [];
  const open = marks.bands
    .filter((b) => b.kind !== "mute")
    .sort((a, b) => Number(b.open) - Number(a.open) || (a.kind === "crit" ? -1 : 1));
  const first = open.find((b) => (b.to ?? look[1]) >= look[0] && b.from <= look[1]);
  if (first) {
    const sign = Math.min(...open.filter((b) => b.open === first.open && (b.to ?? look[1]) >= first.from).map((b) => b.from));
    wanted.push({
      at: Math.min(first.to ?? look[1], look[1]),
      text: `${words.firstSign} ${sign}`,
      tone: first.kind,
      anchor: "right",
    });
  }
  const taken = placed(wanted, perPixel);
  for (const line of lineLabels(marks.lines, words)) {
    const label = beside(line, marks.lines, taken, look, perPixel);
    if (label === null) continue;
    taken.push(span(label, perPixel));
    wanted.push(label);
  }
  return wanted.filter((_, i) => taken[i] !== null);
}

/**
 * What to write at the lines, the newest first, each at length, shorter and in a word; a step at which several segments begin is one line, and its
 * newest one speaks.
 * @param {import("../timeline.js").Line[]} all @param {Words} words
 */
function lineLabels(all, words) {
  const newest = new Map([...all].sort((a, b) => a.segment - b.segment).map((line) => [line.step, line]));
  return [...newest.values()]
    .sort((a, b) => b.segment - a.segment)
    .map(({ step, cause, segment }) => {
      const short = words[cause],
        more = words.changed?.[segment] ?? [];
      const told = more.length > 1 ? [more, more.slice(0, 1)] : more.length ? [more] : [];
      return { step, cause, texts: [...told.map((part) => `${short}${words.colon ?? ": "}${part.join(words.and ?? ", ")}`), short] };
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

/** The steps a label covers. @param {Label} label @param {number} perPixel @returns {[number, number]} */
function span({ at, text, anchor }, perPixel) {
  const length = [...text].reduce((sum, letter) => sum + (letter > "\u2e80" ? WIDE : LETTER), 8) * perPixel;
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

/** Lists of sample ids as a person reads them: ranges where they follow each other. Pure. */

const MOST = 60; // parts shown; the rest is a count

/**
 * "17, 40–44, 9", in the order in which they went in.
 * @param {number[]} ids
 * @returns {{ text: string, more: number }} `more`: ids that are not in the text
 */
export function ranges(ids) {
  /** @type {[number, number][]} */
  const runs = [];
  for (const id of ids) {
    const last = runs.at(-1);
    if (last && id === last[1] + 1) last[1] = id;
    else runs.push([id, id]);
  }
  const shown = runs.slice(0, MOST),
    text = shown
      .map(([from, to]) => (from === to ? String(from) : to === from + 1 ? `${from}, ${to}` : `${from}\u2013${to}`))
      .join(", ");
  return { text, more: ids.length - shown.reduce((sum, [from, to]) => sum + to - from + 1, 0) };
}

/**
 * Documents with how many of the samples are of each, in the order of their first sample.
 * @param {string[]} documents one for each sample
 * @returns {{ document: string, samples: number }[]}
 */
export function counted(documents) {
  /** @type {Map<string, number>} */
  const seen = new Map();
  for (const name of documents) seen.set(name, (seen.get(name) ?? 0) + 1);
  return [...seen].map(([document, samples]) => ({ document, samples }));
}

/**
 * Sentences of which parts can be pointed at. Pure.
 *
 * @typedef {{ text: string, field?: string }} Piece `field`: what a click on it leads to
 */

/**
 * The pieces of a sentence: its text, and what fills its places, which a click leads to the field of. Of alternatives parted by
 * `|` the first is taken whose places are all filled.
 * @param {string} template
 * @param {Record<string, { text: string, field: string } | { parts: Piece[] } | null>} places
 * @returns {Piece[] | null} null where no alternative fits
 */
export function pieces(template, places) {
  const fit = template.split("|").find((one) => [...one.matchAll(/\{(\w+)\}/g)].every(([, name]) => places[name]));
  if (fit === undefined) return null;
  return fit
    .split(/(\{\w+\})/)
    .filter(Boolean)
    .flatMap((part) => {
      const place = /^\{\w+\}$/.test(part) ? places[part.slice(1, -1)] : null;
      return place ? ("parts" in place ? place.parts : [place]) : [{ text: part }];
    });
}

/**
 * What the server stores or answers in English alone, such as why a checkpoint is unsound or a command refused: found by how they read and said in another
 * language. The table is the server's own; what is not in it stays as it is, such as the message of an operating system. Pure.
 *
 * @typedef {{ clauses: Record<string, string>, words: Record<string, string> }} Table `clauses`: English to the other language, with
 * the same {places}; `words`: what may stand in the places named `kind`, `state` and `parts`
 * @typedef {(text: string) => string} Translator
 */

const PLACE = /\{(\w+)\}/;
const MOST_CHARACTERS = 500; // a longer text is no clause of these
const MOST_KEPT = 2000; // texts with what they are in the other language

/** @param {Table} table @returns {Translator} */
export function translator({ clauses, words }) {
  const known = Object.entries(clauses).map(([english, other]) => ({ pattern: pattern(english), other }));
  const kinds = new Map(Object.entries(words));
  // A clause within others is looked at once for each that it may stand in: without this, the work doubles with every level.
  /** @type {Map<string, string>} */
  const said = new Map();
  /** @type {Translator} */
  const translate = (text) => {
    if (text.length > MOST_CHARACTERS) return text;
    const before = said.get(text);
    if (before !== undefined) return before;
    const now = firstThatFits(text);
    if (said.size >= MOST_KEPT) said.clear();
    said.set(text, now);
    return now;
  };
  /** @param {string} text */
  const firstThatFits = (text) => {
    for (const { pattern: wanted, other } of known) {
      const match = wanted.exec(text),
        whole = match && filled(other, match.groups ?? {});
      if (whole !== null) return whole;
    }
    const several = text.split("; "),
      each = several.length > 1 ? several.map(translate) : several;
    return each.some((one, at) => one !== several[at]) ? each.join("\uff1b") : text;
  };
  /** @param {string} other @param {Record<string, string>} found @returns {string | null} null: it only seems to fit */
  const filled = (other, found) => {
    const parts = new Map(Object.entries(found).map(([name, value]) => [name, part(name, value)]));
    if ([...parts.values()].includes(null)) return null;
    return other.replace(/\{(\w+)\}/g, (place, name) => parts.get(name) ?? place);
  };
  /** What fills a place; null where it must be known and is not. @param {string} name @param {string} value */
  const part = (name, value) => {
    if (name === "kind" || name === "state") return kinds.get(value) ?? null;
    if (name === "parts") {
      const each = value.split(" and no ").map((word) => kinds.get(word));
      return each.every(Boolean) ? each.join("\u548c") : null;
    }
    if (name !== "why" && name !== "because") return value;
    const inside = translate(value);
    return name === "because" && inside === value ? null : inside;
  };
  return translate;
}

/** @param {string} english */
function pattern(english) {
  const pieces = english.split(PLACE),
    escaped = (/** @type {string} */ text) => text.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");
  return new RegExp(`^${pieces.map((piece, i) => (i % 2 ? `(?<${piece}>.+?)` : escaped(piece))).join("")}$`, "s");
}

/**
 * Clauses that the server stores in English alone, such as why a checkpoint is unsound: found by how they read and said in another
 * language. The table is the server's own; what is not in it stays as it is, such as the message of an operating system. Pure.
 *
 * @typedef {{ clauses: Record<string, string>, words: Record<string, string> }} Table `clauses`: English to the other language, with
 * the same {places}; `words`: what may stand in the places named `kind` and `parts`
 * @typedef {(text: string) => string} Translator
 */

const PLACE = /\{(\w+)\}/;
const MOST_CHARACTERS = 500; // a longer text is no clause of these

/** @param {Table} table @returns {Translator} */
export function translator({ clauses, words }) {
  const known = Object.entries(clauses).map(([english, other]) => ({ pattern: pattern(english), other }));
  /** @type {Translator} */
  const translate = (text) => {
    if (text.length > MOST_CHARACTERS) return text;
    for (const { pattern: wanted, other } of known) {
      const found = wanted.exec(text),
        said = found && filled(other, found.groups ?? {});
      if (said !== null) return said;
    }
    return text;
  };
  /** @param {string} other @param {Record<string, string>} found @returns {string | null} null: it only seems to fit */
  const filled = (other, found) => {
    const parts = new Map(Object.entries(found).map(([name, value]) => [name, part(name, value)]));
    if ([...parts.values()].includes(null)) return null;
    return other.replace(/\{(\w+)\}/g, (place, name) => parts.get(name) ?? place);
  };
  /** What fills a place; null where it must be known and is not. @param {string} name @param {string} value */
  const part = (name, value) => {
    if (name === "kind") return words[value] ?? null;
    if (name === "parts") {
      const each = value.split(" and no ").map((word) => words[word]);
      return each.every(Boolean) ? each.join("\u548c") : null;
    }
    if (name !== "why" && name !== "because") return value;
    const said = translate(value);
    return name === "because" && said === value ? null : said;
  };
  return translate;
}

/** @param {string} english */
function pattern(english) {
  const pieces = english.split(PLACE),
    escaped = (/** @type {string} */ text) => text.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");
  return new RegExp(`^${pieces.map((piece, i) => (i % 2 ? `(?<${piece}>.+?)` : escaped(piece))).join("")}$`, "s");
}

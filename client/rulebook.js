/**
 * All rules of the page and what is being done to them: which is open, what was typed and is not saved yet, and whether somebody
 * else has changed the same meanwhile. Pure.
 *
 * One draft per rule, so that going from rule to rule loses nothing. A draft remembers the rule it was made on (`base`): where the
 * stored one is of another version, the two are in conflict and the person decides. A draft that says what is stored is no draft.
 *
 *   step(book, input) -> book
 *     rules     the server's list: drafts stay, unless what they say is saved now
 *     select    another rule is opened
 *     edit      one field is changed; the first edit makes the draft
 *     discard   the draft goes; of a new rule, the rule too
 *     mine      keep my draft, now on what is stored (it will overwrite it)
 *     saved     the server has taken the draft: it goes, the rule is as answered
 *     switching the person has switched the rule on or off: so it stands, whatever is read meanwhile, until the server has answered
 *     switched  the rule was switched on or off: the draft stays, on the rule as answered
 *     unswitched  the server has refused that: the rule is as it was
 *     deleted   the rule is gone, and its draft with it
 *
 * @typedef {import("./rules.js").Rule} Rule
 * @typedef {import("./rules.js").Draft} Draft
 * @typedef {import("./rules.js").Detector} Detector
 * @typedef {{ draft: Draft, base: Rule | null }} Editing
 * @typedef {{ rules: Rule[] | null, detectors: Detector[], open: string, editing: Record<string, Editing>,
 *   switching: Record<string, boolean> }} Book
 * @typedef {{ kind: "rules", rules: Rule[], detectors: Detector[] } | { kind: "select", id: string } | { kind: "edit", field: string, value: string }
 *   | { kind: "discard" } | { kind: "mine" } | { kind: "saved", rule: Rule } | { kind: "switching", id: string, enabled: boolean } | { kind: "switched", rule: Rule }
 *   | { kind: "unswitched", id: string, enabled: boolean } | { kind: "deleted", id: string }} Input
 */
import { blank, changed, draftOf, edits, problems, settingsOf } from "./rules.js";

/** The id under which a rule is written that is not stored yet. */
export const NEW = "new";

/** @type {Book} */
export const EMPTY = { rules: null, detectors: [], open: "", editing: {}, switching: {} };

/**
 * @param {Book} book
 * @param {Input} input
 * @returns {Book}
 */
export const step = (book, input) => switched(stepped(book, input));

/** @param {Book} book @param {Input} input @returns {Book} */
function stepped(book, input) {
  switch (input.kind) {
    case "rules":
      return opened(kept({ ...book, rules: input.rules, detectors: input.detectors }));
    case "select":
      return opened({ ...book, open: input.id });
    case "edit":
      return edited(book, input.field, input.value);
    case "discard":
      return discarded(book);
    case "mine":
      return rebased(book, stored(book, book.open));
    case "saved":
      return { ...replaced(without(book, book.open), input.rule), open: input.rule.rule_id };
    case "switching":
      return stored(book, input.id) ? { ...book, switching: { ...book.switching, [input.id]: input.enabled } } : book;
    case "switched":
      return rebased(replaced(answered(book, input.rule.rule_id, input.rule.enabled), input.rule), input.rule);
    case "unswitched":
      return switchedBack(book, stored(book, input.id), input.enabled);
    default:
      return opened(without({ ...book, rules: (book.rules ?? []).filter((r) => r.rule_id !== input.id), open: "" }, input.id));
  }
}

/** @param {Book} book @param {string} id @returns {Rule | null} */
const stored = (book, id) => book.rules?.find((r) => r.rule_id === id) ?? null;

/** Something is open wherever there is something to open; a new rule has its draft at once. @param {Book} book @returns {Book} */
function opened(book) {
  const { rules, open, editing, detectors } = book;
  if (rules === null) return book;
  if (open === NEW)
    return editing[NEW] ? book : { ...book, editing: { ...editing, [NEW]: { draft: blank(detectors), base: null } } };
  return open in editing || stored(book, open) ? book : { ...book, open: rules[0]?.rule_id ?? "" };
}

/** Drafts that are still different from what is stored. @param {Book} book @returns {Book} */
function kept(book) {
  const left = Object.entries(book.editing).filter(([id, { draft }]) => {
    const rule = stored(book, id);
    return id === NEW || rule === null || edits(draft, rule, book.detectors).length > 0;
  });
  return { ...book, editing: Object.fromEntries(left) };
}

/** @param {Book} book @param {string} field @param {string} value @returns {Book} */
function edited(book, field, value) {
  const now = current(book);
  if (now === null) return book;
  const draft = changed(now.draft, field, value, book.detectors);
  const next = { ...book, editing: { ...book.editing, [book.open]: { draft, base: now.base } } };
  // Typed back to what is stored: nothing is left to save.
  return now.base && edits(draft, now.base, book.detectors).length === 0 ? without(next, book.open) : next;
}

/** @param {Book} book @returns {Book} */
function discarded(book) {
  const left = without(book, book.open);
  return book.open === NEW || stored(book, book.open) === null ? opened({ ...left, open: "" }) : left;
}

/** @param {Book} book @param {string} id @returns {Book} */
function without(book, id) {
  const { [id]: _gone, ...editing } = book.editing;
  return { ...book, editing };
}

/** The draft of `rule` stands on it now. @param {Book} book @param {Rule | null} rule @returns {Book} */
function rebased(book, rule) {
  const editing = rule && book.editing[rule.rule_id];
  if (!rule || !editing) return book;
  return kept({ ...book, editing: { ...book.editing, [rule.rule_id]: { draft: editing.draft, base: rule } } });
}

/**
 * A switch is settled, unless the person has switched back meanwhile.
 * @param {Book} book @param {string} id @param {boolean} enabled @returns {Book}
 */
function answered(book, id, enabled) {
  const { [id]: wanted, ...switching } = book.switching;
  return wanted === enabled ? { ...book, switching } : book;
}

/** @param {Book} book @param {Rule | null} rule @param {boolean} enabled @returns {Book} */
function switchedBack(book, rule, enabled) {
  const left = rule ? answered(book, rule.rule_id, enabled) : book;
  return rule && left !== book ? replaced(left, { ...rule, enabled: !enabled }) : left;
}

/** The rules as the person has switched them; the server may not know it yet. @param {Book} book @returns {Book} */
function switched(book) {
  if (book.rules === null || Object.keys(book.switching).length === 0) return book;
  const rules = book.rules.map((rule) => ({ ...rule, enabled: book.switching[rule.rule_id] ?? rule.enabled }));
  return { ...book, rules };
}

/** The rule in its place, a new one at the end. @param {Book} book @param {Rule} rule @returns {Book} */
function replaced(book, rule) {
  const rules = book.rules ?? [],
    known = rules.some((r) => r.rule_id === rule.rule_id);
  return { ...book, rules: known ? rules.map((r) => (r.rule_id === rule.rule_id ? rule : r)) : [...rules, rule] };
}

/**
 * What the editor shows: the open rule, what its fields hold, and how that stands to what is stored.
 * @param {Book} book
 * @returns {{ id: string, rule: Rule | null, base: Rule | null, draft: Draft, edited: boolean, isNew: boolean, gone: boolean,
 *   theirs: { rule: Rule, fields: string[] } | null, wrong: import("./rules.js").Wrong[] } | null}
 */
export function current(book) {
  const editing = book.editing[book.open],
    rule = stored(book, book.open);
  if (!editing && !rule) return null;
  const draft = editing?.draft ?? draftOf(/** @type {Rule} */ (rule), book.detectors),
    base = editing ? editing.base : rule;
  const moved = rule !== null && base !== null && editing !== undefined && rule.version !== base.version;
  return {
    id: book.open,
    rule,
    base,
    draft,
    edited: editing !== undefined,
    isNew: base === null,
    gone: base !== null && rule === null,
    theirs: moved ? { rule, fields: edits(draftOf(rule, book.detectors), base, book.detectors) } : null,
    wrong: problems(draft, book.detectors),
  };
}

/** Whether leaving the page would lose something. @param {Book} book */
export const unsaved = (book) =>
  Object.entries(book.editing).some(
    ([id, { draft }]) => id !== NEW || JSON.stringify(draft) !== JSON.stringify(blank(book.detectors)),
  );

/** How many rules there are, and how many are on. @param {Rule[]} rules */
export const counts = (rules) => ({ count: rules.length, on: rules.filter((rule) => rule.enabled).length });

/**
 * The fields that the server found wrong, in its own words; what it says of all settings stands at the first.
 * @param {{ field: string, message: string }[]} errors
 * @param {Detector[]} detectors
 * @param {string} kind of the rule's detector
 * @returns {import("./rules.js").Wrong[]}
 */
export function flawsOf(errors, detectors, kind) {
  const first = settingsOf(detectors, kind)[0]?.name ?? "";
  return errors.map(({ field, message }) => ({
    field: field === "settings" ? `settings.${first}` : field,
    key: "",
    text: message,
  }));
}

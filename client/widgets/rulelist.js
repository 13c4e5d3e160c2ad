/** The list of rules beside the editor; on a phone it is one field to choose from. */
import { NEW } from "../rulebook.js";
import { rulePath } from "../router.js";
import { t } from "../i18n/index.js";
import { h } from "./dom.js";
import { glyph } from "./icons.js";
import { ruleSwitch } from "./rulefields.js";
import { ruleName, ruleSub } from "./rulewords.js";

/** @typedef {import("../rules.js").Rule} Rule */

const SHAPES = /** @type {Record<string, [string, string]>} */ ({
  critical: ["firing", "crit"],
  warning: ["warning", "warn"],
  info: ["complete", "mute"],
});

/**
 * @param {import("../rulebook.js").Book} book
 * @param {boolean} readOnly
 */
export function ruleList(book, readOnly) {
  const rules = book.rules ?? [];
  return h(
    "nav",
    { class: "card rules-list hide-phone", "aria-label": t("rules.list"), "data-key": "list" },
    NEW in book.editing && newRow(book.editing[NEW].draft.name, book.open === NEW),
    rules.map((rule) => row(rule, rule.rule_id === book.open, rule.rule_id in book.editing, readOnly)),
    rules.length === 0 && h("p", { class: "pad quiet" }, t("rules.none")),
  );
}

/** @param {string} name @param {boolean} isOpen */
const newRow = (name, isOpen) =>
  h(
    "div",
    { class: "rule-row", "data-key": NEW, "aria-current": isOpen ? "true" : null },
    h(
      "a",
      { href: rulePath(NEW), "aria-current": isOpen ? "true" : null },
      h("span", { class: "mark mute" }, glyph("writing")),
      h("span", { class: "name" }, name.trim() || t("rules.new")),
      h("small", {}, t("rules.unsaved.new")),
    ),
  );

/** @param {Rule} rule @param {boolean} isOpen @param {boolean} isEdited @param {boolean} readOnly */
function row(rule, isOpen, isEdited, readOnly) {
  const [shape, tone] = SHAPES[rule.severity] ?? SHAPES.info;
  return h(
    "div",
    { class: "rule-row", "data-key": rule.rule_id, "data-rule": rule.rule_id, "aria-current": isOpen ? "true" : null },
    h(
      "a",
      { href: rulePath(rule.rule_id), "aria-current": isOpen ? "true" : null },
      h("span", { class: `mark ${tone}` }, glyph(shape)),
      h("span", { class: rule.enabled ? "name" : "name quiet" }, ruleName(rule)),
      h("small", {}, ruleSub(rule)),
      h("span", { class: "badges" }, badges(rule, isEdited)),
    ),
    ruleSwitch(rule, readOnly, t("rules.switch", { name: ruleName(rule) })),
  );
}

/** @param {Rule} rule @param {boolean} isEdited */
const badges = (rule, isEdited) => [
  rule.open_alerts > 0 &&
    h("span", { class: "count", title: openAlerts(rule), "aria-label": openAlerts(rule) }, String(rule.open_alerts)),
  rule.failure && h("span", { class: "badge crit", title: rule.failure.text }, t("rules.failed")),
  rule.never_seen.length > 0 && h("span", { class: "badge open" }, t("rules.no_data")),
  rule.trial && h("span", { class: "badge open" }, t("rules.trial")),
  isEdited
    ? h("span", { class: "badge busy" }, t("rules.unsaved"))
    : rule.is_default && rule.edited && h("span", { class: "badge mute" }, t("rules.edited")),
];

/** @param {Rule} rule */
const openAlerts = (rule) => t(rule.open_alerts === 1 ? "rules.open.one" : "rules.open", { count: rule.open_alerts });

/** The list as one field, for a phone. @param {import("../rulebook.js").Book} book */
export const rulePick = (book) =>
  h(
    "div",
    { class: "rules-pick", "data-key": "pick" },
    h(
      "select",
      { class: "input", "data-pick": "rule", "data-value": book.open, "aria-label": t("rules.list") },
      NEW in book.editing && h("option", { value: NEW, selected: book.open === NEW }, t("rules.new")),
      (book.rules ?? []).map((rule) =>
        h(
          "option",
          { value: rule.rule_id, selected: rule.rule_id === book.open, "data-key": rule.rule_id },
          pickName(rule, rule.rule_id in book.editing),
        ),
      ),
    ),
  );

/** @param {Rule} rule @param {boolean} isEdited */
const pickName = (rule, isEdited) =>
  [ruleName(rule), !rule.enabled && t("off"), rule.trial && t("rules.trial"), isEdited && t("rules.unsaved")]
    .filter(Boolean)
    .join(" \u00b7 ");

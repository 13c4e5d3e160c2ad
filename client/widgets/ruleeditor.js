/** The editor of one rule: what it says, its fields, what is to be known of it, and the bar that saves it. */
import { fields } from "../rules.js";
import { t } from "../i18n/index.js";
import { h } from "./dom.js";
import { glyph } from "./icons.js";
import { between, when } from "./parts.js";
import { ruleField, seriesNames } from "./rulefields.js";
import { fieldLabel, ruleName, sentence, wrongText } from "./rulewords.js";

/**
 * @typedef {NonNullable<ReturnType<typeof import("../rulebook.js").current>>} Current
 * @typedef {import("./rulefields.js").Form} Form
 * @typedef {{ detail: string, fix: string } | null} Refused
 */

const WORDS = new Set(["name", "title", "reason"]);

/** @param {Current} now @param {Form} form @param {boolean} isOpen whether its name and reason are unfolded */
export function ruleEditor(now, form, isOpen) {
  const all = fields(form.draft, form.detectors),
    { rule } = now;
  return h(
    "section",
    { class: "card pad stack rule-form", "data-key": `editor-${now.id}`, "aria-label": title(now) },
    head(now, form.readOnly),
    rule && standing(rule),
    sentence(form.draft, form.detectors),
    rule?.trial && h("p", { class: "why", "data-key": "trial" }, t("rules.say.trial")),
    h(
      "div",
      { class: "form", "data-key": "fields" },
      all.filter((f) => !WORDS.has(f)).map((f) => ruleField(f, form)),
    ),
    form.draft.reason && !now.isNew && h("p", { class: "why", "data-key": "why" }, t("rules.why", { reason: form.draft.reason })),
    h(
      "details",
      { class: "fold", "data-key": "words", open: isOpen },
      h("summary", {}, t("rules.details")),
      h(
        "div",
        { class: "form" },
        all.filter((f) => WORDS.has(f)).map((f) => ruleField(f, form)),
      ),
    ),
    seriesNames(form.series),
  );
}

/** @param {Current} now */
const title = (now) =>
  now.isNew
    ? now.draft.name.trim() || t("rules.new")
    : now.rule && now.draft.name === now.rule.name
      ? ruleName(now.rule)
      : now.draft.name;

/** @param {Current} now @param {boolean} readOnly */
function head(now, readOnly) {
  const { rule } = now;
  return h(
    "div",
    { class: "bar", "data-key": "head" },
    h("h2", {}, title(now)),
    now.isNew
      ? h("span", { class: "badge busy" }, t("rules.unsaved.new"))
      : now.edited && h("span", { class: "badge busy" }, t("rules.unsaved.long")),
    rule?.trial && h("span", { class: "badge open" }, t("rules.trial")),
    h("span", { class: "gap" }),
    rule &&
      h(
        "label",
        { class: "switch" },
        h("input", {
          type: "checkbox",
          "data-switch": rule.rule_id,
          "data-value": String(rule.enabled),
          checked: rule.enabled,
          disabled: readOnly,
        }),
        h("span", { class: "amount" }, rule.enabled ? t("on") : t("rules.off")),
      ),
  );
}

/** What is to be known of a rule that does not do its work. @param {import("../rules.js").Rule} rule */
function standing(rule) {
  const seen = rule.never_seen.map((run) => run.run_name);
  const names = seen.slice(0, 3).join(", ");
  return [
    rule.failure &&
      h("div", { class: "notice crit", "data-key": "failure" }, glyph("failed"), h("span", {}, failure(rule.failure))),
    seen.length > 0 &&
      h(
        "div",
        { class: "notice info", "data-key": "never" },
        glyph("info"),
        h(
          "span",
          {},
          t("rules.never_seen", { runs: seen.length > 3 ? t("rules.and_more", { names, count: seen.length - 3 }) : names }),
        ),
      ),
  ];
}

/** @param {{ at: string, text: string }} failed */
function failure(failed) {
  const [before, after] = t("rules.failure", { text: failed.text }).split("{at}");
  return [before, when(failed.at), after];
}

/**
 * The bar that saves; it stays in sight.
 * @param {Current} now
 * @param {Form} form
 * @param {{ busy: boolean, refused: Refused, said: string, whyNot: string | null }} how `whyNot`: why nothing can be changed at all
 */
export function saveBar(now, form, { busy, refused, said, whyNot }) {
  const { rule, isNew } = now,
    first = now.wrong[0],
    next = (rule?.version ?? 0) + 1,
    anew = isNew || now.gone;
  const blocked = busy || Boolean(first) || Boolean(whyNot);
  const live = anew
    ? t("rules.save.new")
    : rule?.trial
      ? t("rules.save.end", { version: next })
      : t("rules.save", { version: next });
  const canSave = !blocked && (now.edited || anew || Boolean(rule?.trial)),
    canTry = !blocked && (now.edited || anew || !rule?.trial);
  return h(
    "div",
    { class: "savebar", "data-key": "bar" },
    conflict(now, form),
    refused &&
      h(
        "div",
        { class: "notice", role: "alert", "data-key": "refused" },
        glyph("warning"),
        h("span", {}, t("rules.refused", { detail: refused.detail }), refused.fix && [between(refused.detail), refused.fix]),
      ),
    h(
      "div",
      { class: "bar actionbar", "data-key": "buttons" },
      h(
        "button",
        { class: "btn primary", "data-act": "save", "aria-disabled": String(!canSave) },
        busy ? t("rules.saving") : live,
      ),
      h(
        "button",
        { class: "btn", "data-act": "try", "aria-disabled": String(!canTry) },
        t(anew ? "rules.save.new.trial" : "rules.save.trial"),
      ),
      h("button", { class: "btn bare", "data-act": "discard", hidden: !(now.edited || isNew) }, t("rules.discard")),
      h("span", { class: "why said", role: "status" }, whyNot ?? saying(now, form, said, next)),
      rule && !whyNot && aside(rule, busy),
    ),
  );
}

/** Taking the rule out, or back to what it was. @param {import("../rules.js").Rule} rule @param {boolean} busy */
function aside(rule, busy) {
  if (!rule.is_default)
    return h("button", { class: "btn bare stop", "data-act": "delete", "aria-disabled": String(busy) }, t("rules.delete"));
  return rule.edited && h("button", { class: "btn bare", "data-act": "reset", "aria-disabled": String(busy) }, t("rules.reset"));
}

/** @param {Current} now @param {Form} form @param {string} said @param {number} next */
function saying(now, form, said, next) {
  const first = now.wrong[0];
  if (first)
    return t("rules.not_saved", { field: fieldLabel(first.field, form.draft, form.detectors), problem: wrongText(first) });
  if (now.edited && !now.isNew && !now.gone) return t("rules.ready", { version: next });
  if (now.isNew || now.gone) return t("rules.ready.new");
  return said || t("rules.clean", { version: now.rule?.version ?? "" });
}

/** Somebody else has saved the same rule; the choice stays the reader's. @param {Current} now @param {Form} form */
function conflict(now, form) {
  if (now.gone)
    return h("div", { class: "notice", role: "alert", "data-key": "gone" }, glyph("warning"), h("span", {}, t("rules.gone")));
  if (!now.theirs) return null;
  const { rule, fields: changed } = now.theirs;
  const names = changed.map((field) => fieldLabel(field, form.draft, form.detectors)).join(t("order.and"));
  return h(
    "div",
    { class: "notice", role: "alert", "data-key": "theirs" },
    glyph("warning"),
    h("span", {}, t(names ? "rules.theirs" : "rules.theirs.none", { version: rule.version, fields: names })),
    h("span", { class: "gap" }),
    h("button", { class: "btn small", "data-act": "discard" }, t("rules.theirs.take")),
    h("button", { class: "btn small", "data-act": "mine" }, t("rules.theirs.keep")),
  );
}

/** The editor of one rule: what it says, its fields, what is to be known of it, and the bar that saves it. */
import { edits, fields } from "../rules.js";
import { ruleReason, t } from "../i18n/index.js";
import { h } from "./dom.js";
import { glyph } from "./icons.js";
import { between, when } from "./parts.js";
import { ruleField, ruleSwitch, seriesNames } from "./rulefields.js";
import { fieldLabel, mainSettings, ruleName, sentence, wrongText } from "./rulewords.js";

/**
 * @typedef {NonNullable<ReturnType<typeof import("../rulebook.js").current>>} Current
 * @typedef {import("./rulefields.js").Form} Form
 * @typedef {{ detail: string, fix: string } | null} Refused
 */

const WORDS = new Set(["name", "title", "reason"]);

/** @param {Current} now @param {Form} form @param {Record<string, boolean>} unfolded which parts the reader has opened or closed */
export function ruleEditor(now, form, unfolded) {
  const all = fields(form.draft, form.detectors),
    main = mainSettings(form.draft.detector, form.detectors),
    { rule } = now;
  const isMore = (/** @type {string} */ field) => field.startsWith("settings.") && !main.has(field);
  const plain = all.filter((field) => !WORDS.has(field) && !isMore(field)),
    more = all.filter(isMore);
  return h(
    "section",
    { class: "card pad stack rule-form", "data-key": `editor-${now.id}`, "aria-label": title(now) },
    head(now, form.readOnly),
    rule && standing(rule),
    now.isNew && words(form, true),
    sentence(form.draft, form.detectors),
    rule?.trial && h("p", { class: "why", "data-key": "trial" }, t("rules.say.trial")),
    h(
      "div",
      { class: "form", "data-key": "fields" },
      plain.map((field) => ruleField(field, form)),
    ),
    more.length > 0 && fold("more", t("rules.more", { count: more.length }), more, form, unfolded.more ?? false),
    form.draft.reason &&
      !now.isNew &&
      h("p", { class: "why", "data-key": "why" }, t("rules.why", { reason: ruleReason(now.id, form.draft.reason) })),
    !now.isNew && words(form, unfolded.words ?? false),
    seriesNames(form.series),
  );
}

/** @param {Form} form @param {boolean} isOpen */
const words = (form, isOpen) => fold("words", t("rules.details"), [...WORDS], form, isOpen);

/** Fields that are folded away until they are looked for, or are wrong. @param {string} key @param {string} summary @param {string[]} names @param {Form} form @param {boolean} isOpen */
function fold(key, summary, names, form, isOpen) {
  const isWrong = form.wrong.some((w) => names.includes(w.field));
  return h(
    "details",
    { class: "fold", "data-key": key, open: isOpen || isWrong },
    h("summary", {}, summary),
    h(
      "div",
      { class: "form" },
      names.map((field) => ruleField(field, form)),
    ),
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
    rule && ruleSwitch(rule, readOnly, null, h("span", { class: "amount" }, rule.enabled ? t("on") : t("rules.off"))),
  );
}

/** What is to be known of a rule that does not do its work. @param {import("../rules.js").Rule} rule */
function standing(rule) {
  const many = rule.too_many_series ?? [];
  return [
    rule.failure &&
      h("div", { class: "notice crit", "data-key": "failure" }, glyph("failed"), h("span", {}, failure(rule.failure))),
    rule.never_seen.length > 0 && note("never", t("rules.never_seen", { runs: named(rule.never_seen) })),
    many.length > 0 && note("many", t("rules.too_many", { runs: named(many) })),
  ];
}

/** @param {string} key @param {string} text */
const note = (key, text) => h("div", { class: "notice info", "data-key": key }, glyph("info"), h("span", {}, text));

/** A few of the runs by name. @param {{ run_name: string }[]} runs */
function named(runs) {
  const names = runs
    .slice(0, 3)
    .map((run) => run.run_name)
    .join(t("order.and"));
  return runs.length > 3 ? t("rules.and_more", { names, count: runs.length - 3 }) : names;
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
  if (now.edited && !now.isNew && !now.gone)
    return t(onlyWords(now, form) ? "rules.ready.words" : "rules.ready", { version: next });
  if (now.isNew || now.gone) return t("rules.ready.new");
  return said || t("rules.clean", { version: now.rule?.version ?? "" });
}

/** Words say nothing to a detector, so nothing starts afresh. @param {Current} now @param {Form} form */
const onlyWords = (now, form) =>
  now.base !== null && edits(form.draft, now.base, form.detectors).every((field) => WORDS.has(field));

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

/** A rule in words: the name of its condition and fields, the sentence it makes, what is wrong with it. */
import { ABSENCE, detectorOf, settingsOf } from "../rules.js";
import { NEW } from "../rulebook.js";
import { pieces } from "../sentences.js";
import { duration } from "../format.js";
import { clause, ruleName as nameOf, t, timeWords } from "../i18n/index.js";
import { h } from "./dom.js";

/** @typedef {import("../rules.js").Draft} Draft */
/** @typedef {import("../rules.js").Detector} Detector */
/** @typedef {import("../rules.js").Rule} Rule */

/** The words of the page for a key, else those of the server. @param {string} key @param {string} otherwise */
const known = (key, otherwise) => {
  const text = t(key);
  return text === key ? otherwise : text;
};

/** @param {string} text */
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** @param {string} kind */
export const detectorName = (kind) => known(`detector.${kind}`, capital(kind.replaceAll("_", " ")));

/** A rule's name as the reader's language has it: those of the default pack are translated. @param {{ rule_id: string, name: string }} rule */
export const ruleName = (rule) => nameOf(rule.name);

/** What stands above a field. @param {string} field @param {Draft} draft @param {Detector[]} detectors */
export function fieldLabel(field, draft, detectors) {
  if (field === "scope.name") return t(`field.scope.name.${draft["scope.kind"]}`);
  if (!field.startsWith("settings.")) return t(`field.${field}`);
  const name = field.slice(9),
    meaning = settingsOf(detectors, draft.detector).find((s) => s.name === name)?.meaning || name.replaceAll("_", " ");
  return known(`setting.${draft.detector}.${name}`, capital(meaning));
}

/** @param {import("../rules.js").Wrong} wrong */
export const wrongText = (wrong) => (wrong.text === undefined ? t(wrong.key, wrong.values) : clause(wrong.text));

/** What the list says under a rule's name. @param {Rule} rule */
export function ruleSub(rule) {
  const { kind, dry_run } = rule.action;
  if (rule.trial) return `${detectorName(rule.detector)} \u00b7 ${t("rules.then.log")}`;
  const then = dry_run && kind !== "notify" ? t("rules.then.dry", { what: t(`rules.dry.${kind}`) }) : t(`rules.then.${kind}`);
  return `${detectorName(rule.detector)} \u00b7 ${then}`;
}

/** @param {string} text of a number field */
const points = (text) => t(text.trim() === "1" ? "rules.points.one" : "rules.points", { count: text.trim() || "\u2013" });

/** How long it has to hold. @param {Draft} draft @returns {import("../sentences.js").Piece[]} */
const lasting = (draft) =>
  pieces(t("rules.sentence.for"), { points: { text: points(draft.for_points), field: "for_points" } }) ?? [];

/** The rule as one sentence whose figures are those of the fields. @param {Draft} draft @param {Detector[]} detectors */
export function sentence(draft, detectors) {
  const silent = draft.detector in ABSENCE;
  const places = {
    series: { text: draft.series || "\u2013", field: "series" },
    condition: { parts: condition(draft, detectors) },
    for: { parts: silent || draft.for_points.trim() === "1" ? [] : lasting(draft) },
    severity: { text: t(`severity.${draft.severity}`), field: "severity" },
    action: { text: action(draft), field: "action.kind" },
  };
  const said = pieces(t(silent ? "rules.sentence.silent" : "rules.sentence"), places) ?? [];
  return h(
    "p",
    { class: "sentence", "data-key": "sentence" },
    said.map(({ text, field }) => (field ? h("mark", { "data-act": "focus", "data-id": field }, text) : text)),
  );
}

/** Settings that change nothing up to this value, and are not spoken of then. */
const SILENT_UP_TO = /** @type {Record<string, number>} */ ({ need: 1, mean_of: 1, lost: 0 });
/** Settings that the sentence speaks of only together with such a one. */
const BESIDE = new Set(["of", "capacity", "within"]);

/** @param {Draft} draft @param {Detector[]} detectors @returns {import("../sentences.js").Piece[]} */
function condition(draft, detectors) {
  const places = Object.fromEntries(
    settingsOf(detectors, draft.detector).map((s) => {
      const text = draft[`settings.${s.name}`]?.trim(),
        isSaid = text && !(Number(text) <= (SILENT_UP_TO[s.name] ?? -Infinity));
      return [s.name, isSaid ? { text: saidNumber(text), field: `settings.${s.name}` } : null];
    }),
  );
  const template = known(`condition.${draft.detector}`, ""),
    said = template ? pieces(template, places) : null;
  return said ?? [{ text: t("condition.any", { detector: detectorName(draft.detector) }), field: "detector" }];
}

/**
 * The settings that the sentence always speaks of; the others are for whoever looks for them.
 * @param {string} kind
 * @param {Detector[]} detectors
 * @returns {Set<string>} names of fields
 */
export function mainSettings(kind, detectors) {
  const all = settingsOf(detectors, kind),
    template = known(`condition.${kind}`, "");
  const main = all.filter(
    (s) => !template || isFlag(s) || (template.includes(`{${s.name}}`) && !(s.name in SILENT_UP_TO) && !BESIDE.has(s.name)),
  );
  return new Set((main.length > 0 ? main : all).map((s) => `settings.${s.name}`));
}

/** A setting that is either on or off. @param {import("../rules.js").Setting} setting */
export const isFlag = (setting) => setting.whole && setting.minimum === 0 && setting.maximum === 1;

/** @param {string} text */
const saidNumber = (text) => text.replace("-", "\u2212");

/** @param {Draft} draft */
function action(draft) {
  const kind = draft["action.kind"];
  if (kind === "notify") return t("rules.say.notify");
  if (draft["action.dry_run"] === "true") return t("rules.say.dry", { what: t(`rules.dry.${kind}`) });
  const seconds = Number(draft["action.countdown_seconds"]);
  return t(`rules.say.${kind}`, { seconds: Number.isFinite(seconds) ? duration(seconds, timeWords()) : "\u2013" });
}

/** What a detector reads beside the rule's own series. @param {Draft} draft @param {Detector[]} detectors */
export const companions = (draft, detectors) => detectorOf(detectors, draft.detector)?.companions ?? [];

/** The rules with something unsaved, by name. @param {import("../rulebook.js").Book} book */
export const unsavedNames = (book) =>
  Object.entries(book.editing)
    .map(([id, { draft }]) => (id === NEW ? draft.name.trim() || t("rules.new") : draft.name))
    .join(t("order.and"));

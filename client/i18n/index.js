/** The language of the page: one dictionary each, the same keys in both (a test holds them to that). */
import { translator } from "../clauses.js";
import en from "./en.js";
import zh from "./zh.js";

/** @typedef {import("../format.js").TimeWords} TimeWords */

export const LANGUAGES = /** @type {const} */ ({
  en: { name: "English", tag: "en", words: en },
  zh: { name: "\u4e2d\u6587", tag: "zh-CN", words: zh },
});

/** @type {"en" | "zh"} */
let current = "en";

/** @param {string | null} name */
export function setLanguage(name) {
  current = name === "zh" ? "zh" : "en";
  document.documentElement.lang = LANGUAGES[current].tag;
}

export const language = () => current;

/**
 * The words for a key, its {places} filled in; one without a value stays, for the caller to put a node there. A key nobody wrote shows itself, so that it is found.
 * @param {string} key
 * @param {Record<string, any>} [values]
 * @returns {string}
 */
export function t(key, values = {}) {
  const text = /** @type {Record<string, any>} */ (LANGUAGES[current].words)[key];
  return typeof text === "string" ? text.replace(/\{(\w+)\}/g, (place, name) => String(values[name] ?? place)) : key;
}

/** @type {import("../clauses.js").Translator | null} */
let inChinese = null;

/** The clauses that the server can say in Chinese, once they are there. @param {import("../clauses.js").Table} table */
export function learnClauses(table) {
  inChinese = translator(table);
}

/** Whether clauses are needed and not known yet. */
export const lacksClauses = () => current === "zh" && inChinese === null;

/** A clause of the server, such as why a checkpoint is unsound, or several; one that is not known stays as it is. @param {string} text */
export const clause = (text) => (current === "zh" && inChinese !== null ? inChinese(text) : text);

/** What a reducer has decided to say: by its key, or a clause of the server. @param {import("../reducers.js").Say | string} said */
export const say = (said) => (typeof said === "string" ? clause(said) : t(said.key, said.values));

/** Words for times and durations. @returns {TimeWords} */
export const timeWords = () => /** @type {any} */ (LANGUAGES[current].words).time;

/**
 * An alert's title: those of the default rules are translated, one that a person wrote is shown as written.
 * @param {{ title: string }} alert
 */
export function alertTitle(alert) {
  const titles = /** @type {Record<string, string>} */ (LANGUAGES[current].words.titles);
  return Object.hasOwn(titles, alert.title) ? titles[alert.title] : alert.title;
}

/** The name of a rule: those of the default pack are translated. @param {string} name */
export function ruleName(name) {
  const names = /** @type {Record<string, string>} */ (LANGUAGES[current].words.ruleNames);
  return Object.hasOwn(names, name) ? names[name] : name;
}

/** Why a rule exists: what the default pack says is translated, what a person wrote is shown as written. @param {string} rule id @param {string} reason */
export function ruleReason(rule, reason) {
  const reasons = /** @type {Record<string, { begins: string, text: string }>} */ (LANGUAGES[current].words.ruleReasons);
  return Object.hasOwn(reasons, rule) && reason.startsWith(reasons[rule].begins) ? reasons[rule].text : reason;
}

/** A text that the server wrote in every language of the page. @param {Record<string, string> | null | undefined} texts @param {string} [otherwise] */
export const inLanguage = (texts, otherwise = "") => texts?.[current] || texts?.en || otherwise;

/** What an alert says, in full. @param {any} alert */
export const sentence = (alert) => inLanguage(alert.texts, alert.text ?? "");

/** How long and why: the two fields that a silence and a hold share. */
import { HOURS, endOfTerm, hoursOf } from "../terms.js";
import { duration, moment } from "../format.js";
import { t, timeWords } from "../i18n/index.js";
import { h } from "./dom.js";

/** @param {import("../terms.js").Term} term @param {string} hint beneath the reason */
export function termFields(term, hint) {
  const bad = term.hours === "other" && term.other.trim() !== "" && Number.isNaN(hoursOf(term));
  const choice = (/** @type {string} */ hours, /** @type {string} */ text) =>
    h("label", {}, h("input", { class: "sr", type: "radio", name: "hours", value: hours, checked: term.hours === hours }), text);
  return [
    h(
      "fieldset",
      { class: "field", "data-key": "hours" },
      h("legend", { class: "lbl" }, t("term.for")),
      h(
        "div",
        { class: "factors" },
        h(
          "div",
          { class: "seg" },
          HOURS.map((hours) => choice(hours, duration(Number(hours) * 3600, timeWords()))),
          choice("other", t("rollback.factor.other")),
        ),
        h("input", {
          class: bad ? "input bad" : "input",
          name: "other",
          inputmode: "decimal",
          value: term.other,
          disabled: term.hours !== "other",
          "aria-label": t("term.hours"),
          placeholder: t("term.hours"),
          "aria-invalid": bad ? "true" : null,
        }),
      ),
    ),
    h(
      "div",
      { class: "field", "data-key": "why" },
      h("label", { for: "reason" }, t("reason")),
      h("input", {
        class: "input",
        id: "reason",
        name: "reason",
        maxlength: 300,
        required: true,
        value: term.reason,
        "aria-describedby": "reason-hint",
      }),
      h("span", { class: "hint", id: "reason-hint" }, hint),
    ),
  ];
}

/** Takes what a hand has put into one of the fields. @param {import("../terms.js").Term} term @param {HTMLInputElement | HTMLSelectElement} field */
export function takeTerm(term, field) {
  if (field.name === "hours" || field.name === "other" || field.name === "reason") term[field.name] = field.value;
}

/** When it ends, as the dialog's sum says it. @param {import("../terms.js").Term} term @param {string} key */
export function endsAtText(term, key) {
  const end = endOfTerm(term, new Date());
  return end ? t(key, { time: moment(end, new Date(), { words: timeWords() }) }) : "";
}

/** One field of the rule editor: its label, its control, its unit, and one line under it that is always there. */
import { ABSENCE, ACTIONS, SCOPES, SEVERITIES, settingsOf } from "../rules.js";
import { t } from "../i18n/index.js";
import { h } from "./dom.js";
import { capital, companions, detectorName, fieldLabel, isFlag, wrongText } from "./rulewords.js";

/**
 * What a field is drawn from.
 * @typedef {{ draft: import("../rules.js").Draft, detectors: import("../rules.js").Detector[], wrong: import("../rules.js").Wrong[], readOnly: boolean,
 *   series: string[], runs: any[] }} Form `series`: known names; `runs`: of the server, the newest first
 */

/** Series that most runs have, to choose from while typing. */
export const COMMON_SERIES = [
  "train/loss",
  "train/grad_norm",
  "train/learning_rate",
  "eval/loss",
  "amp/loss_scale",
  "amp/overflow",
  "perf/step_seconds",
  "perf/tokens_per_second",
  "system/gpu_memory_bytes",
  "system/host_memory_bytes",
];

/** @param {string} field */
const idOf = (field) => `rule-${field.replaceAll(".", "-")}`;

const UNITS = /** @type {Record<string, string>} */ ({
  for_points: "points",
  keep_firing_for_points: "points",
  "action.countdown_seconds": "seconds",
});
const LONG = new Set(["series", "name", "title"]);

/** @param {string} field @param {Form} form */
export function ruleField(field, form) {
  const bad = form.wrong.find((w) => w.field === field) ?? null,
    id = idOf(field);
  const wide = LONG.has(field) || field === "reason" ? " wide" : "";
  return h(
    "div",
    { class: `field ${field === "reason" ? "c6" : "c2"}${wide}`, "data-key": field },
    h("label", { for: id }, fieldLabel(field, form.draft, form.detectors)),
    control(field, form, id, bad !== null),
    h("span", { class: bad ? "hint bad" : "hint", id: `${id}-hint` }, bad ? wrongText(bad) : hint(field, form)),
  );
}

/** @param {string} field @param {Form} form @param {string} id @param {boolean} isBad */
function control(field, form, id, isBad) {
  const value = form.draft[field] ?? "",
    options = choices(field, form);
  const props = {
    id,
    class: `input${isBad ? " bad" : ""}${field === "series" ? " mono" : ""}`,
    "data-field": field,
    "data-value": value,
    disabled: form.readOnly || (field === "series" && form.draft.detector in ABSENCE),
    "aria-invalid": isBad ? "true" : null,
    "aria-describedby": `${id}-hint`,
  };
  if (options)
    return h(
      "select",
      props,
      options.map(([of, text]) => h("option", { value: of, selected: of === value, "data-key": of }, text)),
    );
  if (field === "action.dry_run") return toggle(props, value, "true", "");
  const setting = settingOf(field, form);
  if (setting && isFlag(setting)) return toggle(props, value, "1", "0");
  if (field === "reason") return h("textarea", { ...props, rows: 3 }, value);
  const input = h("input", { ...props, value, ...manner(field, form), autocomplete: "off", spellcheck: "false" });
  const unit = UNITS[field];
  return unit ? h("div", { class: "unit-in" }, input, h("span", {}, t(`unit.${unit}`))) : input;
}

/** @param {string} field @param {Form} form */
const settingOf = (field, form) => settingsOf(form.detectors, form.draft.detector).find((s) => `settings.${s.name}` === field);

/** @param {Record<string, any>} props @param {string} value @param {string} on what the field holds then @param {string} off */
const toggle = (props, value, on, off) =>
  h(
    "label",
    { class: "switch line" },
    h("input", { ...props, class: null, type: "checkbox", checked: value === on, "data-on": on, "data-off": off }),
    value === on ? t("on") : t("rules.off"),
  );

/** How a text field takes what is typed. @param {string} field @param {Form} form */
function manner(field, form) {
  if (field === "series") return { list: "rule-series-names" };
  if (LONG.has(field)) return { maxlength: 200 };
  const fallback = settingOf(field, form)?.default ?? null;
  return { inputmode: "decimal", placeholder: fallback === null ? null : String(fallback) };
}

/** The options of a field that is chosen from; null for one that is typed. @param {string} field @param {Form} form @returns {[string, string][] | null} */
function choices(field, { draft, detectors, runs }) {
  const worded = (/** @type {string[]} */ values, /** @type {string} */ prefix) =>
    values.map((value) => /** @type {[string, string]} */ ([value, capital(t(`${prefix}.${value}`))]));
  if (field === "detector") return detectors.map((d) => [d.kind, detectorName(d.kind)]);
  if (field === "severity") return worded(SEVERITIES, "severity");
  if (field === "action.kind") return worded(ACTIONS, "action");
  if (field === "action.data") return worded(["skip", "replay"], "data");
  if (field === "scope.kind") return worded(SCOPES, "scope");
  return field === "scope.name" ? places(draft, runs) : null;
}

/** The projects or runs there are; what the rule names is among them even when it is gone. @param {import("../rules.js").Draft} draft @param {any[]} runs @returns {[string, string][]} */
function places(draft, runs) {
  const found = /** @type {[string, string][]} */ (
    draft["scope.kind"] === "project"
      ? [...new Set(runs.map((run) => run.project))]
          .filter(Boolean)
          .sort()
          .map((name) => [name, name])
      : runs.map((run) => [run.run_id, run.name === run.run_id ? run.name : `${run.name} \u00b7 ${run.run_id}`])
  );
  const now = draft["scope.name"];
  const gone = now && !found.some(([value]) => value === now) ? /** @type {[string, string][]} */ ([[now, now]]) : [];
  return [["", t("scope.choose")], ...gone, ...found];
}

/** @param {string} field @param {Form} form @returns {import("./dom.js").Child} */
function hint(field, form) {
  const { draft, detectors } = form;
  if (field === "series") return seriesHint(draft, detectors);
  if (field === "title") return t("field.title.hint");
  if (field === "action.dry_run") return t("field.action.dry_run.hint");
  if (field === "action.max_grad_norm") return t("field.as_is");
  const setting = settingOf(field, form);
  if (!setting || isFlag(setting)) return null;
  if (setting.default === null) return t("field.optional");
  return draft[field] === String(setting.default) ? null : t("field.default", { value: setting.default });
}

/** @param {import("../rules.js").Draft} draft @param {import("../rules.js").Detector[]} detectors */
function seriesHint(draft, detectors) {
  if (draft.detector in ABSENCE) return t("field.series.silent");
  const beside = companions(draft, detectors);
  if (beside.length > 0) return t("field.series.beside", { names: beside.join(", ") });
  const [before, after] = t("field.series.hint").split("{pattern}");
  return [before, h("code", {}, `${draft.series.replace(/\*.*$/, "") || "train/"}*`), after];
}

/** Names to choose from while typing a series. @param {string[]} names */
export const seriesNames = (names) =>
  h(
    "datalist",
    { id: "rule-series-names", "data-key": "names" },
    names.map((name) => h("option", { value: name, "data-key": name })),
  );

/** The control of a field. @param {Element} host @param {string} field @returns {HTMLElement | null} */
export const controlOf = (host, field) => host.querySelector(`[data-field="${field}"]`);

/**
 * Brings what the fields hold to what they should; never under the hand that types.
 * @param {Element} host
 * @param {boolean} isTyped whether the person has typed what the field in focus holds
 */
export function fill(host, isTyped) {
  for (const node of host.querySelectorAll("[data-value]")) {
    const field = /** @type {HTMLInputElement} */ (node);
    if (isTyped && field === document.activeElement && field.dataset.field) continue;
    const value = field.dataset.value ?? "";
    if (field.type === "checkbox") field.checked = value === (field.dataset.on ?? "true");
    else if (field.value !== value) field.value = value;
  }
}

/**
 * The switch that a rule is on by. `label` is for a switch without words beside it.
 * @param {import("../rules.js").Rule} rule @param {boolean} readOnly @param {string | null} label @param {...import("./dom.js").Child} words
 */
export const ruleSwitch = (rule, readOnly, label, ...words) =>
  h(
    "label",
    { class: "switch" },
    h("input", {
      type: "checkbox",
      "data-switch": rule.rule_id,
      "data-value": String(rule.enabled),
      checked: rule.enabled,
      disabled: readOnly,
      "aria-label": label,
    }),
    ...words,
  );

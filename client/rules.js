/**
 * A rule as a person edits it: what the fields hold, what is wrong with that, and what is sent. Pure: no DOM, no network.
 *
 * A field holds text as it was typed, so that nothing is changed under the hand; numbers are made of it when it is checked or
 * sent. An empty setting is the detector's default, or not set where it has none. Where a rule may be changed elsewhere at the
 * same time, see `rulebook.js`.
 *
 * @typedef {{ name: string, default: number | null, minimum: number, maximum: number, whole: boolean, meaning: string }} Setting
 * @typedef {{ kind: string, meaning: string, companions: string[], across_ranks: boolean, settings: Setting[] }} Detector
 * @typedef {{ kind: string, countdown_seconds: number, data: string, max_grad_norm: number | null, dry_run: boolean }} Action
 * @typedef {{ rule_id: string, name: string, title: string, series: string, detector: string, settings: Record<string, number>,
 *   for_points: number, keep_firing_for_points: number, severity: string, enabled: boolean, action: Action, version: number, reason: string,
 *   scope: { kind: string, name: string }, trial: boolean, edited: boolean, is_default: boolean, failure: { at: string, text: string } | null,
 *   never_seen: { run_id: string, run_name: string }[], too_many_series?: { run_id: string, run_name: string }[], open_alerts: number }} Rule
 * @typedef {Record<string, string>} Draft by field: `series`, `settings.times`, `action.countdown_seconds`, as the API names them
 * @typedef {{ field: string, key: string, values?: Record<string, any>, text?: string }} Wrong `text`: the server's own words
 */

/** Conditions on silence: the server's clock judges them, not points. */
export const ABSENCE = /** @type {Record<string, string>} */ ({ lost: "run/heartbeat", stalled: "run/step", ended: "run/end" });
export const ACTIONS = ["notify", "stop", "rollback"];
export const SEVERITIES = ["info", "warning", "critical"];
export const SCOPES = ["all", "project", "run"];
const MOST_POINTS = 100_000,
  MOST_SECONDS = 86_400,
  COUNTDOWN_SECONDS = 60,
  LONGEST_NAME = 200,
  LONGEST_REASON = 4000,
  LONGEST_SERIES = 128;
const SERIES = /^[a-z0-9_.\-*]+(\/[a-z0-9_.\-*]+)+$|^\*$/;

/** The text of a number in a field. @param {number | null | undefined} value */
const shown = (value) => (value === null || value === undefined ? "" : String(value));

/** The number in a field; NaN where there is none. @param {string | undefined} text */
export const numberIn = (text) => (text === undefined || text.trim() === "" ? NaN : Number(text));

/** @param {Detector[]} detectors @param {string} kind @returns {Detector | undefined} */
export const detectorOf = (detectors, kind) => detectors.find((d) => d.kind === kind);

/** @param {Detector[]} detectors @param {string} kind @returns {Setting[]} */
export const settingsOf = (detectors, kind) => detectorOf(detectors, kind)?.settings ?? [];

/**
 * What the fields hold for a rule as it is saved.
 * @param {Rule} rule
 * @param {Detector[]} detectors
 * @returns {Draft}
 */
export function draftOf(rule, detectors) {
  const { action, scope } = rule;
  const settings = settingsOf(detectors, rule.detector).map((s) => [
    `settings.${s.name}`,
    shown(rule.settings[s.name] ?? s.default),
  ]);
  return {
    name: rule.name,
    title: rule.title,
    series: rule.series,
    detector: rule.detector,
    ...Object.fromEntries(settings),
    for_points: shown(rule.for_points),
    keep_firing_for_points: shown(rule.keep_firing_for_points),
    severity: rule.severity,
    "action.kind": action.kind,
    "action.countdown_seconds": shown(action.countdown_seconds),
    "action.data": action.data,
    "action.max_grad_norm": shown(action.max_grad_norm),
    "action.dry_run": action.dry_run ? "true" : "",
    "scope.kind": scope.kind,
    "scope.name": scope.name,
    reason: rule.reason,
  };
}

/** What a new rule begins with. @param {Detector[]} detectors @returns {Draft} */
export function blank(detectors) {
  const kind = detectors.some((d) => d.kind === "spike") ? "spike" : (detectors[0]?.kind ?? "");
  return withDetector(
    {
      name: "",
      title: "",
      series: "train/loss",
      for_points: "1",
      keep_firing_for_points: "10",
      severity: "warning",
      "action.kind": "notify",
      "action.countdown_seconds": shown(COUNTDOWN_SECONDS),
      "action.data": "skip",
      "action.max_grad_norm": "",
      "action.dry_run": "",
      "scope.kind": "all",
      "scope.name": "",
      reason: "",
    },
    kind,
    detectors,
  );
}

/**
 * The draft with another condition: its settings at their defaults where they were not typed before.
 * @param {Draft} draft
 * @param {string} kind
 * @param {Detector[]} detectors
 * @returns {Draft}
 */
function withDetector(draft, kind, detectors) {
  const silent = ABSENCE[kind],
    was = Object.values(ABSENCE).includes(draft.series);
  const series = silent ?? (was ? "train/loss" : draft.series);
  const settings = settingsOf(detectors, kind).map((s) => [`settings.${s.name}`, shown(s.default)]);
  return { ...Object.fromEntries(settings), ...draft, detector: kind, series };
}

/**
 * The draft after one field was changed.
 * @param {Draft} draft
 * @param {string} field
 * @param {string} value
 * @param {Detector[]} detectors
 * @returns {Draft}
 */
export function changed(draft, field, value, detectors) {
  if (field === "detector") return withDetector(draft, value, detectors);
  if (field === "scope.kind") return { ...draft, "scope.kind": value, "scope.name": "" };
  return { ...draft, [field]: value };
}

/** The fields that count for this draft, in the order of the form. @param {Draft} draft @param {Detector[]} detectors @returns {string[]} */
export function fields(draft, detectors) {
  const kind = draft["action.kind"];
  return [
    "series",
    "detector",
    ...settingsOf(detectors, draft.detector).map((s) => `settings.${s.name}`),
    ...(draft.detector in ABSENCE ? [] : ["for_points", "keep_firing_for_points"]),
    "severity",
    "action.kind",
    ...(kind === "notify" ? [] : ["action.countdown_seconds"]),
    ...(kind === "rollback" ? ["action.data", "action.max_grad_norm"] : []),
    ...(kind === "notify" ? [] : ["action.dry_run"]),
    "scope.kind",
    ...(draft["scope.kind"] === "all" ? [] : ["scope.name"]),
    "name",
    "title",
    "reason",
  ];
}

/**
 * What keeps the draft from being saved, in the order of the form; the server has the last word.
 * @param {Draft} draft
 * @param {Detector[]} detectors
 * @returns {Wrong[]}
 */
export function problems(draft, detectors) {
  return fields(draft, detectors).flatMap((field) => {
    const wrong = problemIn(draft, field, detectors);
    return wrong ? [{ field, ...wrong }] : [];
  });
}

/** @param {Draft} draft @param {string} field @param {Detector[]} detectors @returns {{ key: string, values?: Record<string, any> } | null} */
function problemIn(draft, field, detectors) {
  const value = draft[field] ?? "";
  if (field.startsWith("settings.")) return settingProblem(draft, field.slice(9), detectors);
  if (field === "series") return seriesProblem(value.trim(), detectorOf(detectors, draft.detector));
  if (field === "name" || field === "title" || field === "reason") return wordsProblem(field, value.trim());
  if (field === "scope.name") return value.trim() ? null : { key: `wrong.scope.${draft["scope.kind"]}` };
  if (field === "for_points") return between(value, 1, MOST_POINTS, true);
  if (field === "keep_firing_for_points") return between(value, 0, MOST_POINTS, true);
  if (field === "action.countdown_seconds") return between(value, 0, MOST_SECONDS, false);
  if (field === "action.max_grad_norm")
    return value.trim() === "" || (Number.isFinite(numberIn(value)) && numberIn(value) > 0) ? null : { key: "wrong.positive" };
  if (field === "severity" && value === "info" && draft["action.kind"] !== "notify") return { key: "wrong.severity" };
  return null;
}

/** @param {string} name @param {Detector | undefined} detector */
function seriesProblem(name, detector) {
  if (detector && detector.kind in ABSENCE) return null;
  if (!SERIES.test(name) || name.length > LONGEST_SERIES) return { key: "wrong.series" };
  return name.includes("*") && detector && detector.companions.length > 0 ? { key: "wrong.series.one" } : null;
}

/** @param {string} field @param {string} text */
function wordsProblem(field, text) {
  if (text === "" && field === "name") return { key: "wrong.empty" };
  const high = field === "reason" ? LONGEST_REASON : LONGEST_NAME;
  return text.length > high ? { key: "wrong.long", values: { high } } : null;
}

/** @param {Draft} draft @param {string} name @param {Detector[]} detectors */
function settingProblem(draft, name, detectors) {
  const all = settingsOf(detectors, draft.detector),
    setting = all.find((s) => s.name === name),
    text = draft[`settings.${name}`] ?? "";
  if (!setting) return null;
  if (text.trim() === "") {
    // A threshold has two sides, and needs one of them; the first side says so.
    const either = draft.detector === "threshold" && name === all[0].name;
    return either && all.every((s) => !draft[`settings.${s.name}`]?.trim()) ? { key: "wrong.either" } : null;
  }
  return between(text, setting.minimum, setting.maximum, setting.whole);
}

/** @param {string} text @param {number} low @param {number} high @param {boolean} whole */
function between(text, low, high, whole) {
  const value = numberIn(text);
  if (!Number.isFinite(value)) return { key: "wrong.number" };
  if (whole && !Number.isInteger(value)) return { key: "wrong.whole" };
  if (value < low) return { key: "wrong.least", values: { low: shown(low) } };
  return value > high ? { key: "wrong.most", values: { high: shown(high) } } : null;
}

/**
 * The rule as the API takes it, all fields but its id and version. Only for a draft without problems.
 * @param {Draft} draft
 * @param {Detector[]} detectors
 * @param {{ trial?: boolean, enabled?: boolean }} [how]
 */
export function body(draft, detectors, { trial = false, enabled = true } = {}) {
  const settings = settingsOf(detectors, draft.detector)
    .map((s) => /** @type {const} */ ([s.name, numberIn(draft[`settings.${s.name}`])]))
    .filter(([, value]) => !Number.isNaN(value));
  const limit = numberIn(draft["action.max_grad_norm"]),
    seconds = numberIn(draft["action.countdown_seconds"]);
  return {
    name: draft.name.trim(),
    title: draft.title.trim() || draft.name.trim(),
    series: draft.series.trim(),
    detector: draft.detector,
    settings: Object.fromEntries(settings),
    for_points: numberIn(draft.for_points),
    keep_firing_for_points: numberIn(draft.keep_firing_for_points),
    severity: draft.severity,
    action: {
      kind: draft["action.kind"],
      countdown_seconds: Number.isFinite(seconds) ? seconds : COUNTDOWN_SECONDS, // a field out of sight may hold anything
      data: draft["action.data"],
      max_grad_norm: Number.isNaN(limit) ? null : limit,
      dry_run: draft["action.dry_run"] === "true",
    },
    scope: { kind: draft["scope.kind"], name: draft["scope.kind"] === "all" ? "" : draft["scope.name"].trim() },
    reason: draft.reason.trim(),
    trial,
    enabled,
  };
}

/**
 * The change from the rule as it was saved to the draft, with the version it was made on. A setting taken out is null.
 * @param {Draft} draft
 * @param {Rule} rule
 * @param {Detector[]} detectors
 * @param {boolean} trial
 * @returns {Record<string, any>}
 */
export function changes(draft, rule, detectors, trial) {
  const next = /** @type {Record<string, any>} */ (body(draft, detectors, { trial, enabled: rule.enabled }));
  const before = /** @type {Record<string, any>} */ (
    body(draftOf(rule, detectors), detectors, { trial: rule.trial, enabled: rule.enabled })
  );
  const different = Object.keys(next).filter((name) => JSON.stringify(next[name]) !== JSON.stringify(before[name]));
  const out = /** @type {Record<string, any>} */ ({ version: rule.version });
  for (const name of different) out[name] = next[name];
  if (out.settings || out.detector) {
    // What is not named stays as it is, so what is gone has to be named.
    const gone = Object.keys(rule.settings).filter((name) => !(name in next.settings));
    out.settings = { ...next.settings, ...Object.fromEntries(gone.map((name) => [name, null])) };
  }
  return out;
}

/** The fields in which the draft differs from the saved rule. @param {Draft} draft @param {Rule} rule @param {Detector[]} detectors @returns {string[]} */
export function edits(draft, rule, detectors) {
  const saved = draftOf(rule, detectors);
  return fields(draft, detectors).filter((field) => !alike(draft[field] ?? "", saved[field] ?? ""));
}

/** "3.0" says what "3" says. @param {string} a @param {string} b */
const alike = (a, b) => a.trim() === b.trim() || (Number.isFinite(numberIn(a)) && numberIn(a) === numberIn(b));

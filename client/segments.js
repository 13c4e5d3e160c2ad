/**
 * Segments: what is different since each began, and what its resume check found. Pure.
 *
 * @typedef {import("./reducers.js").Say} Say
 */
import { settingOf } from "./commands.js";
import { norm, number, toNumber } from "./format.js";
import { withoutWhat } from "./rollbacks.js";

/**
 * What a segment does otherwise than the one before it: its data, its clipping, its learning rate.
 * @param {any} run RunDetail
 * @param {any} segment one of its segments
 * @returns {Say[]}
 */
export function differences(run, segment) {
  const before = (run.segments ?? []).filter((/** @type {any} */ s) => s.segment < segment.segment).at(-1);
  const now = segment.attributes ?? {},
    then = (/** @type {string} */ name) => toNumber(settingOf(run, before, name));
  return [...data(now), ...clip(now, then("max_grad_norm")), ...factor(now, then("learning_rate_factor") ?? 1)];
}

/** @param {any} now @returns {Say[]} */
function data(now) {
  if (now.data === "skip" && Number.isFinite(now.skip_from_step) && Number.isFinite(now.skip_to_step ?? now.left_step))
    return [{ key: "segment.skipped", values: { from: now.skip_from_step, to: now.skip_to_step ?? now.left_step } }];
  // The count of samples holds those of the documents too, so beside documents it says nothing more.
  const named = documents(now).length;
  if (now.data === "exclude") return [withoutWhat(named, named ? 0 : Number(now.excluded_samples ?? 0))];
  return now.data ? [{ key: `order.data.${now.data}` }] : [];
}

/** The ids in the attribute, which holds them with commas between. @param {any} attributes @returns {string[]} */
export const documents = (attributes) =>
  String(attributes?.excluded_documents ?? "")
    .split(",")
    .map((id) => id.trim())
    .filter(Boolean);

/** @param {any} now @param {number | null} then @returns {Say[]} */
function clip(now, then) {
  const value = toNumber(now.max_grad_norm);
  if (value === null || value === then) return [];
  return [value > 0 ? { key: "order.clip", values: { clip: norm(value) } } : { key: "segment.unclipped" }];
}

/** A factor that is not named is 1: one that held before was taken back. @param {any} now @param {number} then @returns {Say[]} */
function factor(now, then) {
  const value = toNumber(now.learning_rate_factor) ?? 1;
  return value === then ? [] : [{ key: "order.factor", values: { factor: number(value) } }];
}

/**
 * What the first steps of each segment were found to be beside the stored curve; a segment without a check is not there.
 * @param {any} run RunDetail
 * @returns {Map<number, string[]>}
 */
export const resumeChecks = (run) =>
  new Map(
    (run.segments ?? [])
      .filter((/** @type {any} */ s) => Array.isArray(s.resume_findings))
      .map((/** @type {any} */ s) => [s.segment, s.resume_findings]),
  );

/** What the check of the present segment found; null where all is as before or not checked yet. @param {any} run @returns {string[] | null} */
export function resumeTrouble(run) {
  const findings = resumeChecks(run).get(run.segment) ?? [];
  return findings.length > 0 ? findings : null;
}

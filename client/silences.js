/**
 * Silences: what one covers, whether it holds, and the form of a new one. Pure.
 *
 * @typedef {import("./terms.js").Term & { run: string, project: string, rule: string }} Chosen empty: any
 * @typedef {import("./reducers.js").Say} Say
 */
import { lackingTerm, proposedTerm, termBody } from "./terms.js";

/** Whether it holds at `now`. @param {any} silence @param {Date} now */
export const holds = (silence, now) => !silence.ended_at && Date.parse(silence.ends_at) > now.getTime();

/**
 * Those that hold, the one that ends first on top, and those that are over, the newest first.
 * @param {any[]} silences @param {Date} now
 * @returns {{ active: any[], past: any[] }}
 */
export function sorted(silences, now) {
  const active = silences.filter((s) => holds(s, now)).sort((a, b) => Date.parse(a.ends_at) - Date.parse(b.ends_at)),
    past = silences.filter((s) => !holds(s, now)).sort((a, b) => endedAt(b) - endedAt(a));
  return { active, past };
}

/** @param {any} silence */
const endedAt = (silence) => Date.parse(silence.ended_at ?? silence.ends_at);

/**
 * What it covers, as one sentence of the dictionary with its names.
 * @param {any} silence
 * @returns {Say}
 */
export function covers(silence) {
  const named = [
    silence.rule_id ? "rule" : "",
    silence.run_id ? "run" : "",
    silence.project && !silence.run_id ? "project" : "",
  ].filter(Boolean);
  return {
    key: `silence.covers.${named.join(".") || "all"}`,
    values: {
      rule: silence.rule_name ?? silence.rule_id ?? "",
      run: silence.run_name ?? silence.run_id ?? "",
      project: silence.project ?? "",
    },
  };
}

/** A form that is open: what it was opened for is chosen. @param {{ run?: string, project?: string, rule?: string }} [about] @returns {Chosen} */
export const proposed = (about = {}) => ({ ...proposedTerm(), run: "", project: "", rule: "", ...about });

/** What keeps it from being sent, a dictionary key; null when nothing does. @param {Chosen} chosen */
export const lacking = (chosen) => (chosen.run || chosen.project || chosen.rule ? lackingTerm(chosen) : "lacks.silence");

/** What goes to the server. @param {Chosen} chosen */
export const silenceBody = (chosen) => ({
  ...termBody(chosen),
  ...(chosen.run ? { run_id: chosen.run } : {}),
  ...(chosen.project ? { project: chosen.project } : {}),
  ...(chosen.rule ? { rule_id: chosen.rule } : {}),
});

/**
 * How long a silence or a hold lasts, as its reader chooses it: one of a few spans, or hours typed by hand. Pure.
 *
 * @typedef {{ hours: string, other: string, reason: string }} Term `hours` is one of HOURS or "other"; both as the fields hold them
 */

export const HOURS = /** @type {const} */ (["1", "4", "12", "24", "72", "168"]);
export const MOST_HOURS = 720; // 30 days

/** @returns {Term} */
export const proposedTerm = () => ({ hours: "4", other: "", reason: "" });

/**
 * @param {Term} term
 * @returns {number} hours; NaN for what is no number above 0 or lasts longer than MOST_HOURS
 */
export function hoursOf(term) {
  const text = (term.hours === "other" ? term.other : term.hours).trim().replace(",", ".");
  const hours = /^\d*\.?\d+$/.test(text) ? Number(text) : NaN;
  return hours > 0 && hours <= MOST_HOURS ? hours : NaN;
}

/** What keeps it from being sent, a dictionary key; null when nothing does. @param {Term} term */
export function lackingTerm(term) {
  if (Number.isNaN(hoursOf(term))) return "lacks.hours";
  return term.reason.trim() ? null : "lacks.reason";
}

/** When it would end. @param {Term} term @param {Date} now @returns {Date | null} */
export function endOfTerm(term, now) {
  const hours = hoursOf(term);
  return Number.isNaN(hours) ? null : new Date(now.getTime() + hours * 3600e3);
}

/** What goes to the server. @param {Term} term */
export const termBody = (term) => ({ hours: hoursOf(term), reason: term.reason.trim() });

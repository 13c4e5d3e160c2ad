/** Small parts that several views share: states, verdicts, severities, meters, problems, copying. */
import { alertTitle, t, timeWords } from "../i18n/index.js";
import { moment, norm, number, since } from "../format.js";
import { againAfter } from "../incidents.js";
import { h } from "./dom.js";
import { glyph } from "./icons.js";

/** @param {string} state */
export const runState = (state) => h("span", { class: `state ${state}` }, glyph(state), t(`state.${state}`));

/** @param {string} state */
export const verdict = (state) => h("span", { class: `verdict ${state}` }, glyph(state), t(`verdict.${state}`));

const TONES = /** @type {Record<string, string>} */ ({ critical: "crit", warning: "warn", info: "mute" });
const SHAPES = /** @type {Record<string, string>} */ ({ critical: "firing", warning: "warning", info: "info" });

/** @param {string} severity @param {string} text @param {string} [more] */
export const severityBadge = (severity, text, more = "") =>
  h("span", { class: `badge ${TONES[severity] ?? "mute"} ${more}`.trim() }, glyph(SHAPES[severity] ?? "info"), text);

/** What of an alert is not as usual: its rule is on trial, or it fires once more after a rollback. @param {any} alert @param {any[] | null} [segments] */
export function alertMarks(alert, segments = null) {
  const again = againAfter(alert, segments);
  return [
    alert.trial && h("span", { class: "badge open" }, glyph("flask"), t("alert.trial")),
    again !== null && h("span", { class: "badge mute" }, glyph("back"), t("alert.again", { rollback: again })),
  ];
}

/** How an incident stands. @param {any} incident */
export function incidentState(incident) {
  if (incident.state === "triggered") return severityBadge(incident.severity, t("incident.triggered"));
  if (incident.state === "acknowledged")
    return h("span", { class: "badge busy" }, glyph("person"), t("incident.state.acknowledged"));
  const quiet = incident.closed_because && incident.closed_because !== "recovered";
  return h(
    "span",
    { class: quiet ? "badge mute" : "badge good" },
    glyph("finished"),
    t(`closed.${incident.closed_because ?? "recovered"}`),
  );
}

/** How an alert stands. @param {any} alert */
export function alertState(alert) {
  const quiet = alert.trial ? "info" : alert.severity;
  if (alert.state === "firing") return severityBadge(quiet, t("alert.firing"));
  if (alert.state === "pending")
    return h("span", { class: alert.trial ? "badge mute" : "badge warn" }, glyph("pending"), t("alert.pending"));
  if (alert.state === "recovering") return h("span", { class: "badge mute" }, t("alert.recovering"));
  return h(
    "span",
    { class: alert.closed_because === "recovered" ? "badge good" : "badge mute" },
    glyph(alert.closed_because === "recovered" ? "finished" : "back"),
    t(`closed.${alert.closed_because ?? "recovered"}`),
  );
}

/** A command by its verb, a rollback and a setter with where to. @param {any} c */
export function commandName(c) {
  if (c.kind === "rollback" && c.rollback) return t("command.rollback_to", { step: c.rollback.target_step });
  if (c.value === null || c.value === undefined) return t(`command.${c.kind}`);
  const value = c.kind === "set_max_grad_norm" ? norm(c.value) : number(c.value);
  return t(`command.${c.kind}.value`, { value });
}

/** A person by name, a rule by its words. @param {any} command @param {any} run RunDetail */
export function by(command, run) {
  const rule = command.issued_by.startsWith("rule:") ? command.issued_by.slice(5) : null;
  if (rule === null) return t("by", { who: command.issued_by });
  const fired = run.alerts.find((/** @type {any} */ a) => a.rule_id === rule);
  return t("by.rule", { rule: fired ? alertTitle(fired) : rule });
}

/** The parts that there are, with dots between. @param {(import("./dom.js").Child)[]} parts */
export const dots = (parts) =>
  parts.filter((p) => p !== null && p !== undefined && p !== false && p !== "").flatMap((p, i) => (i ? [" \u00b7 ", p] : [p]));

/** Until when nobody is told of an incident. @param {any} incident @param {Date} now */
export const silenced = (incident, now) =>
  t("incident.silenced", { time: moment(new Date(incident.silenced_until), now, { words: timeWords() }) });

/** Who has taken an incident on, and until when nobody is told of it. @param {any} incident @param {Date} now @returns {string} */
export const incidentStanding = (incident, now) =>
  [
    incident.acknowledged_by && t("incident.acknowledged", { who: incident.acknowledged_by }),
    incident.silenced_until && silenced(incident, now),
  ]
    .filter(Boolean)
    .join(" \u00b7 ");

/** @param {number} share 0 to 1 @param {string} [kind] @param {Record<string, any>} [props] */
export const meter = (share, kind = "", props = {}) =>
  h(
    "div",
    { class: `meter ${kind}`.trim(), ...props },
    h("i", { style: { width: `${Math.max(0, Math.min(1, share)) * 100}%` } }),
  );

/** A moment with its full form on hover. @param {string | null} at @param {{ relative?: boolean, seconds?: boolean }} [how] */
export function when(at, { relative = false, seconds = false } = {}) {
  if (!at) return h("span", {}, "\u2013");
  const date = new Date(at),
    now = new Date(),
    words = timeWords();
  return h(
    "time",
    { datetime: at, title: date.toLocaleString() },
    relative ? since(date, now, words) : moment(date, now, { words, seconds }),
  );
}

/** What stands between what went wrong and what to do. @param {string} detail */
export const between = (detail) => (/\u3002$/.test(detail) ? "" : /[.!?]$/.test(detail) ? " " : t("order.semicolon"));

/** What went wrong and what to do, on the spot. @param {{ detail: string, fix: string } | null} problem */
export const problemLine = (problem) =>
  problem &&
  h(
    "div",
    { class: "notice", role: "alert" },
    glyph("warning"),
    h("span", {}, problem.detail, problem.fix && h("span", {}, between(problem.detail), problem.fix)),
  );

/** What an address names is not there. @param {string} title a dictionary key */
export const missing = (title) =>
  h(
    "div",
    { class: "card empty", "data-key": "missing" },
    h("h1", {}, t(title)),
    h("p", { class: "soft" }, t("missing.text")),
    h("div", { class: "bar" }, h("a", { class: "btn", href: "/" }, t("nav.runs"))),
  );

/** A verb in the middle of a sentence. @param {string} words */
export const lowered = (words) => words.charAt(0).toLowerCase() + words.slice(1);

/** A heading with its card of content. @param {string} id @param {string} title @param {import("./dom.js").Child | import("./dom.js").Child[]} beside @param {...import("./dom.js").Child} content */
export const section = (id, title, beside, ...content) =>
  h("section", { class: "section", id, "data-key": id }, h("header", {}, h("h2", {}, title), beside), ...content);

/** A table that scrolls inside its card and can be reached by keyboard. @param {string} label @param {import("./dom.js").Child[]} heads @param {import("./dom.js").Child[]} rows @param {string} [kind] */
export const table = (label, heads, rows, kind = "") =>
  h(
    "div",
    { class: "card scroll", role: "region", tabindex: 0, "aria-label": label },
    h("table", { class: kind || null }, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows)),
  );

/** @param {string} text @param {string} [kind] */
export const th = (text, kind = "") => h("th", { class: kind || null, scope: "col" }, text);

/**
 * Puts text on the clipboard. A page without TLS has none and a browser may refuse: then the text is selected for the reader.
 * @param {string} text
 * @param {HTMLElement} shown
 * @returns {Promise<string>} what to tell the reader
 */
export async function copy(text, shown) {
  try {
    await navigator.clipboard.writeText(text);
    return t("act.copied");
  } catch {
    getSelection()?.selectAllChildren(shown);
    return t("act.selected");
  }
}

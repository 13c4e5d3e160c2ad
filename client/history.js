/**
 * What happened to a run, as the entries of a timeline: which events are worth one, with what mark and in which words. Pure.
 *
 * @typedef {import("./reducers.js").Say} Say
 * @typedef {{ id: string, at: string, step: number | null, tone: "c" | "w" | "a" | "s" | "n", icon: string, title: Say, text: Say | string,
 *   texts: Record<string, string> | null, alert: any | null, alerts: any[], command: any | null, speaks: "sentence" | "author" | "person" | "" }} Entry
 * `title` has places for the `{title}` of the alert and the `{command}`, and a `{rule}` is by its stored name: these the page fills
 * in its language; `texts`: the text in each language, where the server has written it in each; `alerts`: those of an entry for several, or the one; `speaks`: what stands below it, where that is the alert's sentence or who gave the command rather than `text`
 */

/** @typedef {Partial<Entry> & { title: Say }} Told */

const ALERT = /** @type {Record<string, Pick<Entry, "tone" | "icon">>} */ ({
  critical: { tone: "c", icon: "firing" },
  warning: { tone: "w", icon: "warning" },
  info: { tone: "n", icon: "info" },
});
const REWOUND = "history.alert.rewound";
const VERDICTS = new Set(["sound", "unsound", "corrupt"]);
const NOTES = new Set(["never_seen", "too_many_series"]); // of a rule
const COMMAND_ENDS = new Set(["succeeded", "failed", "unconfirmed", "rejected", "cancelled", "expired", "superseded"]);
const RUN = /** @type {Record<string, Pick<Entry, "tone" | "icon">>} */ ({
  lost: { tone: "w", icon: "lost" },
  found: { tone: "s", icon: "running" },
  lives: { tone: "s", icon: "running" },
  started: { tone: "n", icon: "running" },
  finished: { tone: "s", icon: "finished" },
  failed: { tone: "c", icon: "failed" },
  stopped: { tone: "n", icon: "stopped" },
  paused: { tone: "n", icon: "paused" },
  resumed: { tone: "n", icon: "running" },
  stalled: { tone: "w", icon: "stalled" },
});

/**
 * @param {any[]} events of one run, in any order
 * @param {any[]} alerts that they may speak of
 * @returns {Entry[]} the oldest first
 */
export function entries(events, alerts) {
  const known = new Map(alerts.map((a) => [a.alert_id, a]));
  return [...events]
    .sort((a, b) => Date.parse(a.at) - Date.parse(b.at) || a.event_id - b.event_id)
    .flatMap((event) => {
      const told = tell(event, known.get(event.data?.alert_id) ?? null);
      return told ? [whole(event, told)] : [];
    })
    .reduce(joined, []);
}

const AT_ONCE_MS = 1000;

/** Alerts that a rollback ends at one stroke are one entry. @param {Entry[]} listed @param {Entry} entry @returns {Entry[]} */
function joined(listed, entry) {
  const last = listed.at(-1),
    isSame = last && last.title.key.startsWith(REWOUND) && entry.title.key === REWOUND;
  if (!isSame || Date.parse(entry.at) - Date.parse(last.at) > AT_ONCE_MS) return [...listed, entry];
  const alerts = [...last.alerts, ...entry.alerts];
  return [...listed.slice(0, -1), { ...last, alerts, title: { key: `${REWOUND}.many`, values: { count: alerts.length } } }];
}

/** @param {any} event @param {Told} told @returns {Entry} */
const whole = (event, told) => ({
  id: String(event.event_id),
  at: event.at,
  step: event.step ?? null,
  tone: "n",
  icon: "dot",
  text: "",
  texts: null,
  alert: null,
  command: null,
  speaks: "",
  ...told,
  alerts: told.alert ? [told.alert] : [],
});

/**
 * What an event says under a name, in each language where the server has written more than the English.
 * @param {any} data @param {string} name @returns {Pick<Entry, "text" | "texts">}
 */
function said(data, name) {
  const text = data[name] ?? "",
    zh = data.zh?.[name] ?? text;
  return { text, texts: zh === text ? null : { en: text, zh } };
}

/** @param {any} event @param {any | null} alert @returns {Told | null} null: not worth an entry */
function tell(event, alert) {
  const [noun, ...rest] = event.type.split("."),
    what = rest.join(".");
  const teller = TELLERS[noun];
  return teller ? teller(what, event.data ?? {}, event, alert) : { title: { key: event.type }, ...said(event.data ?? {}, "text") };
}

/** @type {Record<string, (what: string, data: any, event: any, alert: any | null) => Told | null>} */
const TELLERS = {
  alert: ofAlert,
  checkpoint: ofCheckpoint,
  countdown: ofCountdown,
  command: ofCommand,
  run: ofRun,
  incident: ofIncident,
  hold: ofHold,
  silence: ofSilence,
  rule: ofRule,
};

/** @param {string} what @param {any} data @param {any} _event @param {any | null} known @returns {Told} */
function ofAlert(what, data, _event, known) {
  const alert = known ?? data,
    title = { key: `history.alert.${what}`, values: {} };
  if (what === "resolved") return { title, alert, tone: "s", icon: "finished" };
  if (what !== "firing") return { title, alert, icon: "back" };
  const drawn = alert.trial ? { tone: /** @type {const} */ ("n"), icon: "flask" } : ALERT[alert.severity];
  return { ...drawn, title, alert, speaks: "sentence" };
}

/** @param {string} what @param {any} data @param {any} event @returns {Told | null} */
function ofCheckpoint(what, data, event) {
  if (what === "save_failed")
    return {
      tone: "w",
      icon: "failed",
      title: { key: "history.save_failed", values: { step: event.step ?? "" } },
      ...said(data, "reason"),
    };
  if (what !== "changed" || !VERDICTS.has(data.state)) return null;
  const title = { key: `history.checkpoint.${data.state}`, values: { step: event.step ?? "" } };
  return { tone: data.state === "sound" ? "s" : "n", icon: data.state, title, ...said(data, "reason") };
}

/** @param {string} what @param {any} data @returns {Told | null} */
function ofCountdown(what, data) {
  const values = { step: data.target_step ?? "", seconds: data.total_seconds ?? 0 },
    dry = data.dry_run ? ".dry" : "";
  const drawn = { tone: /** @type {const} */ ("a"), icon: data.kind === "stop" ? "stopped" : "back" };
  if (what === "started")
    return {
      ...drawn,
      title: { key: `history.countdown.${data.kind}${dry}`, values },
      text: { key: "band.by_rule", values: { rule: data.rule_name ?? "" } },
    };
  if (data.state === "due" && !dry) return null; // its command follows
  return { ...drawn, title: { key: `history.countdown.${data.state}${dry}`, values }, ...said(data, "outcome") };
}

/** @param {string} what @param {any} data @returns {Told | null} */
function ofCommand(what, data) {
  if (what !== "queued" && !COMMAND_ENDS.has(what)) return null; // the list of commands has every stage
  const rollback = data.target_step === null || data.target_step === undefined ? null : { target_step: data.target_step };
  const command = { kind: data.kind, value: data.value ?? null, rollback, issued_by: data.issued_by ?? "" };
  const ended = what === "succeeded" || what === "queued" ? "a" : what === "failed" || what === "rejected" ? "c" : "n";
  const icon = data.kind === "stop" ? "stopped" : data.kind === "rollback" ? "back" : "dot";
  const title = { key: `history.command.${what}`, values: {} };
  return what === "queued"
    ? { tone: ended, icon, command, title, speaks: "author" }
    : { tone: ended, icon, command, title, ...said(data, "reason") };
}

/** @param {string} what @param {any} data @param {any} event @returns {Told | null} */
function ofRun(what, data, event) {
  if (what === "segment_started") {
    if (data.cause !== "rollback" && data.cause !== "restart") return null;
    const values = { segment: event.segment ?? data.segment, step: data.from_step ?? event.step ?? "" };
    return {
      tone: data.cause === "rollback" ? "a" : "n",
      icon: data.cause === "rollback" ? "back" : "running",
      title: { key: `history.segment.${data.cause}`, values },
    };
  }
  if (what === "resume_checked")
    return (data.findings ?? []).length
      ? { tone: "w", icon: "warning", title: { key: "health.resumed" }, text: data.findings.join("; ") }
      : null;
  if (!Object.hasOwn(RUN, what)) return null;
  return { ...RUN[what], title: { key: `history.run.${what}` }, ...said(data, "reason") };
}

/** @param {string} what @param {any} data @returns {Told | null} */
function ofIncident(what, data) {
  const values = { who: data.by ?? data.acknowledged_by ?? "" };
  if (what === "acknowledged")
    return {
      tone: "a",
      icon: "person",
      title: { key: "history.incident.acknowledged", values },
      text: data.note ?? "",
      speaks: "person",
    };
  if (what === "resolved") return { tone: "s", icon: "finished", title: { key: "history.incident.resolved" } };
  return null; // what fires says it itself
}

/** @param {string} what @param {any} data @returns {Told | null} */
function ofHold(what, data) {
  const values = { who: data.by ?? "" };
  return { tone: "a", icon: "paused", title: { key: `history.hold.${what}`, values }, text: data.reason ?? "", speaks: "person" };
}

/** @param {string} what @param {any} data @returns {Told | null} */
function ofSilence(what, data) {
  const values = { who: data.by ?? data.author ?? "" };
  return {
    tone: "n",
    icon: "silent",
    title: { key: `history.silence.${what}`, values },
    text: data.reason ?? "",
    speaks: "person",
  };
}

/** @param {string} what @param {any} data @param {any} event @returns {Told} */
function ofRule(what, data, event) {
  const values = { rule: data.rule_name ?? data.rule_id ?? "", series: data.series ?? "", step: event.step ?? "" };
  if (what === "failed")
    return { tone: "w", icon: "failed", title: { key: "history.rule.failed", values }, ...said(data, "text") };
  if (!NOTES.has(data.what)) return { icon: "info", title: { key: "history.rule.noted", values }, ...said(data, "text") };
  const key = `history.rule.${data.what}`;
  return { icon: "info", title: { key, values }, text: { key: `${key}.text`, values } };
}

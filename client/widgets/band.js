/** The status band: is it running, is it dying, what is being done. Three cells that can be read from across a room. */
import { countdown as digits, duration, moment, toNumber } from "../format.js";
import { doing, pausedBy } from "../commands.js";
import { ENDED, endedBefore, endsAt, health, phaseNow, reasonOf } from "../reducers.js";
import { resumeTrouble } from "../segments.js";
import { alertTitle, say, t, timeWords } from "../i18n/index.js";
import { progress } from "./commandlist.js";
import { h } from "./dom.js";
import { glyph } from "./icons.js";
import { by, commandName, meter, when } from "./parts.js";

const dots = (/** @type {(import("./dom.js").Child)[]} */ parts) =>
  parts.filter((p) => p !== null && p !== undefined && p !== false && p !== "").flatMap((p, i) => (i ? [" \u00b7 ", p] : [p]));

/**
 * @param {any} run RunDetail
 * @param {number} left seconds of the countdown, by the server's deadline
 * @param {Date} now
 */
export const band = (run, left, now) =>
  h(
    "div",
    { class: "band", role: "group", "data-key": "band", "aria-label": t("band") },
    stateCell(run, now),
    healthCell(run, now),
    doingCell(run, left, now),
  );

/** @param {any} run @param {Date} now */
function stateCell(run, now) {
  const share = run.total_steps ? (run.step ?? 0) / run.total_steps : null;
  const ends = endsAt(run, now);
  const before = endedBefore(run);
  const progress =
    run.step === null
      ? t("band.no_step")
      : run.total_steps
        ? t("band.steps", { step: run.step, total: run.total_steps })
        : t("band.step", { step: run.step });
  const sub =
    run.state === "lost"
      ? [
          t("band.heard"),
          " ",
          when(run.heard_at, { seconds: true }),
          run.step !== null && ` \u00b7 ${t("chart.step", { step: run.step })}`,
        ]
      : dots([
          run.state === "paused" && pausedText(run, now),
          ENDED.has(run.state) && run.ended_at
            ? `${progress} \u00b7 ${moment(new Date(run.ended_at), now, { words: timeWords() })}`
            : progress,
          ends && t("band.eta", { time: moment(ends, now, { words: timeWords() }) }),
          phaseNow(run) && t(`phase.${phaseNow(run)}`),
          ENDED.has(run.state) && run.state_reason !== "stopped by command" && say(reasonOf(run)), // that is in the third cell
          before &&
            t(before.step === null ? "band.before" : "band.before.step", { reason: say(before.reason), step: before.step }),
        ]);
  return h(
    "div",
    { class: "state-cell" },
    h("span", { class: "ask" }, t("band.state")),
    h("span", { class: "say" }, glyph(run.state), t(`state.${run.state}`)),
    h("span", { class: "sub" }, sub),
    share !== null &&
      meter(share, "", {
        role: "progressbar",
        "aria-valuenow": run.step ?? 0,
        "aria-valuemin": 0,
        "aria-valuemax": run.total_steps,
        "aria-label": t("band.progress"),
      }),
  );
}

/** Since when it stands still and by whom; a process that came back paused has no command of ours to name. @param {any} run @param {Date} now */
function pausedText(run, now) {
  const pause = pausedBy(run);
  return pause
    ? t("band.paused", { time: moment(new Date(pause.updated_at), now, { words: timeWords() }), who: by(pause, run) })
    : "";
}

/**
 * How it is; where no alert speaks, a resume that did not go on as before does.
 * @param {any} run
 * @returns {ReturnType<typeof health> & { findings?: string[] }}
 */
function healthOf(run) {
  const state = health(run),
    findings = state.alert || run.state === "lost" || ENDED.has(run.state) ? null : resumeTrouble(run);
  return findings ? { ...state, grade: "warn", icon: "warning", say: { key: "health.resumed" }, findings } : state;
}

/** @param {any} run @param {Date} now */
function healthCell(run, now) {
  const state = healthOf(run),
    alert = state.alert;
  const title = typeof state.say === "string" ? alertTitle(alert) : t(state.say.key);
  const count =
    state.count > 0 &&
    h(
      "a",
      { href: "#alerts" },
      t(ENDED.has(run.state) ? "band.alerts.end" : state.count === 1 ? "band.alert" : "band.alerts", { count: state.count }),
    );
  let sub = dots([
    state.findings && resumed(run, state.findings),
    state.findings
      ? ""
      : run.state === "lost"
        ? t("band.unheard", { span: duration((now.getTime() - Date.parse(run.heard_at)) / 1000, timeWords()) })
        : alert
          ? t("band.since", { step: alert.firing_step ?? alert.onset_step, time: ago(alert.firing_at ?? alert.onset_at, now) })
          : run.state === "created"
            ? t("band.waits")
            : run.state === "failed"
              ? t("band.unjudged")
              : lastTrouble(run),
    alert && state.firstSign !== null && t("band.first_sign", { step: state.firstSign }),
    count,
  ]);
  if (sub.length === 0) sub = [t("band.no_alert")];
  return h(
    "div",
    { class: `health ${state.grade}`.trim() },
    h("span", { class: "ask" }, t("band.health")),
    h("span", { class: "say" }, state.icon && glyph(state.icon), title),
    h("span", { class: "sub" }, sub),
  );
}

/** @param {any} run @param {string[]} findings */
const resumed = (run, findings) =>
  t("band.resumed", { step: run.segments.at(-1)?.from_step ?? "", findings: findings.join(t("order.and")) });

/** @param {string} at @param {Date} now */
const ago = (at, now) => {
  const seconds = (now.getTime() - Date.parse(at)) / 1000;
  return seconds < 60
    ? timeWords().ago.replace("{}", duration(Math.max(0, Math.floor(seconds)), timeWords()))
    : moment(new Date(at), now, { words: timeWords() });
};

/** @param {any} run */
function lastTrouble(run) {
  const last = (run.alerts ?? []).find((/** @type {any} */ a) => a.severity !== "info" && a.state === "resolved");
  if (!last) return t("band.no_alert");
  const since = (run.step ?? 0) - (last.resolved_step ?? last.onset_step);
  return since > 0
    ? t("band.no_alert_for", { steps: since })
    : t("band.last_alert", { title: alertTitle(last), step: last.onset_step });
}

/** @param {any} run @param {number} left @param {Date} now */
function doingCell(run, left, now) {
  const state = doing(run),
    count = run.countdown;
  const [before, after] = t(state.say.key).split("{clock}");
  const say = count ? [before, h("span", { class: "clock" }, digits(left)), after] : [t(state.say.key)];
  return h(
    "div",
    { class: state.busy ? "doing busy" : "doing" },
    h(
      "div",
      { class: "row" },
      h("div", {}, h("span", { class: "ask" }, t("band.doing")), h("div", { class: "say" }, say)),
      h("div", { class: "acts" }, acts(state, count, run.waiting_command ?? null)),
    ),
    h("span", { class: "sub" }, count ? countdownText(count, run.proposal?.target ?? null) : doingText(run, state, now)),
    count ? meter(count.total_seconds > 0 ? left / count.total_seconds : 0, "busy") : null,
    state.what === "command" && progress(state.command, "inline"),
  );
}

/** @param {any} state @param {any} count @param {any} waiting a stop that comes after the command */
function acts(state, count, waiting) {
  if (count)
    return [
      h("button", { class: "btn primary", "data-act": "now" }, t(`act.now.${count.kind}`)),
      h("button", { class: "btn", "data-act": "cancel-countdown", "aria-label": t(`act.cancel.${count.kind}`) }, t("act.cancel")),
    ];
  const command = waiting ?? (state.what === "command" ? state.command : null);
  if (!command || command.state === "running") return [];
  return [
    h(
      "button",
      {
        class: "btn",
        "data-act": "cancel-command",
        "data-id": command.command_id,
        "aria-label": t(`act.cancel.${command.kind}`),
      },
      t("act.cancel"),
    ),
  ];
}

/** @param {any} count @param {string | null} proposed the best target by now */
function countdownText(count, proposed) {
  const rule = h("b", { class: "strong" }, count.rule_name);
  const target =
    count.kind === "rollback" && count.target_step !== null
      ? [t(count.checkpoint_id === proposed ? "band.to.sound" : "band.to", { step: count.target_step }), " "]
      : [];
  const [before, after] = t("band.by_rule").split("{rule}");
  return [target, before, rule, after, " ", t("band.cancel_means")];
}

/** @param {any} run @param {any} state @param {Date} now */
function doingText(run, state, now) {
  const command = state.command;
  if (state.what === "waiting") return t(phaseNow(run) === "holding" ? "band.holds" : "band.kept");
  if (state.what === "paused") return t("band.paused.obeys");
  if (state.what === "command")
    return dots([
      command.rollback ? t("band.target", { step: command.rollback.target_step }) : "",
      by(command, run),
      when(command.issued_at, { seconds: true }),
      command.reason && `\u201c${command.reason}\u201d`,
      run.waiting_command && t("band.then_stop"),
    ]);
  if (state.event)
    return dots([
      t("band.called_off", { said: state.event.data.outcome }),
      moment(new Date(state.event.at), now, { words: timeWords() }),
    ]);
  if (!command) return t("band.none_yet");
  return dots([
    `${t("band.last")}${t("order.gap")}${lower(commandName(command))}${t("order.and")}${t(`command.state.${command.state}`)}`,
    moment(new Date(command.updated_at), now, { words: timeWords() }),
    by(command, run),
  ]);
}

/** A verb in the middle of a sentence. @param {string} name */
const lower = (name) => name.charAt(0).toLowerCase() + name.slice(1);

/** What a screen reader hears when the band changes its answer: states and alerts, never numbers. @param {any} run */
export function spoken(run) {
  const state = healthOf(run),
    act = doing(run);
  const title = typeof state.say === "string" ? alertTitle(state.alert) : t(state.say.key);
  return {
    text: `${t(`state.${run.state}`)}. ${title}. ${t(act.say.key).replace("{clock}", "")}`,
    critical: state.grade === "crit" ? title : "",
  };
}

/** @param {any} run @param {string} series */
export const latest = (run, series) => toNumber(run.latest?.[series]?.value ?? null);

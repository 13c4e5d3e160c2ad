/** The third cell: what is being done, by whom, and what Cancel means. */
import { countdown as digits, moment } from "../format.js";
import { doing } from "../commands.js";
import { phaseNow } from "../reducers.js";
import { clause, ruleName, t, timeWords } from "../i18n/index.js";
import { progress } from "./commandlist.js";
import { h } from "./dom.js";
import { by, commandName, dots, lowered, meter, when } from "./parts.js";

/** @param {any} run @param {number} left @param {Date} now */
export function doingCell(run, left, now) {
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
    count ? meter(count.total_seconds > 0 ? left / count.total_seconds : 0, count.dry_run ? "" : "busy") : null,
    state.what === "command" && progress(state.command, "inline"),
  );
}

/** @param {any} state @param {any} count @param {any} waiting a stop that comes after the command */
function acts(state, count, waiting) {
  if (count?.dry_run) return []; // there is nothing to hurry or to call off
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
  const rule = h("b", { class: "strong" }, ruleName(count.rule_name));
  const target =
    count.kind === "rollback" && count.target_step !== null
      ? [t(count.checkpoint_id === proposed ? "band.to.sound" : "band.to", { step: count.target_step }), " "]
      : [];
  const [before, after] = t("band.by_rule").split("{rule}");
  return [target, before, rule, after, " ", t(count.dry_run ? "band.dry_means" : "band.cancel_means")];
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
  const held = run.hold && t("band.held", { time: moment(new Date(run.hold.until), now, { words: timeWords() }) });
  if (state.event)
    return dots([
      held,
      state.event.data.dry_run && state.event.data.state === "due"
        ? t(`band.dry_run.${state.event.data.kind}`, { step: state.event.data.target_step ?? "" })
        : t("band.called_off", { said: clause(state.event.data.outcome ?? "") }),
      moment(new Date(state.event.at), now, { words: timeWords() }),
    ]);
  if (!command) return held || t("band.none_yet");
  return dots([
    held,
    `${t("band.last")}${t("order.gap")}${lowered(commandName(command))}${t("order.and")}${t(`command.state.${command.state}`)}`,
    moment(new Date(command.updated_at), now, { words: timeWords() }),
    by(command, run),
  ]);
}

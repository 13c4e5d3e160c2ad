/** The status band: is it running, is it dying, what is being done. Three cells that can be read from across a room. */
import { duration, moment, toNumber } from "../format.js";
import { doing, pausedBy } from "../commands.js";
import { ENDED, endedBefore, endsAt, phaseNow, reasonOf, shownState } from "../reducers.js";
import { alertTitle, say, t, timeWords } from "../i18n/index.js";
import { doingCell } from "./doingcell.js";
import { h } from "./dom.js";
import { healthCell, healthOf } from "./healthcell.js";
import { glyph } from "./icons.js";
import { by, dots, meter, when } from "./parts.js";

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
          shownState(run) === "stalled" && stalledText(run, now),
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
    h("span", { class: "say" }, glyph(shownState(run)), t(`state.${shownState(run)}`)),
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

/** Since when no step came, and after how long that is called stalled. @param {any} run @param {Date} now */
const stalledText = ({ stalled }, now) =>
  t("band.stalled", {
    time: moment(new Date(stalled.since), now, { words: timeWords() }),
    span: duration((now.getTime() - Date.parse(stalled.since)) / 1000, timeWords()),
    limit: duration(stalled.limit_seconds, timeWords()),
  });

/** Since when it stands still and by whom; a process that came back paused has no command of ours to name. @param {any} run @param {Date} now */
function pausedText(run, now) {
  const pause = pausedBy(run);
  return pause
    ? t("band.paused", { time: moment(new Date(pause.updated_at), now, { words: timeWords() }), who: by(pause, run) })
    : "";
}

/** What a screen reader hears when the band changes its answer: states and alerts, never numbers. @param {any} run */
export function spoken(run) {
  const state = healthOf(run),
    act = doing(run);
  const title = typeof state.say === "string" ? alertTitle(state.alert) : t(state.say.key);
  const taken = run.incident?.acknowledged_by ? [t("incident.acknowledged", { who: run.incident.acknowledged_by })] : [];
  return {
    text: [t(`state.${shownState(run)}`), title, ...taken, t(act.say.key).replace("{clock}", "")].join(t("order.stop")),
    critical: state.grade === "crit" ? title : "",
  };
}

/** @param {any} run @param {string} series */
export const latest = (run, series) => toNumber(run.latest?.[series]?.value ?? null);

/** The stop dialog. */
import { duration } from "../format.js";
import { phaseNow, stepSeconds } from "../reducers.js";
import { t, timeWords } from "../i18n/index.js";
import { h } from "./dom.js";
import { openOrder, reasonField } from "./order.js";

/** What the stop will do. @param {any} run */
function intro(run) {
  const seconds = stepSeconds(run);
  if (phaseNow(run) === "holding") return t("stop.intro.held"); // it is dead, and a dead run saves nothing
  return seconds === null || run.state === "paused"
    ? t("stop.intro")
    : t("stop.intro.time", { time: duration(seconds, timeWords()) });
}

/** From where it can be resumed: the checkpoint that a stop saves, of a dead run the proposed one. @param {any} run */
function resumable(run) {
  const target = run.checkpoints.find((/** @type {any} */ c) => c.checkpoint_id === run.proposal?.target),
    is = target ? "" : ".none";
  if (phaseNow(run) === "holding") return t(`stop.resume${is}`, { step: target?.step ?? "" });
  if ((run.proposal?.first_sign_step ?? null) === null) return t("stop.resume.saved");
  return t(`stop.resume.sick${is}`, { step: target?.step ?? "" });
}

/**
 * @param {import("./order.js").Context} context
 * @returns {import("./order.js").Opened}
 */
export function openStop(context) {
  let reason = "";
  const opened = openOrder(context, {
    narrow: true,
    stop: true,
    label: t("stop.title", { name: context.run().name }),
    top: (run) => ({ title: t("stop.title", { name: run.name }), intro: [intro(run), t("order.gap"), resumable(run)] }),
    content: () => [h("div", { class: "field", "data-key": "why" }, reasonField(reason))],
    close: "stop.keep",
    send: () => t("stop.send"),
    body: () => ({ kind: "stop", ...(reason ? { reason } : {}) }),
    input: (field) => {
      if (field.name === "reason") reason = field.value;
    },
  });
  /** @type {HTMLElement | null} */ (opened.body.querySelector("[data-act=close]"))?.focus();
  return opened;
}

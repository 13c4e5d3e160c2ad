/** What the two dialogs that give an order, Roll back and Stop, have in common. */
import { api } from "../api.js";
import { countdown as digits } from "../format.js";
import { t } from "../i18n/index.js";
import { problemOf } from "../loader.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";

/** @typedef {{ run: () => any, left: () => number, sent: (command: any) => void, load: (name: string, from: number, to: number) => Promise<import("../series.js").Decoded> }} Context */

export const closeButton = () =>
  h("button", { class: "btn bare icon", "data-act": "close", "aria-label": t("act.close") }, icon("close"));

/** The line that an open dialog shows while an automatic action counts down. @param {any} run @param {number} left */
export function countdownLine(run, left) {
  if (!run.countdown) return null;
  const [before, after] = t(`dialog.countdown.${run.countdown.kind}`, {
    step: run.countdown.target_step ?? "",
    clock: "{clock}",
  }).split("{clock}");
  return h(
    "div",
    { class: "notice auto", "data-key": "auto" },
    h("span", {}, before, h("b", { class: "strong" }, digits(left)), after),
    h("span", { class: "gap" }),
    h("button", { class: "btn small", "data-act": "cancel-auto" }, t("dialog.cancel_it")),
  );
}

/** @param {Context} context @param {(problem: any) => void} fail */
export async function cancelAuto(context, fail) {
  try {
    context.sent((await api.cancelCountdown(context.run().run_id)).command);
  } catch (error) {
    fail(problemOf(error));
  }
}

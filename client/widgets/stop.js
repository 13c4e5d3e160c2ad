/** The stop dialog. One idempotency key per opening, as in `rollback.js`. */
import { api } from "../api.js";
import { problemOf } from "../loader.js";
import { duration } from "../format.js";
import { phaseNow, stepSeconds } from "../reducers.js";
import { t, timeWords } from "../i18n/index.js";
import { idempotencyKey, openDialog } from "./dialog.js";
import { delegate, h } from "./dom.js";
import { cancelAuto, countdownLine } from "./orders.js";
import { problemLine } from "./parts.js";

/** @typedef {import("./orders.js").Context} Context */

/** What the stop will do. @param {any} run @param {number | null} seconds */
function intro(run, seconds) {
  if (phaseNow(run) === "holding") return t("stop.intro.held"); // it is dead, and a dead run saves nothing
  return seconds === null ? t("stop.intro") : t("stop.intro.time", { time: duration(seconds, timeWords()) });
}

/**
 * @param {Context} context
 * @returns {{ redraw: () => void, close: () => void }}
 */
export function openStop(context) {
  const first = context.run(),
    key = idempotencyKey(),
    seen = first.segment,
    chosen = { reason: "" };
  let problem = /** @type {any} */ (null),
    sending = false;
  const dialog = openDialog({ narrow: true, label: t("stop.title", { name: first.name }) });
  const redraw = () => {
    const run = context.run(),
      seconds = stepSeconds(run);
    const resume = run.checkpoints.find((/** @type {any} */ c) => c.checkpoint_id === run.proposal?.target);
    dialog.draw([
      h(
        "div",
        { class: "top" },
        h(
          "div",
          {},
          h("h2", {}, t("stop.title", { name: run.name })),
          h("p", {}, intro(run, seconds), " ", resume ? t("stop.resume", { step: resume.step }) : t("stop.no_resume")),
        ),
      ),
      h(
        "div",
        { class: "body stack" },
        problemLine(problem),
        run.segment !== seen && h("div", { class: "notice" }, t("dialog.moved", { segment: run.segment })),
        countdownLine(run, context.left()),
        h(
          "div",
          { class: "field" },
          h("label", { for: "reason" }, t("reason"), " ", h("span", { class: "quiet" }, t("optional"))),
          h("input", {
            class: "input",
            id: "reason",
            name: "reason",
            maxlength: 300,
            value: chosen.reason,
            placeholder: t("reason.hint"),
          }),
        ),
      ),
      h(
        "footer",
        {},
        h("span", { class: "sum" }),
        h(
          "div",
          { class: "acts" },
          h("button", { class: "btn big", "data-act": "close" }, t("stop.keep")),
          h("button", { class: "btn big stop primary", "data-act": "send", "aria-disabled": String(sending) }, t("stop.send")),
        ),
      ),
    ]);
  };
  const send = async () => {
    sending = true;
    problem = null;
    redraw();
    try {
      context.sent(
        await api.command(
          context.run().run_id,
          { kind: "stop", seen_segment: seen, ...(chosen.reason ? { reason: chosen.reason } : {}) },
          key,
        ),
      );
      dialog.close();
    } catch (error) {
      sending = false;
      problem = problemOf(error);
      redraw();
    }
  };
  delegate(dialog.body, {
    close: () => dialog.close(),
    send,
    "cancel-auto": () =>
      cancelAuto(context, (p) => {
        problem = p;
        redraw();
      }),
  });
  dialog.body.addEventListener("input", (event) => {
    const field = /** @type {HTMLInputElement} */ (event.target);
    if (field.name === "reason") chosen.reason = field.value;
  });
  redraw();
  /** @type {HTMLElement | null} */ (dialog.body.querySelector("[data-act=close]"))?.focus();
  return { redraw, close: dialog.close };
}

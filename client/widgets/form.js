/**
 * A small dialog that asks for a few fields and sends them once: acknowledge, silence, hold. What the server said no with stands in
 * the dialog, and what was typed stays.
 */
import { problemOf } from "../loader.js";
import { t } from "../i18n/index.js";
import { isDialogOpen, openDialog } from "./dialog.js";
import { delegate, h } from "./dom.js";
import { problemLine } from "./parts.js";

/**
 * @typedef {{ title: string, intro: import("./dom.js").Child, content: () => import("./dom.js").Child[], send: string, sum?: () => import("./dom.js").Child,
 *   lacking?: () => string | null, submit: () => Promise<any>, input?: (field: HTMLInputElement | HTMLSelectElement) => void, wide?: boolean }} Asked
 * `lacking`: why it cannot be sent yet, a dictionary key
 */

/**
 * Opens it, unless another dialog is open.
 * @param {Asked} asked
 */
export function openForm(asked) {
  if (isDialogOpen()) return null;
  let problem = /** @type {any} */ (null),
    sending = false;
  const dialog = openDialog({ narrow: !asked.wide, label: asked.title });
  const redraw = () => dialog.draw(picture(asked, problem, sending));
  const send = async () => {
    if (sending) return;
    sending = true;
    problem = null;
    redraw();
    try {
      await asked.submit();
      dialog.close();
    } catch (error) {
      problem = problemOf(error);
    }
    sending = false;
    redraw();
  };
  delegate(dialog.body, { close: dialog.close, send });
  const take = (/** @type {Event} */ event) => {
    asked.input?.(/** @type {HTMLInputElement} */ (event.target));
    redraw();
  };
  dialog.body.addEventListener("input", take);
  dialog.body.addEventListener("change", take);
  redraw();
  return { redraw, close: dialog.close, body: dialog.body };
}

/** @param {Asked} asked @param {any} problem @param {boolean} sending */
function picture(asked, problem, sending) {
  const lacks = asked.lacking?.() ?? null;
  return [
    h("div", { class: "top" }, h("div", {}, h("h2", {}, asked.title), h("p", {}, asked.intro))),
    h("div", { class: "body stack" }, problemLine(problem), asked.content()),
    h(
      "footer",
      { "data-key": "foot" },
      h("p", { class: "sum", role: "status" }, lacks ? h("span", { class: "soft" }, t(lacks)) : (asked.sum?.() ?? null)),
      h(
        "div",
        { class: "acts" },
        h("button", { class: "btn big", "data-act": "close" }, t("act.close")),
        h(
          "button",
          { class: "btn big primary", "data-act": "send", "aria-disabled": String(sending || lacks !== null) },
          asked.send,
        ),
      ),
    ),
  ];
}

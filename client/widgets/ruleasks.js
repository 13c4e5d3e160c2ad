/** What the rules page asks before something is lost. */
import { t } from "../i18n/index.js";
import { openDialog } from "./dialog.js";
import { delegate, h } from "./dom.js";

/**
 * @param {string} title @param {string} text @param {string} no @param {string} yes @param {boolean} isLoss whether the way on is marked as one that loses something
 * @param {() => void} then
 */
function ask(title, text, no, yes, isLoss, then) {
  const dialog = openDialog({ narrow: true, label: title });
  dialog.draw([
    h("div", { class: "top" }, h("div", {}, h("h2", {}, title), h("p", {}, text))),
    h(
      "footer",
      {},
      h("span", { class: "sum" }),
      h(
        "div",
        { class: "acts" },
        h("button", { class: "btn big", "data-act": "close" }, no),
        h("button", { class: isLoss ? "btn big stop primary" : "btn big primary", "data-act": "yes" }, yes),
      ),
    ),
  ]);
  delegate(dialog.body, {
    close: dialog.close,
    yes: () => {
      dialog.close();
      then();
    },
  });
}

/** @param {string} names @param {() => void} leave */
export const askLeave = (names, leave) =>
  ask(t("rules.leave.title"), t("rules.leave.text", { names }), t("rules.leave.stay"), t("rules.leave.go"), true, leave);

/** @param {string} name @param {() => void} then */
export const askDelete = (name, then) =>
  ask(t("rules.delete.title", { name }), t("rules.delete.text"), t("act.close"), t("act.delete"), true, then);

/** @param {string} name @param {number} version @param {() => void} then */
export const askReset = (name, version, then) =>
  ask(t("rules.reset.title", { name }), t("rules.reset.text", { version }), t("act.close"), t("rules.reset.do"), false, then);

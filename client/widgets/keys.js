/** The list of keys. */
import { t } from "../i18n/index.js";
import { openDialog } from "./dialog.js";
import { delegate, h } from "./dom.js";
import { icon } from "./icons.js";

const KEYS = /** @type {[string, string[]][]} */ ([
  ["search", ["/"]],
  ["next", ["j", "k"]],
  ["open", ["Enter"]],
  ["rollback", ["r"]],
  ["stop", ["s"]],
  ["cancel", ["c"]],
  ["acknowledge", ["a"]],
  ["range", ["0", "1"]],
  ["log", ["l"]],
  ["smoothing", ["[", "]"]],
  ["cross", ["\u2190", "\u2192"]],
  ["enlarge", ["e"]],
  ["go", ["g r", "g a", "g u", "g w"]],
  ["theme", ["t"]],
  ["these", ["?"]],
  ["close", ["Esc"]],
]);

export function keysDialog() {
  const dialog = openDialog({ label: t("keys") });
  dialog.draw([
    h(
      "div",
      { class: "top" },
      h("div", {}, h("h2", {}, t("keys"))),
      h("button", { class: "btn bare icon", "data-act": "close", "aria-label": t("act.close") }, icon("close")),
    ),
    h(
      "div",
      { class: "body" },
      h(
        "div",
        { class: "keys" },
        KEYS.map(([name, keys]) =>
          h(
            "div",
            {},
            h("span", {}, t(`key.${name}`)),
            h(
              "span",
              {},
              keys.flatMap((key, i) => [i > 0 && " ", h("kbd", {}, key)]),
            ),
          ),
        ),
      ),
    ),
  ]);
  delegate(dialog.body, { close: dialog.close });
}

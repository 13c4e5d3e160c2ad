/** The top bar: where you can go, whether the page is live, language, theme, who you are. Only what exists. */
import { t } from "../i18n/index.js";
import { h } from "./dom.js";
import { brand, icon, themeIcon } from "./icons.js";

/** Views that lie below another. */
const UNDER = /** @type {Record<string, string>} */ ({ run: "runs", incident: "alerts" });

/** @param {import("../store.js").State} state @param {string} view */
export function topBar(state, view) {
  const other = state.language === "zh" ? { name: "English", tag: "en" } : { name: "\u4e2d\u6587", tag: "zh-CN" };
  const links = () =>
    [
      ["runs", "/"],
      ["alerts", "/alerts"],
      ["rules", "/rules"],
      ["webhooks", "/webhooks"],
    ].map(([name, href]) =>
      h(
        "a",
        { href, "aria-current": name === view || name === UNDER[view] ? "page" : null },
        t(`nav.${name}`),
        name === "alerts" && state.firing > 0 && h("span", { class: "count crit" }, state.firing),
      ),
    );
  const switches = () => [
    h("button", { "data-act": "language", lang: other.tag }, other.name),
    h("button", { "data-act": "keys" }, t("keys")),
    h("button", { "data-act": "signout" }, t("signout")),
  ];
  const live = state.live === "live" ? "live" : state.live === "away" ? "away" : "connecting";
  return [
    h("a", { class: "brand", href: "/" }, brand(), "LossGuard"),
    h("nav", { class: "nav", "aria-label": t("menu") }, state.me && links()),
    h("span", { class: "gap" }),
    state.me &&
      h(
        "span",
        { class: live === "live" ? "link-state" : "link-state away", role: "status", "data-live": live },
        h("i"),
        t(`live.${live}`),
      ),
    h("button", { class: view === "signin" ? "btn bare" : "btn bare desk", "data-act": "language", lang: other.tag }, other.name), // before the sign-in there is no menu
    h("button", { class: "btn bare icon", "data-act": "theme", "aria-label": t("theme"), title: t("theme") }, themeIcon()),
    state.me &&
      h(
        "details",
        { class: "menu desk" },
        h("summary", { class: "btn bare" }, state.me.name, " ", h("span", { class: "quiet" }, t(`role.${state.me.role}`))),
        h("div", { class: "sheet" }, switches().slice(1)),
      ),
    state.me &&
      h(
        "details",
        { class: "menu only-phone" },
        h(
          "summary",
          { class: "btn icon", "aria-label": t("menu") },
          icon("menu"),
          state.firing > 0 && h("span", { class: "count crit" }, state.firing),
        ),
        h("div", { class: "sheet" }, links(), switches()),
      ),
  ];
}

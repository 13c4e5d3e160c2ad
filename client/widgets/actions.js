/**
 * What the run can be told, in every state: one button each. One that cannot be obeyed is dashed, can be focused, and its reason
 * stands beside it. On a phone Roll back and Stop lie under the thumb and the others one tap further.
 */
import { clipping, mayCommand, offered, rateFactor, reasons } from "../commands.js";
import { norm, number } from "../format.js";
import { ENDED } from "../reducers.js";
import { clause, t } from "../i18n/index.js";
import { h } from "./dom.js";
import { holdButton } from "./hold.js";
import { glyph, icon } from "./icons.js";

const ASKS = new Set(["set_learning_rate_factor", "set_max_grad_norm"]); // open a dialog that shows the value

/** @typedef {import("../commands.js").Kind} Kind */

/**
 * @param {any} run RunDetail
 * @param {{ sending: string | null, said: import("./dom.js").Child }} now `sending`: an order on its way to the server; `said`: what
 * came of the last one that was not ours
 */
export function actionBar(run, now) {
  const kinds = offered(run),
    off = reasons(run, kinds);
  const where = (/** @type {Kind} */ kind) => off.findIndex((group) => group.kinds.includes(kind));
  const one = (/** @type {Kind} */ kind, more = "", id = "why") => button(run, kind, { group: where(kind), id, more, now });
  const [first, rest] = [kinds.slice(0, 2), kinds.slice(2)],
    holdable = !ENDED.has(run.state) && !run.hold; // while it holds, the line above the figures has the way out
  return h(
    "div",
    { class: "bar actionbar" },
    first.map((kind) => one(kind)),
    rest.map((kind) => one(kind, "hide-phone")),
    holdable && holdButton(false),
    h(
      "details",
      { class: "menu up", "data-key": "more" },
      h("summary", { class: "btn icon", "aria-label": t("act.more") }, icon("more")),
      h(
        "div",
        { class: "sheet" },
        rest.map((kind) => one(kind, "", "why-more")),
        holdable && holdButton(true),
        whys(off, rest, kinds, "why-more"),
      ),
    ),
    h(
      "span",
      { class: "whys", "data-key": "whys" },
      now.said && h("span", { class: "said", role: "alert" }, now.said),
      whys(off, first, kinds, "why"),
      whys(off, rest, kinds, "why", first),
    ),
  );
}

/**
 * @param {any} run @param {Kind} kind
 * @param {{ group: number, id: string, more: string, now: { sending: string | null } }} how
 */
function button(run, kind, { group, id, more, now }) {
  const on = mayCommand(run, kind).enabled && now.sending !== kind;
  const drawn = { rollback: "back", stop: "stopped" }[/** @type {string} */ (kind)];
  return h(
    "button",
    {
      class: `btn ${kind === "stop" ? "stop" : ""} ${more}`.replace(/ +/g, " ").trim(),
      "data-act": kind,
      "data-key": kind,
      "aria-disabled": on ? null : "true",
      "aria-describedby": on || group < 0 ? null : `${id}-${group}`,
    },
    drawn && glyph(drawn),
    label(run, kind),
    ASKS.has(kind) && icon("chevron"),
  );
}

/** @param {any} run @param {Kind} kind */
function label(run, kind) {
  if (kind === "set_learning_rate_factor") return t("act.learning_rate", { factor: number(rateFactor(run)) });
  if (kind !== "set_max_grad_norm") return t(`act.${kind}`);
  const now = clipping(run);
  return now === null ? t("act.clipping") : t("act.clipping.now", { value: now > 0 ? norm(now) : t("off") });
}

/**
 * The reasons of some buttons; what holds for all is said once.
 * @param {ReturnType<typeof reasons>} off
 * @param {Kind[]} of the buttons these stand beside @param {Kind[]} all
 * @param {string} id @param {Kind[]} [said] those whose reasons stand elsewhere already
 */
function whys(off, of, all, id, said = []) {
  return off.map(({ why, kinds }, i) => {
    if (!kinds.some((kind) => of.includes(kind)) || kinds.some((kind) => said.includes(kind))) return null;
    const named = kinds.filter((kind) => of.includes(kind) || said.length === 0),
      reason = wording(why);
    const text =
      kinds.length === all.length
        ? reason.charAt(0).toUpperCase() + reason.slice(1)
        : t(named.length === 1 ? "why.off.one" : "why.off", {
            names: named.map((kind) => t(`command.${kind}`)).join(t("why.and")),
            reason,
          });
    return h("span", { class: said.length ? "why hide-phone" : "why", id: `${id}-${i}` }, text);
  });
}

/** @param {import("../reducers.js").Say | string} why */
function wording(why) {
  if (typeof why === "string") return clause(why);
  const { state, what } = why.values ?? {};
  return t(why.key, {
    ...why.values,
    ...(state ? { state: t(`state.${state}`) } : {}),
    ...(what ? { what: t(`command.${what}`) } : {}),
  });
}

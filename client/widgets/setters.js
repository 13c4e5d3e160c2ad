/** The two small dialogs that change a setting from now on: the learning rate by a factor, and where gradients are clipped. */
import { clipping, rateFactor } from "../commands.js";
import { norm, number } from "../format.js";
import { FACTORS, chosenFactor, positive } from "../rollbacks.js";
import { t } from "../i18n/index.js";
import { h } from "./dom.js";
import { openOrder, reasonField } from "./order.js";
import { clipField, factorField } from "./rollbackform.js";

/**
 * @param {import("./order.js").Context} context
 * @returns {import("./order.js").Opened}
 */
export function openLearningRate(context) {
  const now = String(rateFactor(context.run())),
    known = FACTORS.some((f) => f === now);
  const chosen = { factor: known ? now : "other", other: known ? "" : now, reason: "" };
  const factor = () => chosenFactor(/** @type {any} */ (chosen));
  return openSetter(context, chosen, {
    kind: "set_learning_rate_factor",
    field: (run) => factorField(run, chosen),
    value: factor,
    lacks: "lacks.factor",
    now: rateFactor,
    shown: number,
  });
}

/**
 * @param {import("./order.js").Context} context
 * @returns {import("./order.js").Opened}
 */
export function openClipping(context) {
  const now = clipping(context.run());
  // Where the script may clip by itself, a norm is typed and not proposed: it could only be tighter than the script's own.
  const chosen = { clip: now === null ? "" : now > 0 ? norm(now) : "1.0", reason: "" };
  return openSetter(context, chosen, {
    kind: "set_max_grad_norm",
    field: (run) => clipField(run, chosen.clip, "setter.clip"),
    value: () => positive(chosen.clip) ?? NaN,
    lacks: "lacks.clip",
    now: clipping,
    shown: norm,
  });
}

/**
 * @param {import("./order.js").Context} context
 * @param {Record<string, string>} chosen what the fields hold, by name
 * @param {{ kind: string, field: (run: any) => import("./dom.js").Child[], value: () => number, lacks: string, now: (run: any) => number | null,
 *   shown: (value: number) => string }} setter
 */
function openSetter(context, chosen, setter) {
  const { kind, value } = setter;
  const opened = openOrder(context, {
    narrow: true,
    label: t(`setter.${kind}.title`),
    top: (run) => ({ title: t(`setter.${kind}.title`), intro: t(`setter.${kind}.intro`, { name: run.name }) }),
    content: (run) => [
      h("div", { class: "field", "data-key": "value" }, setter.field(run)),
      h("div", { class: "field", "data-key": "why" }, reasonField(chosen.reason)),
    ],
    lacking: (run) => (Number.isNaN(value()) ? setter.lacks : value() === setter.now(run) ? "lacks.change" : null),
    send: () => t(`setter.${kind}.send`, { value: Number.isNaN(value()) ? "\u2026" : setter.shown(value()) }),
    body: () => ({ kind, value: value(), ...(chosen.reason ? { reason: chosen.reason } : {}) }),
    input: (field) => {
      if (field.name in chosen) chosen[field.name] = field.value;
    },
  });
  /** @type {HTMLElement | null} */ (opened.body.querySelector("input:checked, input#clip"))?.focus();
  return opened;
}

/** What the rollback dialog asks: the checkpoint, what happens to the data, what is changed afterwards. */
import { clipping, rateFactor } from "../commands.js";
import { norm, number } from "../format.js";
import { FACTORS, choices, modes, positive } from "../rollbacks.js";
import { clause, t } from "../i18n/index.js";
import { h } from "./dom.js";
import { reasonField } from "./order.js";
import { verdict, when } from "./parts.js";

/** @typedef {import("../rollbacks.js").Chosen} Chosen */

/** All checkpoints that are there; only a sound one older than the first sign can be chosen. @param {any} run @param {string | null} chosen */
export const checkpointPick = (run, chosen) =>
  h(
    "fieldset",
    { "data-key": "pick" },
    h("legend", { class: "sr" }, t("rollback.checkpoint")),
    h(
      "div",
      { class: "pick" },
      choices(run).map((/** @type {any} */ c) => choice(c, chosen)),
    ),
  );

/** @param {any} c @param {string | null} chosen */
function choice(c, chosen) {
  return h(
    "label",
    { class: c.enabled ? null : "off", "data-key": c.checkpoint_id },
    h("input", {
      type: "radio",
      name: "checkpoint",
      value: c.checkpoint_id,
      disabled: !c.enabled,
      checked: c.checkpoint_id === chosen,
    }),
    h("span", { class: "step" }, c.step),
    verdict(c.state),
    h("span", { class: "reason soft" }, clause(c.reason ?? "")),
    h(
      "span",
      { class: "quiet nowrap" },
      c.proposed ? h("span", { class: "badge busy" }, t("rollback.proposed")) : when(c.saved_at),
    ),
  );
}

/** What happens to the data; a mode that the run cannot do is grey and says why. @param {any} run @param {Chosen} chosen @param {number} step */
export function dataPick(run, chosen, step) {
  return h(
    "fieldset",
    { "data-key": "data" },
    h("legend", { class: "lbl" }, t("rollback.data", { from: step, to: run.step ?? step })),
    h(
      "div",
      { class: "opts" },
      modes(run).map(({ mode, enabled, why }) =>
        h(
          "label",
          { class: enabled ? "opt" : "opt off", "data-key": mode },
          h("input", { type: "radio", name: "data", value: mode, checked: mode === chosen.data, disabled: !enabled }),
          h("b", {}, t(`rollback.${mode}`)),
          h("p", {}, enabled ? about(mode, run) : clause(why) || t("rollback.data.off")),
        ),
      ),
    ),
  );
}

/** @param {string} mode @param {any} run */
const about = (mode, run) =>
  mode === "replay" && run.proposal.first_sign_step !== null
    ? t("rollback.replay.again", { step: run.proposal.first_sign_step })
    : t(`rollback.${mode}.text`);

/** What is changed afterwards, and why. @param {any} run @param {Chosen} chosen */
export const overrides = (run, chosen) =>
  h(
    "div",
    { class: "form", "data-key": "form" },
    h("div", { class: "field c2 wide" }, factorField(run, chosen)),
    h("div", { class: "field c2 wide" }, clipField(run, chosen.clip, "rollback.clip")),
    h("div", { class: "field c2 wide" }, reasonField(chosen.reason)),
  );

/**
 * The learning rate: times one of three, or another factor.
 * @param {any} run @param {{ factor: string, other: string }} chosen
 */
export function factorField(run, chosen) {
  const isOther = chosen.factor === "other",
    bad = isOther && Number.isNaN(positive(chosen.other)),
    now = rateFactor(run);
  const pick = (/** @type {string} */ value, /** @type {string} */ text) =>
    h(
      "label",
      { "data-key": value },
      h("input", { type: "radio", name: "factor", value, checked: chosen.factor === value, class: "sr" }),
      text,
    );
  return [
    h("span", { class: "lbl", id: "factor-label" }, t("rollback.factor")),
    h(
      "div",
      { class: "factors" },
      h(
        "div",
        { class: "seg", role: "radiogroup", "aria-labelledby": "factor-label" },
        FACTORS.map((value) => pick(value, `\u00d7${value}`)),
        pick("other", t("rollback.factor.other")),
      ),
      isOther &&
        h("input", {
          class: bad ? "input bad" : "input",
          name: "other",
          "data-key": "other",
          inputmode: "decimal",
          value: chosen.other,
          placeholder: "0.1",
          "aria-label": t("rollback.factor.label"),
          "aria-invalid": bad ? "true" : null,
        }),
    ),
    h(
      "span",
      { class: bad ? "hint bad" : "hint", "data-key": "factor-hint" },
      bad ? t("lacks.factor") : t("rollback.factor.hint", { factor: number(now) }),
    ),
  ];
}

/**
 * Where the gradients are clipped. What the script does by itself is not known here, and then nothing is claimed.
 * @param {any} run @param {string} clip as typed @param {string} words where the dictionary has its hints
 */
export function clipField(run, clip, words) {
  const now = clipping(run),
    bad = Number.isNaN(positive(clip));
  return [
    h("label", { for: "clip" }, t("rollback.clip")),
    h(
      "div",
      { class: "unit-in" },
      h("input", {
        class: bad ? "input bad" : "input",
        id: "clip",
        name: "clip",
        inputmode: "decimal",
        value: clip,
        "aria-invalid": bad ? "true" : null,
        "aria-describedby": "clip-hint",
      }),
      h("span", {}, now === null ? "" : now > 0 ? t("rollback.now", { value: norm(now) }) : t("rollback.now_off")),
    ),
    h(
      "span",
      { class: bad ? "hint bad" : "hint", id: "clip-hint" },
      t(`${words}.${bad ? "bad" : now === null ? "unknown" : "hint"}`),
    ),
  ];
}

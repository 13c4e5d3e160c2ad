/**
 * The rollback dialog: to which checkpoint, over which data, clipped at what. It asks once and says the whole order in one
 * sentence. The order goes out under one idempotency key per opening, so a doubled click or a retry after a lost answer is
 * one order.
 */
import { api } from "../api.js";
import { problemOf } from "../loader.js";
import { duration, number, toNumber } from "../format.js";
import { choices, orderSentence, setting, stepSeconds } from "../reducers.js";
import { emptySeries } from "../series.js";
import { timeline } from "../timeline.js";
import { createChart } from "../charts/frame.js";
import { model } from "../charts/model.js";
import { chartWords } from "../charts/panel.js";
import { t, timeWords } from "../i18n/index.js";
import { idempotencyKey, openDialog } from "./dialog.js";
import { delegate, h } from "./dom.js";
import { cancelAuto, closeButton, countdownLine } from "./orders.js";
import { problemLine, verdict, when } from "./parts.js";

/** @typedef {import("./orders.js").Context} Context */

/**
 * @param {Context} context
 * @returns {{ redraw: () => void, close: () => void }}
 */
export function openRollback(context) {
  const first = context.run(),
    key = idempotencyKey(),
    seen = first.segment;
  const chosen = {
    id: first.proposal.target,
    data: first.proposal.first_sign_step === null ? "replay" : "skip",
    clip: toNumber(setting(first, "max_grad_norm")) ? "" : "1.0",
    reason: "",
  };
  let problem = /** @type {any} */ (null),
    sending = false;
  const dialog = openDialog({ label: t("rollback.title", { name: first.name }), closed: () => chart.destroy() });
  const plot = h("div", { class: "plot pick-plot", role: "img", "data-own": true });
  const chart = createChart(plot);
  let data = emptySeries("train/grad_norm");

  const order = () => {
    const run = context.run(),
      target = run.checkpoints.find((/** @type {any} */ c) => c.checkpoint_id === chosen.id),
      step = target?.step ?? 0;
    const clip = chosen.clip.trim() === "" ? null : Number(chosen.clip);
    return {
      run,
      step,
      lost: Math.max(0, (run.step ?? step) - step),
      clip,
      valid: Boolean(target) && (clip === null || (clip > 0 && Number.isFinite(clip))),
    };
  };
  const drawChart = () =>
    chart.draw(({ width, height }) => {
      const { run, step } = order(),
        now = run.step ?? 0,
        marks = timeline(run),
        from = Math.max(0, step - Math.max(50, (now - step) * 2));
      return model({
        series: "train/grad_norm",
        data,
        look: [from, now + Math.max(1, (now - from) * 0.02)],
        width,
        height,
        marks,
        smoothing: 0.6,
        robust: true,
        logY: true,
        labelled: true,
        words: chartWords(),
        alt: t("rollback.chart", { step }),
        brush: {
          from: step,
          to: Math.max(step, run.proposal.first_sign_step ?? now),
          label:
            width < 500
              ? t("chart.back_to", { step })
              : `${t("chart.back_to", { step })}, ${t("chart.lost", { steps: Math.max(0, now - step) })}`,
        },
        picked: chosen.id,
      });
    });
  const redraw = () => {
    const { run, step, lost, clip, valid } = order();
    const parts = orderSentence({ step, lost, seconds: stepSeconds(run), data: chosen.data, clip });
    dialog.draw([
      h(
        "div",
        { class: "top" },
        h("div", {}, h("h2", {}, t("rollback.title", { name: run.name })), h("p", {}, t("rollback.intro"))),
        closeButton(),
      ),
      h(
        "div",
        { class: "body stack" },
        problemLine(problem),
        run.segment !== seen && h("div", { class: "notice" }, t("dialog.moved", { segment: run.segment })),
        countdownLine(run, context.left()),
        run.command &&
          h(
            "div",
            { class: "notice", "data-key": "other" },
            t("dialog.other", { who: run.command.issued_by, what: t(`command.${run.command.kind}`) }),
          ),
        h(
          "figure",
          { class: "chart flat", "data-key": "chart" },
          h("header", {}, h("h3", {}, "train/grad_norm"), h("span", { class: "unit" }, t("rollback.log"))),
          plot,
        ),
        h(
          "fieldset",
          { "data-key": "pick" },
          h("legend", { class: "sr" }, t("rollback.checkpoint")),
          h(
            "div",
            { class: "pick" },
            choices(run).map((/** @type {any} */ c) => choice(c, chosen.id)),
          ),
        ),
        h(
          "fieldset",
          { "data-key": "data" },
          h("legend", { class: "lbl" }, t("rollback.data", { from: step, to: run.step ?? step })),
          h(
            "div",
            { class: "opts two" },
            ["replay", "skip"].map((mode) => option(mode, chosen.data, run)),
          ),
        ),
        form(chosen, run, clip === null || valid || !(clip <= 0)),
      ),
      h(
        "footer",
        { "data-key": "foot" },
        h("p", { class: "sum", role: "status" }, sentence(parts)),
        h(
          "div",
          { class: "acts" },
          h("button", { class: "btn big", "data-act": "close" }, t("act.close")),
          h(
            "button",
            { class: "btn big primary", "data-act": "send", "aria-disabled": String(sending || !valid) },
            t("rollback.send", { step }),
          ),
        ),
      ),
    ]);
  };
  const send = async () => {
    const { run, clip } = order();
    sending = true;
    problem = null;
    redraw();
    try {
      const body = {
        kind: "rollback",
        seen_segment: seen,
        checkpoint_id: chosen.id,
        data: chosen.data,
        ...(chosen.reason ? { reason: chosen.reason } : {}),
        ...(clip === null ? {} : { max_grad_norm: clip }),
      };
      context.sent(await api.command(run.run_id, body, key));
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
    if (field.name === "checkpoint") {
      chosen.id = field.value;
      void drawChart();
    } else if (field.name in chosen) /** @type {any} */ (chosen)[field.name] = field.value;
    redraw();
  });
  redraw();
  /** @type {HTMLElement | null} */ (dialog.body.querySelector("input:checked"))?.focus({ preventScroll: true });
  void drawChart();
  void context.load("train/grad_norm", 0, first.step ?? 0).then((loaded) => {
    data = loaded;
    void drawChart();
  });
  return { redraw, close: dialog.close };
}

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
    h("span", { class: "reason soft" }, c.reason),
    h(
      "span",
      { class: "quiet nowrap" },
      c.proposed ? h("span", { class: "badge busy" }, t("rollback.proposed")) : when(c.saved_at),
    ),
  );
}

/** @param {string} mode @param {string} chosen @param {any} run */
function option(mode, chosen, run) {
  const text =
    mode === "replay" && run.proposal.first_sign_step !== null
      ? t("rollback.replay.again", { step: run.proposal.first_sign_step })
      : t(`rollback.${mode}.text`);
  return h(
    "label",
    { class: "opt", "data-key": mode },
    h("input", { type: "radio", name: "data", value: mode, checked: mode === chosen }),
    h("b", {}, t(`rollback.${mode}`)),
    h("p", {}, text),
  );
}

/** @param {any} chosen @param {any} run @param {boolean} ok */
function form(chosen, run, ok) {
  const now = toNumber(setting(run, "max_grad_norm"));
  return h(
    "div",
    { class: "form", "data-key": "form" },
    h(
      "div",
      { class: "field c3 wide" },
      h("label", { for: "clip" }, t("rollback.clip")),
      h(
        "div",
        { class: "unit-in" },
        h("input", {
          class: ok ? "input" : "input bad",
          id: "clip",
          name: "clip",
          inputmode: "decimal",
          value: chosen.clip,
          "aria-invalid": ok ? null : "true",
          "aria-describedby": "clip-hint",
        }),
        h("span", {}, now ? t("rollback.now", { value: number(now) }) : t("rollback.now_off")),
      ),
      h("span", { class: ok ? "hint" : "hint bad", id: "clip-hint" }, t(ok ? "rollback.clip.hint" : "rollback.clip.bad")),
    ),
    h(
      "div",
      { class: "field c3 wide" },
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
  );
}

/** @param {ReturnType<typeof orderSentence>} parts */
function sentence({ back, lost, rest }) {
  const seconds = Number(lost.values?.seconds ?? -1);
  const time = seconds >= 0 ? ` (${duration(seconds, timeWords())})` : "";
  const [before, after] = t(back.key).split("{at}");
  return [
    before,
    h("b", {}, back.values?.step),
    after,
    t("order.and"),
    h("b", {}, t(lost.key, lost.values)),
    time,
    t("order.stop"),
    rest.map((say) => t(say.key, say.values)).join(t("order.and")),
    t("order.stop").trim(),
  ];
}

/**
 * The rollback dialog: to which checkpoint, over which data, at which learning rate, clipped at what. It asks once and says the
 * whole order in one sentence.
 */
import { api } from "../api.js";
import { clipping } from "../commands.js";
import { duration, norm, number } from "../format.js";
import { problemOf } from "../loader.js";
import { stepSeconds } from "../reducers.js";
import { chosenFactor, isPlain, lacking, orderBody, orderSentence, parseSamples, positive, proposed } from "../rollbacks.js";
import { t, timeWords } from "../i18n/index.js";
import { h } from "./dom.js";
import { openOrder } from "./order.js";
import { culprits } from "./culprits.js";
import { checkpointPick, dataPick, overrides } from "./rollbackform.js";
import { createPickPlot } from "./rollbackplot.js";

/** @typedef {import("../rollbacks.js").Chosen} Chosen */

/**
 * @param {import("./order.js").Context} context
 * @returns {import("./order.js").Opened}
 */
export function openRollback(context) {
  const first = context.run();
  let chosen = proposed(first);
  /** @type {import("./culprits.js").Listed} */ let listed = { from: 0, to: 0, documents: null, truncated: false, problem: null };
  const plot = createPickPlot(context, () => chosen.id);
  const stepOf = (/** @type {any} */ run) =>
    run.checkpoints.find((/** @type {any} */ c) => c.checkpoint_id === chosen.id)?.step ?? 0;
  const list = async () => {
    const run = context.run(),
      from = stepOf(run) + 1,
      to = run.step ?? from;
    if (chosen.data !== "exclude" || (listed.from === from && listed.to >= to)) return;
    listed = { ...listed, from, to, documents: listed.from === from ? listed.documents : null, problem: null };
    try {
      Object.assign(listed, await api.documents(run.run_id, run.segment, from, to));
    } catch (error) {
      listed.problem = problemOf(error);
    }
    opened.redraw();
  };
  const opened = openOrder(context, {
    label: t("rollback.title", { name: first.name }),
    top: (run) => ({ title: t("rollback.title", { name: run.name }), intro: t("rollback.intro") }),
    content: (run) => [
      plot.element,
      checkpointPick(run, chosen.id),
      dataPick(run, chosen, stepOf(run)),
      chosen.data === "exclude" && culprits(listed, chosen),
      overrides(run, chosen),
    ],
    lacking: (run) => lacking(run, chosen),
    sum: (run) => sentence(run, chosen, stepOf(run)),
    send: (run) => t("rollback.send", { step: stepOf(run) }),
    body: (run) => orderBody(run, chosen),
    input: (field) => {
      take(chosen, field);
      if (field.name === "checkpoint") plot.draw();
      if (field.name === "checkpoint" || field.name === "data") void list();
    },
    // The reader starts over on the run as it is now: another target, the same wishes.
    anew: (run) => {
      chosen = { ...chosen, id: proposed(run).id };
      plot.reload();
      void list();
    },
    closed: plot.destroy,
  });
  /** @type {HTMLElement | null} */ (opened.body.querySelector("input:checked"))?.focus({ preventScroll: true });
  plot.reload();
  return opened;
}

/** @param {Chosen} chosen @param {HTMLInputElement} field */
function take(chosen, field) {
  if (field.name === "checkpoint") chosen.id = field.value;
  else if (field.name === "document") chosen.documents[field.checked ? "add" : "delete"](field.value);
  else if (field.name in chosen) /** @type {any} */ (chosen)[field.name] = field.value;
}

/** The whole order. @param {any} run @param {Chosen} chosen @param {number} step */
function sentence(run, chosen, step) {
  const factor = chosenFactor(chosen),
    clip = positive(chosen.clip);
  const { back, lost, rest } = orderSentence({
    step,
    lost: Math.max(0, (run.step ?? step) - step),
    seconds: stepSeconds(run),
    data: chosen.data,
    documents: chosen.documents.size,
    samples: parseSamples(chosen.samples).ids.length,
    clip: clip === clipping(run) ? null : clip,
    factor: isPlain(run, factor) ? null : factor,
  });
  const seconds = Number(lost.values?.seconds ?? -1),
    time = seconds >= 0 ? ` (${duration(seconds, timeWords())})` : "";
  const [before, after] = t(back.key).split("{at}");
  const said = rest.map((say) => t(say.key, shown(say.values))).join(t("order.and"));
  return [
    before,
    h("b", {}, step),
    after,
    t("order.and"),
    h("b", {}, t(lost.key, lost.values)),
    time,
    t("order.stop"),
    said.charAt(0).toUpperCase() + said.slice(1),
    t("order.stop").trim(),
  ];
}

/** Numbers as the sentence shows them. @param {Record<string, any> | undefined} values */
const shown = (values = {}) => ({
  ...values,
  ...("clip" in values ? { clip: norm(values.clip) } : {}),
  ...("factor" in values ? { factor: number(values.factor) } : {}),
});

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
import { paced } from "../pace.js";
import { t, timeWords } from "../i18n/index.js";
import { h } from "./dom.js";
import { openOrder } from "./order.js";
import { culprits } from "./culprits.js";
import { checkpointPick, dataPick, overrides } from "./rollbackform.js";
import { EVERY_MS, createPickPlot } from "./rollbackplot.js";

/** @typedef {import("../rollbacks.js").Chosen} Chosen */

/**
 * @param {import("./order.js").Context} context
 * @returns {import("./order.js").Opened}
 */
export function openRollback(context) {
  const first = context.run();
  let chosen = proposed(first);
  const plot = createPickPlot(context, () => chosen.id);
  const stepOf = (/** @type {any} */ run) =>
    run.checkpoints.find((/** @type {any} */ c) => c.checkpoint_id === chosen.id)?.step ?? 0;
  const list = createDocuments(context, () => (chosen.data === "exclude" ? stepOf(context.run()) : null));
  const opened = openOrder(context, {
    label: t("rollback.title", { name: first.name }),
    top: (run) => ({ title: t("rollback.title", { name: run.name }), intro: t("rollback.intro") }),
    content: (run) => [
      plot.element,
      checkpointPick(run, chosen.id),
      dataPick(run, chosen, stepOf(run)),
      chosen.data === "exclude" && culprits(list.listed, chosen, [stepOf(run) + 1, run.step ?? stepOf(run) + 1]),
      overrides(run, chosen),
    ],
    lacking: (run) => lacking(run, chosen),
    sum: (run) => sentence(run, chosen, stepOf(run)),
    send: (run) => t("rollback.send", { step: stepOf(run) }),
    body: (run) => orderBody(run, chosen),
    input: (field) => {
      take(chosen, field);
      if (field.name === "checkpoint") plot.draw();
      if (field.name === "checkpoint" || field.name === "data") list.read();
    },
    // The reader starts over on the run as it is now: another target, the same wishes.
    anew: (run) => {
      chosen = { ...chosen, id: proposed(run).id };
      plot.reload();
      list.read();
    },
    closed: () => {
      plot.destroy();
      list.destroy();
    },
  });
  list.changed = opened.redraw;
  /** @type {HTMLElement | null} */ (opened.body.querySelector("input:checked"))?.focus({ preventScroll: true });
  plot.reload();
  return {
    ...opened,
    // The run trains on meanwhile, so that chart and documents tell of the same steps as the words around them.
    redraw: () => {
      plot.follow();
      list.follow();
      opened.redraw();
    },
  };
}

/**
 * The documents of the steps that are given up, read again when the target changes and, from time to time, when the run moves on.
 * @param {import("./order.js").Context} context
 * @param {() => number | null} after the step of the target; null while nobody asks for documents
 */
function createDocuments(context, after) {
  /** @type {import("./culprits.js").Listed} */ let listed = { documents: null, truncated: false, problem: null };
  let asked = { from: "", to: -1 },
    seenTo = -1;
  const read = async () => {
    const { run_id, segment, step: now } = context.run(),
      step = after();
    if (step === null) return;
    const from = `${segment}/${step + 1}`,
      to = now ?? step + 1;
    if (asked.from === from && asked.to >= to && !listed.problem) return;
    if (asked.from !== from) {
      listed = { documents: null, truncated: false, problem: null };
      seenTo = -1;
    }
    const mine = (asked = { from, to });
    const answer = await api
      .documents(run_id, segment, step + 1, to)
      .then((got) => ({ ...got, problem: null }))
      .catch((error) => ({ ...listed, problem: problemOf(error) }));
    if (mine.from !== asked.from || to < seenTo) return; // another target by now, or a newer answer was quicker
    seenTo = to;
    listed = answer;
    made.changed();
  };
  const pace = paced(EVERY_MS, () => void read());
  const made = {
    get listed() {
      return listed;
    },
    changed: () => {},
    read: pace.now,
    follow: pace.ask,
    destroy: pace.stop,
  };
  return made;
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
    time = seconds >= 0 ? t("order.aside", { aside: duration(seconds, timeWords()) }) : "";
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

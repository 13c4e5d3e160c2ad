/**
 * A rollback before it is ordered: to which checkpoint, over which data, with what changed; and the order as one sentence. Pure.
 *
 * @typedef {import("./reducers.js").Say} Say
 * @typedef {{ id: string | null, data: string, documents: Set<string>, samples: string, factor: string, other: string, clip: string, reason: string }} Chosen
 * what the dialog holds: `samples`, `other` and `clip` as typed
 */
import { clipping, rateFactor } from "./commands.js";

const MODES = /** @type {const} */ (["replay", "skip", "exclude"]);
export const FACTORS = /** @type {const} */ (["1", "0.5", "0.25"]);
export const MOST_SAMPLES = 10_000; // of one order, as the server takes them
export const MOST_DOCUMENTS = 200;

/** Checkpoints as the dialog lists them, newest step first; each says whether it may be chosen. @param {any} run */
export function choices(run) {
  const passed = new Map((run.proposal?.passed_over ?? []).map((/** @type {any} */ p) => [p.checkpoint_id, p.reason]));
  const target = run.proposal?.target ?? null;
  const targetStep = (run.checkpoints ?? []).find((/** @type {any} */ c) => c.checkpoint_id === target)?.step ?? Infinity;
  return (run.checkpoints ?? [])
    .filter((/** @type {any} */ c) => !c.superseded && c.state !== "deleted")
    .map((/** @type {any} */ c) => {
      const enabled = c.state === "sound" && !passed.has(c.checkpoint_id) && c.step <= targetStep;
      return {
        ...c,
        enabled,
        proposed: c.checkpoint_id === target,
        reason: enabled ? c.reason : passed.get(c.checkpoint_id) || c.why || c.reason,
      };
    })
    .sort((/** @type {any} */ a, /** @type {any} */ b) => b.step - a.step);
}

/**
 * What can be done with the data, each with why not. An older agent says nothing: it replays and skips.
 * @param {any} run RunDetail
 * @returns {{ mode: string, enabled: boolean, why: string }[]}
 */
export function modes(run) {
  const able = run.data_modes ?? ["replay", "skip"];
  return MODES.map((mode) => ({
    mode,
    enabled: able.includes(mode),
    why: able.includes(mode) ? "" : (run.data_modes_because ?? ""),
  }));
}

/** What the dialog proposes at first. @param {any} run @returns {Chosen} */
export function proposed(run) {
  const able = modes(run)
      .filter((m) => m.enabled)
      .map((m) => m.mode),
    factor = String(rateFactor(run)),
    known = FACTORS.some((f) => f === factor);
  return {
    id: run.proposal?.target ?? null,
    data: able.includes(run.proposal?.data) ? run.proposal.data : (able[0] ?? "replay"), // as where an order leaves it open
    documents: new Set(),
    samples: "",
    factor: known ? factor : "other",
    other: known ? "" : factor,
    clip: clipping(run) === 0 ? "1.0" : "", // off, and known to be off: a first remedy; else it stays as it is
    reason: "",
  };
}

/**
 * Sample ids as a person types them: "17, 40-44".
 * @param {string} text
 * @returns {{ ids: number[], bad: string | null, many: boolean }} the ids ascending and once each; the first part that is none
 */
export function parseSamples(text) {
  /** @type {Set<number>} */
  const ids = new Set();
  for (const part of text.split(/[\s,;\uff0c\u3001]+/).filter(Boolean)) {
    const [, from, to = from] = /^(\d{1,15})(?:[-\u2013](\d{1,15}))?$/.exec(part) ?? [];
    if (from === undefined || Number(to) < Number(from)) return { ids: [], bad: part, many: false };
    if (Number(to) - Number(from) + ids.size >= MOST_SAMPLES) return { ids: [], bad: null, many: true };
    for (let id = Number(from); id <= Number(to); id += 1) ids.add(id);
  }
  return { ids: [...ids].sort((a, b) => a - b), bad: null, many: ids.size > MOST_SAMPLES };
}

/** A number above zero, null for an empty field, NaN for what is none. @param {string} text */
export function positive(text) {
  if (text.trim() === "") return null;
  const value = Number(text.trim().replace(",", "."));
  return value > 0 && Number.isFinite(value) ? value : NaN;
}

/** The factor as chosen; NaN where the field holds none. @param {Chosen} chosen */
export const chosenFactor = (chosen) => (chosen.factor === "other" ? (positive(chosen.other) ?? NaN) : Number(chosen.factor));

/**
 * Whether the schedule's own rate was and stays in force: the only factor that goes without saying. Any other is sent and said
 * even where it is what holds, since the run may have another one by the time that the order arrives.
 * @param {any} run @param {number} factor
 */
export const isPlain = (run, factor) => factor === 1 && rateFactor(run) === 1;

/**
 * What keeps the order from being sent, as a dictionary key; null when nothing does.
 * @param {any} run @param {Chosen} chosen
 * @returns {string | null}
 */
export function lacking(run, chosen) {
  const { ids, bad, many } = parseSamples(chosen.samples);
  if (!(run.checkpoints ?? []).some((/** @type {any} */ c) => c.checkpoint_id === chosen.id)) return "lacks.checkpoint";
  if (Number.isNaN(chosenFactor(chosen))) return "lacks.factor";
  if (Number.isNaN(positive(chosen.clip))) return "lacks.clip";
  if (chosen.data !== "exclude") return null;
  if (bad !== null || many) return "lacks.samples";
  if (chosen.documents.size > MOST_DOCUMENTS) return "lacks.documents";
  return ids.length + chosen.documents.size === 0 ? "lacks.culprits" : null;
}

/**
 * The order as the API takes it.
 * @param {any} run @param {Chosen} chosen
 */
export function orderBody(run, chosen) {
  const clip = positive(chosen.clip),
    factor = chosenFactor(chosen),
    samples = parseSamples(chosen.samples).ids;
  return {
    kind: "rollback",
    checkpoint_id: chosen.id,
    data: chosen.data,
    ...(chosen.data === "exclude" && samples.length ? { exclude_samples: samples } : {}),
    ...(chosen.data === "exclude" && chosen.documents.size ? { exclude_documents: [...chosen.documents].sort() } : {}),
    ...(clip === null ? {} : { max_grad_norm: clip }),
    ...(isPlain(run, factor) ? {} : { learning_rate_factor: factor }),
    ...(chosen.reason ? { reason: chosen.reason } : {}),
  };
}

/** "without 1 document", "without 2 documents and 3 samples". @param {number} documents @param {number} samples @returns {Say} */
export function withoutWhat(documents, samples) {
  const many = (/** @type {string} */ noun, /** @type {number} */ n) => (n === 0 ? "" : `.${noun}${n === 1 ? "" : "s"}`);
  return { key: `order.data.exclude${many("document", documents)}${many("sample", samples)}`, values: { documents, samples } };
}

/**
 * The order in one sentence: back to where, how much is lost, what changes.
 * @param {{ step: number, lost: number, seconds: number | null, data: string, documents?: number, samples?: number, clip: number | null, factor?: number | null }} order
 * `clip` and `factor`: null where they stay as they are
 * @returns {{ back: Say, lost: Say, rest: Say[] }}
 */
export function orderSentence({ step, lost, seconds, data, documents = 0, samples = 0, clip, factor = null }) {
  return {
    back: { key: "order.back", values: { step } },
    lost: {
      key: lost === 1 ? "order.lost.one" : "order.lost",
      values: { steps: lost, seconds: seconds === null ? -1 : seconds * lost },
    },
    rest: [
      data === "exclude" ? withoutWhat(documents, samples) : { key: `order.data.${data}` },
      clip === null ? { key: "order.clip.same" } : { key: "order.clip", values: { clip } },
      factor === null ? { key: "order.factor.same" } : { key: "order.factor", values: { factor } },
    ],
  };
}

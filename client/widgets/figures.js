/** Eight key figures in cells of fixed size: what the training says of itself right now. */
import { duration, gibibytes, number, powerOfTwo, toNumber } from "../format.js";
import { limitOn, OPEN } from "../timeline.js";
import { t, timeWords } from "../i18n/index.js";
import { h } from "./dom.js";
import { latest } from "./band.js";

/**
 * @param {any} run RunDetail
 * @param {{ step: number, value: number } | null} lastFiniteLoss from the chart, for "was 15.2 at 5020"
 * @param {number | null} medianSeconds of a step, from the chart
 */
export function figures(run, lastFiniteLoss, medianSeconds) {
  const gpu = latest(run, "system/gpu_memory_bytes"),
    host = latest(run, "system/host_memory_bytes"),
    epoch = latest(run, "train/epoch");
  const seconds = medianSeconds ?? latest(run, "perf/step_seconds");
  const attributes = run.attributes ?? {};
  const cells = [
    cell(
      run,
      "train/loss",
      t("figure.loss"),
      number,
      lastFiniteLoss && !Number.isFinite(latest(run, "train/loss") ?? 0)
        ? t("figure.was", { value: number(lastFiniteLoss.value) })
        : "",
      lastFiniteLoss ? t("figure.was.at", { step: lastFiniteLoss.step }) : "",
    ),
    cell(run, "train/grad_norm", t("figure.grad_norm"), number, limitText(run, "train/grad_norm")),
    cell(
      run,
      "amp/loss_scale",
      t("figure.loss_scale"),
      powerOfTwo,
      latest(run, "amp/loss_scale") === null ? t("figure.no_scaler") : "",
    ),
    cell(run, "train/learning_rate", t("figure.learning_rate"), number, ""),
    plain(t("figure.step_time"), duration(seconds, timeWords()), medianSeconds === null ? "" : t("figure.median")),
    plain(
      gpu === null ? t("figure.host_memory") : t("figure.gpu_memory"),
      gibibytes(gpu ?? host),
      (gpu ?? host) === null ? "" : "GiB",
    ),
    plain(t("figure.epoch"), epoch === null ? "\u2013" : epoch.toFixed(2), ""),
    plain(t("figure.host"), run.host || "\u2013", String(attributes.device_name ?? attributes.device ?? "")),
  ];
  return h("dl", { class: "figures", "data-key": "figures" }, cells);
}

/** @param {any} run @param {string} series @param {string} name @param {(v: number | null) => string} format @param {string} note @param {string} [where] after the note, where there is room */
function cell(run, series, name, format, note, where = "") {
  const value = latest(run, series),
    open = run.alerts.filter(
      (/** @type {any} */ a) =>
        (a.series === series || (series === "amp/loss_scale" && a.series === "amp/overflow")) &&
        OPEN.has(a.state) &&
        a.state !== "pending" &&
        !a.trial,
    );
  const odd = value !== null && !Number.isFinite(value);
  const kind =
    odd || open.some((/** @type {any} */ a) => a.severity === "critical")
      ? "bad"
      : open.some((/** @type {any} */ a) => a.severity === "warning")
        ? "odd"
        : "";
  return plain(name, format(value), note, kind, note && where);
}

/** @param {string} name @param {string} value @param {string} note @param {string} [kind] @param {string} [where] */
const plain = (name, value, note, kind = "", where = "") =>
  h(
    "div",
    { class: kind || null },
    h("dt", { title: name }, name),
    h(
      "dd",
      { title: `${value} ${note}${where}`.trim() },
      value,
      " ",
      h("small", {}, note, where && h("span", { class: "wide" }, where)),
    ),
  );

/** @param {any} run @param {string} series */
function limitText(run, series) {
  const open = run.alerts.some((/** @type {any} */ a) => a.series === series && OPEN.has(a.state) && toNumber(a.limit) !== null);
  return open ? t("figure.limit", { value: number(limitOn(run, series)) }) : "";
}

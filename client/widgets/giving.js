/** Giving orders from the run page: which dialog a button opens, which order goes out at one click, and what came of it. */
import { KINDS, mayCommand } from "../commands.js";
import { problemOf } from "../loader.js";
import { t } from "../i18n/index.js";
import { actionBar } from "./actions.js";
import { isDialogOpen } from "./dialog.js";
import { giveNow } from "./order.js";
import { commandName } from "./parts.js";
import { openRollback } from "./rollback.js";
import { openClipping, openLearningRate } from "./setters.js";
import { openStop } from "./stop.js";

/** @typedef {import("../commands.js").Kind} Kind */

const DIALOGS = /** @type {Record<string, (context: import("./order.js").Context) => import("./order.js").Opened>} */ ({
  rollback: openRollback,
  stop: openStop,
  set_learning_rate_factor: openLearningRate,
  set_max_grad_norm: openClipping,
});

/**
 * @param {import("./order.js").Context} context
 * @param {() => void} redraw draws the row of buttons anew
 */
export function createGiver(context, redraw) {
  /** @type {import("./order.js").Opened | null} */ let opened = null;
  /** @type {Kind | null} */ let sending = null;
  let said = "";
  /** A save, a pause, a resume: one order a click, and no second one while the first is on its way. @param {Kind} kind */
  const now = async (kind) => {
    sending = kind;
    redraw();
    try {
      const other = await giveNow(context, kind);
      said = other ? `${t("dialog.other", { who: other.issued_by, what: commandName(other) })} ${t("dialog.nothing")}` : "";
    } catch (error) {
      const { detail, fix } = problemOf(error);
      said = `${t(`command.${kind}`)}: ${[detail, fix].filter(Boolean).join("; ")}`;
      context.sent();
    }
    sending = null;
    redraw();
  };
  const give = (/** @type {Kind} */ kind) => {
    const run = context.run();
    if (!run || sending !== null || isDialogOpen() || !mayCommand(run, kind).enabled) return;
    said = "";
    redraw();
    if (kind in DIALOGS) opened = DIALOGS[kind](context);
    else void now(kind);
  };
  return {
    give,
    /** What the buttons do, by `data-act`. */
    acts: Object.fromEntries(KINDS.map((kind) => [kind, () => give(kind)])),
    bar: () => actionBar(context.run(), { sending, said }),
    redraw: () => opened?.redraw(),
    close: () => opened?.close(),
  };
}

/** Parts of the run page: where you are, the chart controls, and the question before a cancelled countdown. */
import { MOST_LINES } from "../charts/ranks.js";
import { setting } from "../commands.js";
import { incidentPath } from "../router.js";
import { state } from "../store.js";
import { t } from "../i18n/index.js";
import { isDialogOpen, openDialog } from "./dialog.js";
import { delegate, h } from "./dom.js";
import { glyph } from "./icons.js";
import { verdict, when } from "./parts.js";

/** @param {any} run */
export function crumbs(run) {
  const tags = [setting(run, "precision"), run.project].filter(Boolean);
  return h(
    "div",
    { class: "crumbs" },
    h("a", { href: "/" }, t("nav.runs")),
    " ",
    h("span", {}, "/"),
    " ",
    h("h1", {}, run.name),
    tags.map((tag) => h("span", { class: "tag" }, tag)),
    h(
      "span",
      { class: "hide-phone" },
      t("crumbs.segment", { segment: run.segment }),
      " \u00b7 ",
      t("crumbs.started"),
      " ",
      when(run.created_at),
      ` \u00b7 ${run.integration}`,
      run.world_size > 1 && ` \u00b7 ${t("crumbs.ranks", { ranks: run.world_size })}`,
    ),
    run.incident &&
      h(
        "span",
        { class: "end hide-phone" },
        h("a", { class: "btn bare small", href: incidentPath(run.run_id, run.incident.incident_id) }, t("incident.open")),
      ),
  );
}

/** Records the agent had to drop: counted, not guessed. @param {any} run */
export const dropped = (run) =>
  run.dropped_records > 0 &&
  h("div", { class: "notice info lost-records" }, glyph("deleted"), h("span", {}, t("dropped", { count: run.dropped_records })));

/** @param {import("../charts/panel.js").Look} look @param {number} steps @param {number} ranks */
export function chartControls(look, steps, ranks) {
  const press = (/** @type {string} */ act, /** @type {boolean} */ on, /** @type {string} */ text, kind = "btn") =>
    h("button", { class: kind || null, "data-act": act, "aria-pressed": String(on) }, text);
  return h(
    "div",
    { class: "bar controls scrollbar-x" },
    h(
      "div",
      { class: "seg", role: "group", "aria-label": t("controls.range") },
      press("whole", look.kind === "whole", t("controls.whole"), ""),
      press("last", look.kind === "last", t("controls.last", { steps }), ""),
    ),
    look.kind === "fixed" &&
      h(
        "span",
        { class: "badge busy fixed-range" },
        t("controls.fixed", { from: Math.round(look.from), to: Math.round(look.to) }),
      ),
    look.kind === "fixed" && h("button", { class: "btn small", "data-act": "whole" }, t("controls.follow")),
    h(
      "label",
      { class: "slider" },
      t("controls.smoothing"),
      " ",
      h("input", { type: "range", name: "smoothing", min: 0, max: 95, value: Math.round(state.smoothing * 100) }),
      " ",
      h("span", { class: "amount" }, state.smoothing.toFixed(2)),
    ),
    press("log-y", state.logY, t("controls.log")),
    press("robust", state.robust, t("controls.robust")),
    ranks > 1 && ranks <= MOST_LINES && press("each-rank", state.eachRank, t("controls.each_rank")),
    h("span", { class: "gap" }),
    h("span", { class: "legend hide-phone" }, ["sound", "unsound", "corrupt"].map(verdict)),
  );
}

/** The key asks before it cancels; the button beside the clock does not. @param {any} run @param {() => void} cancel */
export function askCancel(run, cancel) {
  if (!run?.countdown || run.countdown.dry_run || isDialogOpen()) return;
  const dialog = openDialog({ narrow: true, label: t(`act.cancel.${run.countdown.kind}`) });
  dialog.draw([
    h("div", { class: "top" }, h("div", {}, h("h2", {}, t("cancel.title")), h("p", {}, t("cancel.intro")))),
    h(
      "footer",
      {},
      h("span", { class: "sum" }),
      h(
        "div",
        { class: "acts" },
        h("button", { class: "btn big", "data-act": "close" }, t("act.close")),
        h("button", { class: "btn big primary", "data-act": "yes" }, t(`act.cancel.${run.countdown.kind}`)),
      ),
    ),
  ]);
  delegate(dialog.body, {
    close: dialog.close,
    yes: () => {
      dialog.close();
      cancel();
    },
  });
}

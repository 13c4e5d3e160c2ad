/** Alerts of all runs, open ones first. */
import { ApiError, api } from "../api.js";
import { OPEN } from "../timeline.js";
import { t } from "../i18n/index.js";
import { delegate, h, patch } from "../widgets/dom.js";
import { alertTable } from "../widgets/lists.js";
import { problemLine } from "../widgets/parts.js";

/**
 * @param {HTMLElement} host
 * @param {import("../router.js").Shell} shell
 * @returns {import("../router.js").View}
 */
export function alertsView(host, shell) {
  /** @type {any[] | null} */ let alerts = null;
  /** @type {any} */ let problem = null;
  let only = "all",
    closed = false,
    busy = false,
    again = false;
  const draw = () => {
    if (closed) return;
    const all = alerts ?? [],
      open = all.filter((a) => OPEN.has(a.state));
    const choice = (/** @type {string} */ name, /** @type {number} */ count) =>
      h(
        "button",
        { "data-act": "only", "data-id": name, "aria-pressed": String(name === only) },
        t(`alerts.${name}`),
        h("span", { class: "quiet" }, count),
      );
    patch(host, [
      h("div", { class: "crumbs" }, h("h1", {}, t("nav.alerts"))),
      problemLine(problem),
      h(
        "div",
        { class: "bar filters" },
        h(
          "div",
          { class: "seg", role: "group", "aria-label": t("col.state") },
          choice("all", all.length),
          choice("open", open.length),
        ),
      ),
      alerts !== null && alertTable(only === "open" ? open : [...open, ...all.filter((a) => !OPEN.has(a.state))], { runs: true }),
    ]);
    const firing = open.filter((a) => a.state !== "pending" && a.severity !== "info");
    shell.title(
      t("nav.alerts"),
      firing.length,
      firing.some((a) => a.severity === "critical"),
    );
  };
  const load = async () => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    again = false;
    try {
      alerts = await api.alerts();
      problem = null;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status !== 401) problem = { detail: error.detail, fix: error.fix };
    } finally {
      busy = false;
    }
    draw();
    if (again && !closed) setTimeout(load, 900);
  };
  const quiet = delegate(host, {
    only: (target) => {
      only = target.dataset.id ?? "all";
      draw();
    },
  });
  void load();
  return {
    changed: (revisions, all) => {
      if (all || Object.keys(revisions).length > 0) void load();
    },
    restyle: draw,
    keys: {},
    close() {
      closed = true;
      quiet();
      host.replaceChildren();
    },
  };
}

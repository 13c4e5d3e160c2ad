/** Alerts of all runs, open ones first. */
import { api } from "../api.js";
import { createLoader } from "../loader.js";
import { OPEN } from "../timeline.js";
import { t } from "../i18n/index.js";
import { delegate, h, patch } from "../widgets/dom.js";
import { alertTable } from "../widgets/alertlist.js";
import { problemLine } from "../widgets/parts.js";

/**
 * @param {HTMLElement} host
 * @param {import("../router.js").Shell} shell
 * @returns {import("../router.js").View}
 */
export function alertsView(host, shell) {
  /** @type {any[] | null} */ let alerts = null;
  /** @type {any} */ let problem = null;
  let only = "all";
  const draw = () => {
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
  const loader = createLoader(
    async () => {
      alerts = await api.alerts();
    },
    (wrong) => {
      problem = wrong;
      draw();
    },
    900,
  );
  const quiet = delegate(host, {
    only: (target) => {
      only = target.dataset.id ?? "all";
      draw();
    },
  });
  void loader.load();
  return {
    changed: (revisions, all) => {
      if (all || Object.keys(revisions).length > 0) void loader.load();
    },
    restyle: draw,
    keys: {},
    close() {
      loader.close();
      quiet();
      host.replaceChildren();
    },
  };
}

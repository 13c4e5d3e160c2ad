/** The run list: what needs you, then filters, then every run with its state, reason and figures. */
import { api } from "../api.js";
import { createLoader } from "../loader.js";
import { ENDED, filterRuns, grade, needsYou, remaining } from "../reducers.js";
import { runPath } from "../router.js";
import { openAcknowledge } from "../widgets/acknowledge.js";
import { t } from "../i18n/index.js";
import { delegate, h, patch } from "../widgets/dom.js";
import { copy, problemLine } from "../widgets/parts.js";
import { SNIPPET, empty, filters, listing, strip } from "../widgets/runtable.js";

/**
 * @param {HTMLElement} host
 * @param {import("../router.js").Shell} shell
 * @returns {import("../router.js").View}
 */
export function runsView(host, shell) {
  /** @type {any[] | null} */ let runs = null;
  /** @type {any[]} */ let incidents = [];
  /** @type {any} */ let problem = null;
  let filter = "all",
    text = "",
    receivedAt = 0,
    at = -1,
    held = new Set();
  const search = /** @type {HTMLInputElement} */ (
    h("input", { class: "input find-run", type: "search", placeholder: t("runs.search"), "aria-label": t("runs.search") })
  );
  const find = h("div", { class: "find-run-box hide-phone", "data-own": true, "data-key": "find" }, search);
  const draw = () => {
    const all = runs ?? [],
      left = (/** @type {any} */ run) => remaining(run.countdown, receivedAt, Date.now());
    patch(host, [
      h("h1", { class: "sr" }, t("nav.runs")),
      problemLine(problem),
      runs !== null && strip(all, left, incidents),
      runs !== null && filters(all, filter, find),
      runs !== null && all.length === 0 ? empty() : runs !== null && listing(filterRuns(all, filter, text), left, all.length, at),
    ]);
    shell.title(
      t("nav.runs"),
      all.filter(needsYou).length,
      all.some((run) => !ENDED.has(run.state) && grade(run) === "crit"),
    );
  };
  const loader = createLoader(
    async () => {
      [runs, incidents] = await Promise.all([api.runs(), api.incidents(true)]);
      receivedAt = Date.now();
      held = new Set(runs?.map((run) => `${run.run_id}@${run.revision}`));
    },
    (wrong) => {
      problem = wrong;
      draw();
    },
  );
  const move = (/** @type {number} */ by) => {
    const links = /** @type {HTMLElement[]} */ ([...host.querySelectorAll("a.name")]);
    at = Math.max(0, Math.min(links.length - 1, at + by));
    links[at]?.focus();
  };
  const quiet = delegate(host, {
    filter: (target) => {
      filter = target.dataset.id ?? "all";
      at = -1;
      draw();
    },
    clear: () => {
      filter = "all";
      text = "";
      search.value = "";
      draw();
    },
    "cancel-countdown": (target) => void loader.attempt(() => api.cancelCountdown(target.dataset.id ?? "")),
    acknowledge: (target) => {
      const incident = incidents.find((i) => i.incident_id === target.dataset.id);
      if (incident) openAcknowledge(incident, () => void loader.load());
    },
    row: (target, event) => {
      if (!(/** @type {Element} */ (event.target).closest("a, button"))) shell.go(runPath(target.dataset.id ?? ""));
    },
    copy: async (target) => {
      target.textContent = await copy(SNIPPET, /** @type {HTMLElement} */ (host.querySelector("pre")));
    },
  });
  search.addEventListener("input", () => {
    text = search.value;
    draw();
  });
  const tick = window.setInterval(() => {
    if (document.visibilityState === "visible") draw();
  }, 1000);
  void loader.load();
  return {
    changed: (revisions, all) => {
      if (all || Object.entries(revisions).some(([id, revision]) => !held.has(`${id}@${revision}`))) void loader.load();
    },
    restyle: () => {
      search.placeholder = t("runs.search");
      draw();
    },
    keys: { j: () => move(1), k: () => move(-1), "/": () => search.focus() },
    close() {
      loader.close();
      quiet();
      window.clearInterval(tick);
      host.replaceChildren();
    },
  };
}

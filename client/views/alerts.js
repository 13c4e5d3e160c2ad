/** Alerts of all runs in three tabs: incidents, as a person handles them; every alert, with filters; and the silences. */
import { api } from "../api.js";
import { choices, filtered, noFilter, sorted } from "../incidents.js";
import { createLoader } from "../loader.js";
import { firing } from "../reducers.js";
import { alertsPath } from "../router.js";
import { holds } from "../silences.js";
import { t } from "../i18n/index.js";
import { openAcknowledge } from "../widgets/acknowledge.js";
import { alertFilters, alertTable } from "../widgets/alertlist.js";
import { delegate, h, patch } from "../widgets/dom.js";
import { incidentList } from "../widgets/incidentlist.js";
import { problemLine } from "../widgets/parts.js";
import { openSilence } from "../widgets/silence.js";
import { silenceList } from "../widgets/silencelist.js";

/** @typedef {"incidents" | "all" | "silences"} Tab */

/**
 * @param {HTMLElement} host
 * @param {Tab} tab
 * @param {import("../router.js").Shell} shell
 * @returns {import("../router.js").View}
 */
export function alertsView(host, tab, shell) {
  let known = /** @type {{ incidents: any[], alerts: any[], silences: any[] } | null} */ (null),
    filter = noFilter(),
    at = -1;
  /** @type {any} */ let problem = null;
  const draw = () => {
    patch(host, [
      h("div", { class: "crumbs" }, h("h1", {}, t("nav.alerts"))),
      problemLine(problem),
      tabs(tab, known),
      known && contents(tab, known, filter),
    ]);
    const trouble = firing({ alerts: known?.alerts ?? [] });
    shell.title(
      t("nav.alerts"),
      trouble.length,
      trouble.some((a) => a.severity === "critical"),
    );
  };
  const loader = createLoader(
    async () => {
      const [incidents, alerts, silences] = await Promise.all([api.incidents(), api.alerts(), api.silences()]);
      known = { incidents, alerts, silences };
    },
    (wrong) => {
      problem = wrong;
      draw();
    },
    900,
  );
  const acknowledge = (/** @type {string} */ id) => {
    const incident = known?.incidents.find((i) => i.incident_id === id);
    if (incident) openAcknowledge(incident, () => void loader.load());
  };
  const silence = async () => {
    const [runs, rules] = await Promise.all([api.runs(), api.rules()]);
    if (!loader.closed) openSilence({ runs, rules }, {}, () => void loader.load());
  };
  const quiet = delegate(host, {
    row: (target, event) => {
      if (!(/** @type {Element} */ (event.target).closest("a, button"))) shell.go(target.dataset.href ?? "/alerts");
    },
    acknowledge: (target) => acknowledge(target.dataset.id ?? ""),
    silence: () => void loader.attempt(silence),
    "end-silence": (target) => void loader.attempt(() => api.endSilence(target.dataset.id ?? "")),
    "clear-filter": () => {
      filter = noFilter();
      for (const field of host.querySelectorAll("select")) field.value = "";
      draw();
    },
  });
  const choose = (/** @type {Event} */ event) => {
    const field = /** @type {HTMLSelectElement} */ (event.target);
    if (!(field.name in filter)) return;
    filter = { ...filter, [field.name]: field.value };
    draw();
  };
  host.addEventListener("change", choose);
  const move = (/** @type {number} */ by) => {
    const links = /** @type {HTMLElement[]} */ ([...host.querySelectorAll("td a.name")]);
    at = Math.max(0, Math.min(links.length - 1, at + by));
    links[at]?.focus();
  };
  void loader.load();
  return {
    changed: (revisions, all) => {
      if (all || Object.keys(revisions).length > 0) void loader.load();
    },
    restyle: draw,
    keys: {
      j: () => move(1),
      k: () => move(-1),
      a: () => {
        const row = /** @type {HTMLElement | null} */ (document.activeElement?.closest("tr[data-href]") ?? null);
        const open = sorted(known?.incidents ?? []).open.filter((i) => i.state === "triggered");
        acknowledge(row?.getAttribute("data-key") ?? (open.length === 1 ? open[0].incident_id : ""));
      },
    },
    close() {
      loader.close();
      quiet();
      host.removeEventListener("change", choose);
      host.replaceChildren();
    },
  };
}

/** @param {Tab} tab @param {{ incidents: any[], alerts: any[], silences: any[] } | null} known */
function tabs(tab, known) {
  const now = new Date();
  const counts = known && {
    incidents: sorted(known.incidents).open.length,
    all: known.alerts.length,
    silences: known.silences.filter((s) => holds(s, now)).length,
  };
  const link = (/** @type {Tab} */ name) =>
    h(
      "a",
      { href: alertsPath(name), "aria-current": name === tab ? "page" : null },
      t(`alerts.tab.${name}`),
      counts && h("span", { class: "quiet" }, counts[name]),
    );
  return h(
    "div",
    { class: "bar filters", "data-key": "tabs" },
    h("nav", { class: "seg", "aria-label": t("nav.alerts") }, link("incidents"), link("all"), link("silences")),
  );
}

/** @param {Tab} tab @param {{ incidents: any[], alerts: any[], silences: any[] }} known @param {import("../incidents.js").Filter} filter */
function contents(tab, known, filter) {
  if (tab === "incidents") return incidentList(known.incidents, new Date());
  if (tab === "silences") return silenceList(known.silences, new Date());
  const open = known.alerts.filter((a) => a.state !== "resolved"),
    shown = filtered([...open, ...known.alerts.filter((a) => a.state === "resolved")], filter);
  return [alertFilters(filter, choices(known.alerts), shown.length, known.alerts.length), alertTable(shown, { runs: true })];
}

/** The incident page: what happened, what was done and what to do next; its curves, its alerts, the checkpoints around it, its timeline. */
import { api } from "../api.js";
import { createPanel } from "../charts/panel.js";
import { isOpen, lookOf, openAlerts, seriesOf } from "../incidents.js";
import { createLoader } from "../loader.js";
import { t } from "../i18n/index.js";
import { openAcknowledge } from "../widgets/acknowledge.js";
import { delegate, h, patch } from "../widgets/dom.js";
import { markdown, showMarkdown } from "../widgets/incidentmarkdown.js";
import { alertItems, answers, checkpointsNear, incidentHead, timelineOf } from "../widgets/incidentparts.js";
import { copy, missing, problemLine } from "../widgets/parts.js";
import { seriesTable } from "../widgets/seriestable.js";
import { openSilence } from "../widgets/silence.js";
import { state } from "../store.js";

/** @typedef {import("../charts/panel.js").Look} Look */

/**
 * @param {HTMLElement} host
 * @param {{ run: string, id: string }} which
 * @param {import("../router.js").Shell} shell
 * @returns {import("../router.js").View}
 */
export function incidentView(host, which, shell) {
  /** @type {any} */ let incident = null;
  /** @type {any} */ let run = null;
  /** @type {any} */ let problem = null;
  /** @type {Look | null} */ let zoomed = null;
  let said = "";
  const [top, charts, below] = ["top", "charts", "below"].map((name) =>
    h("div", { class: `incident-${name}`, "data-own": true }),
  );
  host.replaceChildren(top, charts, below);
  const follow = () => setLook(null);
  const setLook = (/** @type {Look | null} */ look) => {
    zoomed = look;
    void panel.refresh();
  };
  const fixed = () => {
    const [from, to] = lookOf(incident, run);
    return /** @type {Look} */ ({ kind: "fixed", from, to });
  };
  const panel = createPanel(charts, which.run, {
    settings: () => state,
    look: () => zoomed ?? fixed(),
    zoom: (from, to) => setLook({ kind: "fixed", from: Math.max(0, from), to }),
    follow,
    table: seriesTable,
    only: (shown) =>
      seriesOf(
        incident,
        shown.series.map((/** @type {any} */ s) => s.series),
      ),
  });
  const draw = () => {
    if (!incident && problem?.status === 404) patch(top, [missing("missing.incident")]);
    else patch(top, [problemLine(problem), incident && incidentHead(incident, run, new Date()), incident && answers(incident)]);
    if (!incident || !run) return;
    patch(
      below,
      h(
        "div",
        { class: "story" },
        h("div", {}, alertItems(incident, run), checkpointsNear(incident, run)),
        h("aside", { class: "section" }, timelineOf(incident, run)),
      ),
    );
    tell();
  };
  const tell = () => {
    const open = isOpen(incident),
      name = t("incident.short", { number: incident.number });
    shell.title(`${name} \u00b7 ${incident.run_name}`, openAlerts(incident), open && incident.severity === "critical");
    const words = `${name}: ${t(`incident.state.${incident.state}`)}`;
    if (words !== said) shell.speak((said = words));
  };
  const loader = createLoader(
    async () => {
      const [found, detail] = await Promise.all([api.incident(which.run, which.id), api.run(which.run)]);
      if (loader.closed) return;
      incident = found;
      // Its own alerts, and no others, are what the charts tell of; the timeline has the words of all.
      run = { ...detail, incident: found, alerts: found.alerts, other_alerts: detail.alerts };
      draw();
      await panel.update(run);
    },
    (wrong) => {
      problem = wrong;
      draw();
    },
    900,
  );
  const silence = async () => {
    const [runs, rules] = await Promise.all([api.runs(), api.rules()]);
    if (!loader.closed) openSilence({ runs, rules }, { run: which.run }, () => void loader.load());
  };
  const acknowledge = () => {
    if (incident?.state === "triggered") openAcknowledge(incident, () => void loader.load());
  };
  const quiet = delegate(host, {
    acknowledge,
    silence: () => void loader.attempt(silence),
    markdown: () => showMarkdown(markdown(incident, run, new Date())),
    link: async (target) => {
      target.textContent = await copy(location.href, /** @type {HTMLElement} */ (top.querySelector("h1")));
    },
  });
  void loader.load();
  return {
    changed: (revisions, all) => {
      if (all || (revisions[which.run] ?? -1) > (run?.revision ?? -1)) void loader.load();
    },
    restyle: () => {
      draw();
      panel.redraw();
    },
    keys: {
      a: acknowledge,
      0: follow,
      ArrowLeft: (event) => incident && panel.moveCross(event.shiftKey ? -10 : -1),
      ArrowRight: (event) => incident && panel.moveCross(event.shiftKey ? 10 : 1),
    },
    close() {
      loader.close();
      quiet();
      panel.destroy();
      host.replaceChildren();
    },
  };
}

/** The run page: three answers on top, what can be ordered, then everything the training said of itself. */
import { api } from "../api.js";
import { createLoader } from "../loader.js";
import { decode, emptySeries, lastFinite, median } from "../series.js";
import { lastSteps, timeline } from "../timeline.js";
import { ACTIVE } from "../commands.js";
import { wantsPerson } from "../incidents.js";
import { firing, remaining, worstAlert } from "../reducers.js";
import { createLifeline } from "../charts/lifeline.js";
import { createPanel } from "../charts/panel.js";
import { t } from "../i18n/index.js";
import { band, spoken } from "../widgets/band.js";
import { openAcknowledge } from "../widgets/acknowledge.js";
import { alertTable } from "../widgets/alertlist.js";
import { checkpointList } from "../widgets/checkpointlist.js";
import { commandList } from "../widgets/commandlist.js";
import { delegate, h, patch } from "../widgets/dom.js";
import { figures } from "../widgets/figures.js";
import { createGiver } from "../widgets/giving.js";
import { holdLine, openHold } from "../widgets/hold.js";
import { createLedger } from "../widgets/ledger.js";
import { missing, problemLine, section } from "../widgets/parts.js";
import { askCancel, chartControls, crumbs, dropped } from "../widgets/runparts.js";
import { segmentTable } from "../widgets/segmentlist.js";
import { seriesTable } from "../widgets/seriestable.js";
import { set, state } from "../store.js";

/** @typedef {import("../router.js").View} View */

/**
 * @param {HTMLElement} host
 * @param {string} id
 * @param {import("../router.js").Shell} shell
 * @param {[number, number] | null} [steps] that the link to it pointed at
 * @returns {View}
 */
export function runView(host, id, shell, steps = null) {
  /** @type {any} */ let run = null;
  /** @type {any} */ let problem = null;
  let receivedAt = 0,
    said = "",
    shouted = "";
  /** @type {import("../charts/panel.js").Look} */ let look = steps
    ? { kind: "fixed", from: steps[0], to: steps[1] }
    : { kind: "whole" };
  /** @type {import("../series.js").Decoded} */ let hill = emptySeries("train/loss");
  let hillStep = -1;
  const parts = ["top", "life", "bar", "middle", "controls", "charts", "lists", "ledger"].map((name) =>
    h("div", { class: `run-${name}`, "data-own": true }),
  );
  const [top, life, bar, middle, controls, charts, lists, samples] = parts;
  const lifeHost = h("div", { class: "life-plot" });
  life.className = "lifeline";
  life.append(lifeHost);
  host.replaceChildren(...parts);
  const left = () => (run?.countdown ? remaining(run.countdown, receivedAt, Date.now()) : 0);
  const span = () => lastSteps(run?.total_steps ?? null);
  const setLook = (/** @type {import("../charts/panel.js").Look} */ next) => {
    look = next;
    drawControls();
    drawLife();
    void panel.refresh();
  };
  const panel = createPanel(charts, id, {
    settings: () => state,
    look: () => look,
    zoom: (from, to) => setLook({ kind: "fixed", from: Math.max(0, from), to }),
    follow: () => setLook({ kind: "whole" }),
    table: seriesTable,
    pick: (step) => ledger.pick(step),
  });
  const ledger = createLedger(samples, id);
  const lifeline = createLifeline(lifeHost, { look: (from, to) => setLook({ kind: "fixed", from, to }) });

  const drawTop = () => {
    life.hidden = !run;
    if (!run && problem?.status === 404) patch(top, [missing("missing.run")]);
    else patch(top, [problemLine(problem), run && crumbs(run), run && band(run, left(), new Date())]);
  };
  const drawLife = () => {
    if (!run) return;
    const step = run.step ?? 0,
      target =
        (run.countdown?.dry_run ? null : run.countdown?.target_step) ??
        (run.command?.kind === "rollback" ? run.command.rollback?.target_step : null) ??
        null;
    const total = Math.max(run.total_steps ?? 0, step, ...run.checkpoints.map((/** @type {any} */ c) => c.step), 1);
    lifeline.show({
      total,
      step,
      look: panel.range(),
      marks: timeline(run),
      hill: hill.traces.filter((trace) => !trace.superseded && trace.rank === 0),
      target,
      note: t("chart.step", { step }),
      alt: t("lifeline.alt", { step, total, checkpoints: run.checkpoints.length, alerts: firing(run).length }),
    });
  };
  const drawBar = () => patch(bar, giver.bar());
  const drawControls = () => run && patch(controls, [chartControls(look, span(), run.world_size)]);
  const draw = () => {
    drawTop();
    if (!run) return;
    const loss = panel.figures.get("train/loss")?.data ?? hill,
      seconds = panel.figures.get("perf/step_seconds")?.data;
    drawBar();
    patch(middle, [
      holdLine(run, new Date()),
      dropped(run),
      figures(
        run,
        lastFinite(loss),
        seconds ? median(seconds.traces.filter((x) => !x.superseded).flatMap((x) => Array.from(x.values))) : null,
      ),
    ]);
    drawControls();
    drawLife();
    patch(lists, [
      section("checkpoints", t("checkpoints"), h("span", { class: "quiet" }, t("checkpoints.about")), checkpointList(run)),
      section("alerts", t("alerts"), null, alertTable(run.alerts, { segments: run.segments })),
      section("commands", t("commands"), h("span", { class: "quiet" }, t("commands.about")), commandList(run)),
      run.segments.length > 1 &&
        section("segments", t("segments"), h("span", { class: "quiet" }, t("segments.about")), segmentTable(run)),
    ]);
    ledger.draw();
    giver.redraw();
    tell();
  };
  const tell = () => {
    const words = spoken(run);
    if (words.text !== said) {
      said = words.text;
      shell.speak(words.text);
    }
    if (words.critical !== shouted) {
      shouted = words.critical;
      if (shouted) shell.shout(`${run.name}: ${shouted}`);
    }
    const worst = worstAlert(run);
    shell.title(run.name, firing(run).length, worst?.severity === "critical");
  };
  const loader = createLoader(
    async () => {
      const next = await api.run(id);
      if (loader.closed) return;
      run = next;
      receivedAt = Date.now();
      draw(); // the figures must not wait for the curves, or band and figures tell of different steps
      await Promise.all([panel.update(run), loadHill()]);
    },
    (wrong) => {
      problem = wrong;
      draw();
    },
  );
  const loadHill = async () => {
    const step = run.step ?? 0;
    if (
      Math.abs(step - hillStep) < Math.max(5, step / 200) ||
      !run.series.some((/** @type {any} */ s) => s.series === "train/loss")
    )
      return;
    hillStep = step;
    hill = decode(await api.series(id, "train/loss", 0, Math.max(step, run.total_steps ?? 0), 300));
  };
  const context = {
    run: () => run,
    left,
    // What was ordered shows at once; the next read says how far it is.
    sent: (/** @type {any} */ command) => {
      if (command && ACTIVE.has(command.state)) {
        run = { ...run, [command.behind ? "waiting_command" : "command"]: command };
        draw();
      }
      void loader.load();
    },
    load: async (/** @type {string} */ name, /** @type {number} */ from, /** @type {number} */ to) =>
      decode(await api.series(id, name, from, to, 1000)),
  };
  const giver = createGiver(context, () => drawBar());
  const acts = {
    ...giver.acts,
    pin: (/** @type {HTMLElement} */ target) =>
      loader.attempt(() => api.pin(id, target.dataset.id ?? "", target.getAttribute("aria-pressed") !== "true")),
    now: () => loader.attempt(() => api.countdownNow(id)),
    "cancel-countdown": () => loader.attempt(() => api.cancelCountdown(id)),
    "cancel-command": (/** @type {HTMLElement} */ target) => loader.attempt(() => api.cancelCommand(id, target.dataset.id ?? "")),
    acknowledge: () => {
      if (wantsPerson(run?.incident)) openAcknowledge(run.incident, () => void loader.load());
    },
    hold: () => void openHold(run, () => void loader.load()),
    lift: () => loader.attempt(() => api.liftHold(id)),
    whole: () => setLook({ kind: "whole" }),
    last: () => setLook({ kind: "last", steps: span() }),
    "log-y": () => change({ logY: !state.logY }),
    robust: () => change({ robust: !state.robust }),
    "each-rank": () => change({ eachRank: !state.eachRank }),
  };
  const change = (/** @type {Partial<import("../store.js").State>} */ what) => {
    set(what);
    drawControls();
    panel.redraw();
  };
  const quiet = delegate(host, acts);
  const slide = (/** @type {Event} */ event) => {
    const field = /** @type {HTMLInputElement} */ (event.target);
    if (field.name === "smoothing") change({ smoothing: Number(field.value) / 100 });
  };
  host.addEventListener("input", slide);
  const tick = window.setInterval(() => {
    if (run && document.visibilityState === "visible") {
      drawTop();
      if (run.countdown) giver.redraw();
    }
  }, 1000);
  void loader.load();

  return {
    changed: (revisions, all) => {
      if (all || (revisions[id] ?? -1) > (run?.revision ?? -1)) void loader.load();
    },
    restyle: () => {
      draw();
      panel.redraw();
    },
    keys: {
      r: () => giver.give("rollback"),
      s: () => giver.give("stop"),
      c: () => askCancel(run, acts["cancel-countdown"]),
      a: acts.acknowledge,
      0: acts.whole,
      1: acts.last,
      l: acts["log-y"],
      "[": () => change({ smoothing: Math.max(0, state.smoothing - 0.1) }),
      "]": () => change({ smoothing: Math.min(0.95, state.smoothing + 0.1) }),
      ArrowLeft: (event) => panel.moveCross(event.shiftKey ? -10 : -1),
      ArrowRight: (event) => panel.moveCross(event.shiftKey ? 10 : 1),
      e: () => enlarge(panel),
    },
    close() {
      loader.close();
      window.clearInterval(tick);
      quiet();
      host.removeEventListener("input", slide);
      giver.close();
      ledger.destroy();
      lifeline.destroy();
      panel.destroy();
      host.replaceChildren();
    },
  };
}

/** Enlarges the chart in focus. @param {ReturnType<typeof createPanel>} panel */
function enlarge(panel) {
  for (const figure of panel.figures.values()) if (figure.element.contains(document.activeElement)) figure.toggleSize();
}

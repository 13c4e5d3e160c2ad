/**
 * All charts of a run on one step axis: which there are, what they show, and when they fetch. A chart out of sight neither
 * fetches nor draws; at most two rounds a second, and never a second round before the first is through.
 */
import { ApiError, api } from "../api.js";
import { decode, emptySeries } from "../series.js";
import { firstSign } from "../reducers.js";
import { limitOn, openOn, timeline, window as windowOf } from "../timeline.js";
import { differences } from "../segments.js";
import { say, t } from "../i18n/index.js";
import { h, patch } from "../widgets/dom.js";
import { COMPANIONS, createFigure } from "./figure.js";
import { model } from "./model.js";

/** @typedef {ReturnType<typeof createFigure>} Figure */
/** @typedef {{ kind: "whole" } | { kind: "last", steps: number } | { kind: "fixed", from: number, to: number }} Look */

const GROUPS = /** @type {[string, string[]][]} */ ([
  ["loss", ["train/loss", "train/grad_norm"]],
  ["precision", ["amp/loss_scale", "train/learning_rate"]],
  ["speed", ["perf/step_seconds", "perf/tokens_per_second", "system/gpu_memory_bytes", "system/host_memory_bytes"]],
]);
const DRAWN_WITH_OTHERS = new Set(["eval/loss", "amp/overflow", "train/epoch"]);
const FIRST = ["train/loss", "train/grad_norm"]; // drawn before the first point, so that the page does not jump when it comes

/**
 * The groups and their series, in order; host memory gives way to GPU memory, the rest goes to "other".
 * @param {string[]} names
 * @returns {[string, string[]][]}
 */
export function groups(names) {
  const have = new Set([...FIRST, ...names]);
  if (have.has("system/gpu_memory_bytes")) have.delete("system/host_memory_bytes");
  const known = GROUPS.map(([name, all]) => /** @type {[string, string[]]} */ ([name, all.filter((s) => have.has(s))]));
  const placed = new Set([...known.flatMap(([, all]) => all), ...DRAWN_WITH_OTHERS, "system/host_memory_bytes"]);
  const rest = names.filter((name) => !placed.has(name)).sort();
  return [...known, /** @type {[string, string[]]} */ (["other", rest])].filter(([, all]) => all.length > 0);
}

/**
 * @param {HTMLElement} host
 * @param {string} runId
 * @param {{ settings: () => { smoothing: number, robust: boolean, logY: boolean, eachRank: boolean }, look: () => Look, zoom: (from: number, to: number) => void, follow: () => void, pick?: (step: number) => void, table: (name: string, data: import("../series.js").Decoded) => void, only?: (run: any) => string[] }} on
 * `only`: the series to draw, in one group without a heading; otherwise all of the run
 */
export function createPanel(host, runId, on) {
  /** @type {Map<string, Figure>} */
  const figures = new Map();
  /** @type {Set<Element>} */
  const visible = new Set();
  /** @type {any} */ let run = null;
  /** @type {number | null} */ let crossStep = null;
  let round = /** @type {AbortController | null} */ (null),
    drawn = "";
  const eye = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) visible.add(entry.target);
        else visible.delete(entry.target);
      }
      if (entries.some((entry) => entry.isIntersecting)) void refresh();
    },
    { rootMargin: "120px" },
  );

  const range = () => windowOf(on.look(), run?.step ?? null);
  const setCross = (/** @type {number | null} */ step) => {
    if (step !== crossStep) {
      crossStep = step;
      for (const f of figures.values()) f.cross(step);
    }
  };

  /** @param {string} name @param {number} many @param {string} group @returns {Figure} */
  const figureOf = (name, many, group) => {
    const old = figures.get(name);
    if (old) {
      old.spec.width = many <= 2 ? "w6" : "w4";
      return old;
    }
    const made = createFigure(
      { name, width: many <= 2 ? "w6" : "w4", short: !FIRST.includes(name), companion: COMPANIONS[name] ?? null },
      {
        zoom: on.zoom,
        smoothed: () => on.settings().smoothing > 0,
        eachRank: () => on.settings().eachRank,
        reset: on.follow,
        cross: setCross,
        pick: on.pick,
        table: () => {
          if (made.data) on.table(name, made.data);
        },
      },
    );
    made.element.setAttribute("data-own", "");
    made.element.setAttribute("data-key", name);
    figures.set(name, made);
    eye.observe(made.element);
    return made;
  };
  const place = () => {
    /** @type {[string, string[]][]} */
    const wanted = on.only ? [["", on.only(run)]] : groups(run.series.map((/** @type {any} */ s) => s.series));
    const key = JSON.stringify(wanted) + t("group.loss");
    if (key === drawn) return;
    drawn = key;
    patch(
      host,
      wanted.map(([group, names]) =>
        h(
          "section",
          { class: "section charts", "data-key": group },
          group ? h("header", {}, h("h2", {}, t(`group.${group}`))) : h("h2", { class: "sr" }, t("charts")),
          h("div", { class: "grid" }),
        ),
      ),
    );
    // The figures live on: they are moved into their grids, never rebuilt.
    wanted.forEach(([group, names], i) =>
      host.children[i]
        .querySelector(".grid")
        ?.replaceChildren(...names.map((name) => figureOf(name, group ? names.length : besides(name, names), group).element)),
    );
  };
  /** @param {Figure} f */
  const tell = (f) => {
    const marks = timeline(run),
      open = openOn(marks.bands, f.spec.name);
    const summary = run.series.find((/** @type {any} */ s) => s.series === f.spec.name);
    const [from, to] = range();
    f.tell(
      summary,
      open ? (open.kind === "crit" ? "firing" : "watching") : "",
      marks.superseded.filter(([a, b]) => b >= from && a <= to),
    );
  };
  /** @param {Figure} f */
  const draw = (f) =>
    f.chart.draw(({ width, height }) => {
      const { name, companion } = f.spec,
        data = f.data ?? emptySeries(name),
        look = range();
      return model({
        series: name,
        data,
        dots: companion === "eval/loss" ? f.companion : null,
        overflow: companion === "amp/overflow" ? f.companion : null,
        look,
        width,
        height,
        marks: timeline(run),
        firstSign: firstSign(run),
        limit: limitOn(run, name),
        ...on.settings(),
        labelled: !f.spec.short,
        words: chartWords(run),
        alt: altOf(f, run, look),
      });
    });
  /** @param {string} name @param {AbortSignal} signal */
  const fetchOne = async (name, signal) => {
    const [from, to] = range(),
      margin = (to - from) * 0.02;
    return decode(await api.series(runId, name, Math.max(0, from - margin), to + margin, 1000, signal));
  };
  /** @param {Figure} f @param {AbortSignal} signal */
  const load = async (f, signal) => {
    const known = new Set(run.series.map((/** @type {any} */ s) => s.series));
    const [own, other] = await Promise.all(
      [f.spec.name, f.spec.companion].map((name) => (name && known.has(name) ? fetchOne(name, signal) : null)),
    );
    f.take(own ?? emptySeries(f.spec.name), other);
    tell(f);
    await draw(f);
  };
  const refresh = async () => {
    if (!run) return;
    round?.abort();
    const mine = (round = new AbortController());
    const seen = [...figures.values()].filter((f) => visible.has(f.element));
    await Promise.all(
      seen.map((f) =>
        load(f, mine.signal).catch((error) => {
          if (error instanceof ApiError || (error instanceof DOMException && error.name === "AbortError")) return; // the live state tells it
          throw error;
        }),
      ),
    );
  };
  return {
    /** @param {any} next RunDetail */
    update(next) {
      run = next;
      place();
      for (const f of figures.values()) tell(f);
      return refresh();
    },
    refresh,
    redraw() {
      drawn = "";
      if (run) {
        place();
        for (const f of figures.values()) {
          tell(f);
          if (visible.has(f.element)) void draw(f);
        }
      }
    },
    range,
    figures,
    /** @param {number} by */
    moveCross(by) {
      const [from, to] = range();
      setCross(Math.round(Math.min(to, Math.max(from, (crossStep ?? run?.step ?? to) + by))));
    },
    clearCross: () => setCross(null),
    destroy() {
      round?.abort();
      eye.disconnect();
      for (const f of figures.values()) f.destroy();
    },
  };
}

/** How many stand in a row with one of a free choice: the two that matter by themselves, the others in twos or threes. @param {string} name @param {string[]} names */
const besides = (name, names) => (FIRST.includes(name) || names.filter((n) => !FIRST.includes(n)).length <= 2 ? 2 : 3);

/** @param {any} [run] whose rollbacks say at their mark what they changed */
export const chartWords = (run) => ({
  firstSign: t("chart.first_sign"),
  restart: t("chart.restart"),
  rollback: t("chart.rolled_back"),
  limit: t("chart.limit"),
  offScale: t("chart.off_scale"),
  trial: t("chart.trial"),
  ranks: t("chart.of_rank"),
  colon: t("order.colon"),
  and: t("order.and"),
  changed: Object.fromEntries((run?.segments ?? []).map((/** @type {any} */ s) => [s.segment, differences(run, s).map(say)])),
});

/** @param {Figure} f @param {any} run @param {[number, number]} look */
function altOf(f, run, look) {
  const summary = run.series.find((/** @type {any} */ s) => s.series === f.spec.name);
  return t("chart.alt", {
    name: f.spec.name,
    from: Math.round(look[0]),
    to: Math.round(look[1]),
    last: summary ? String(summary.last?.value ?? "") : t("chart.empty"),
    odd: summary?.nonfinite_count ?? 0,
  });
}

/** The run list's parts: the strip of what needs you, the filters, the table. */
import { countdown as digits, gibibytes, moment, number, powerOfTwo, shortSpan } from "../format.js";
import { ENDED, FILTERS, byUrgency, endsAt, filterRuns, firstSign, grade, phaseNow, reasonOf, shownState } from "../reducers.js";
import { wantsPerson } from "../incidents.js";
import { runPath } from "../router.js";
import { spark } from "../charts/spark.js";
import { alertTitle, say, t, timeWords } from "../i18n/index.js";
import { latest } from "./band.js";
import { h } from "./dom.js";
import { glyph, icon } from "./icons.js";
import { lowered, meter, runState, severityBadge, th } from "./parts.js";

const THREE = 3; // lines in the strip; the rest is a count
export const SNIPPET =
  "from trainer_agent.hf import guarded_train\n\ntrainer = Trainer(model=model, args=args, ...)\nguarded_train(trainer)";

/**
 * What needs you, at most three lines; one calm line when nothing does.
 * @param {any[]} runs @param {(run: any) => number} left @param {any[]} incidents the open ones
 */
export function strip(runs, left, incidents) {
  const wanting = byUrgency(runs, incidents);
  const live = runs.filter((run) => !ENDED.has(run.state)).length;
  if (wanting.length === 0) {
    return h(
      "section",
      { class: "card", "data-key": "strip", "aria-label": t("runs.needs") },
      h(
        "div",
        { class: "attn calm" },
        h(
          "span",
          { class: "what soft" },
          live === 0 ? t("runs.calm.none") : t(live === 1 ? "runs.calm.one" : "runs.calm", { count: live }),
        ),
      ),
    );
  }
  return h(
    "section",
    { class: "card", "data-key": "strip", "aria-label": t("runs.needs") },
    wanting.slice(0, THREE).map((run) =>
      attention(
        run,
        left,
        incidents.find((i) => i.run_id === run.run_id),
      ),
    ),
    wanting.length > THREE &&
      h(
        "div",
        { class: "attn more" },
        h(
          "button",
          { class: "btn bare small", "data-act": "filter", "data-id": "needs" },
          t("runs.more", { count: wanting.length - THREE }),
        ),
      ),
  );
}

/** @param {any} run @param {(run: any) => number} left @param {any | undefined} incident */
function attention(run, left, incident) {
  const worst = run.alerts.worst,
    grave = grade(run) === "crit";
  const badge =
    run.state === "lost"
      ? h("span", { class: "badge warn" }, glyph("lost"), t("state.lost"))
      : !worst && shownState(run) === "stalled"
        ? h("span", { class: "badge warn" }, glyph("stalled"), t("state.stalled"))
        : worst
          ? severityBadge(worst.severity, alertTitle(worst), grave ? "fill" : "")
          : h("span", { class: "badge busy" }, glyph("back"), t("runs.acts"));
  const fired = worst?.firing_step ?? worst?.onset_step,
    first = (incident && firstSign({ alerts: incident.alerts, incident })) ?? worst?.onset_step,
    sign = worst && t(fired === first ? "runs.sign.same" : "runs.sign", { step: fired, first });
  return h(
    "div",
    { class: grave ? "attn" : "attn watch", "data-key": run.run_id },
    badge,
    h(
      "div",
      { class: "what" },
      h("b", {}, run.name),
      " ",
      h("span", { class: "soft" }, run.state === "lost" || shownState(run) === "stalled" ? why(run, new Date()) : sign),
      incident?.acknowledged_by &&
        h("span", { class: "soft" }, " \u00b7 ", t("incident.acknowledged", { who: incident.acknowledged_by })),
      run.countdown && h("p", {}, countdownWords(run.countdown, left(run))),
    ),
    h(
      "span",
      { class: "acts" },
      h("a", { class: grave ? "btn primary" : "btn", href: runPath(run.run_id) }, t("act.open")),
      " ",
      run.countdown &&
        !run.countdown.dry_run &&
        h(
          "button",
          { class: "btn", "data-act": "cancel-countdown", "data-id": run.run_id },
          t(`act.cancel.${run.countdown.kind}`),
        ),
      wantsPerson(incident) &&
        h("button", { class: "btn bare", "data-act": "acknowledge", "data-id": incident.incident_id }, t("act.acknowledge")),
    ),
  );
}

/** @param {any} countdown @param {number} left */
function countdownWords(countdown, left) {
  const [before, after] = t(`runs.countdown.${countdown.kind}${countdown.dry_run ? ".dry" : ""}`, {
    step: countdown.target_step ?? "",
    clock: "{clock}",
  }).split("{clock}");
  return [before, h("b", { class: "nowrap accent" }, digits(left)), after];
}

/** @param {any[]} runs @param {string} filter @param {Node} find */
export function filters(runs, filter, find) {
  return h(
    "div",
    { class: "bar scrollbar-x filters", "data-key": "filters" },
    h(
      "div",
      { class: "seg", role: "group", "aria-label": t("col.state") },
      FILTERS.map((name) =>
        h(
          "button",
          { "data-act": "filter", "data-id": name, "aria-pressed": String(name === filter) },
          t(`filter.${name}`),
          h("span", { class: "quiet" }, filterRuns(runs, name).length),
        ),
      ),
    ),
    h("span", { class: "gap" }),
    find,
  );
}

/** @param {any[]} runs @param {(run: any) => number} left @param {number} all @param {number} at */
export function listing(runs, left, all, at) {
  if (runs.length === 0)
    return h(
      "div",
      { class: "card empty", "data-key": "none" },
      h("h2", {}, t("runs.no_match")),
      h("p", { class: "soft" }, t("runs.no_match.text", { count: all })),
      h("button", { class: "btn", "data-act": "clear" }, t("runs.clear")),
    );
  const live = runs.filter((run) => !ENDED.has(run.state)),
    ended = runs.filter((run) => ENDED.has(run.state));
  const group = (/** @type {string} */ name, /** @type {any[]} */ some) =>
    some.length > 0 && [
      h("tr", { class: "groupline", "data-key": name }, h("td", { colspan: 11 }, `${t(`filter.${name}`)} \u00b7 ${some.length}`)),
      some.map((run) => row(run, left)),
    ];
  const heads = [
    th(t("col.run")),
    th(t("col.state")),
    th(t("col.progress")),
    th(t("col.loss")),
    th(t("col.last_loss"), "num"),
    th(t("col.grad_norm"), "num"),
    th(t("col.alerts")),
    th(t("col.loss_scale"), "num"),
    th(t("col.memory"), "num"),
    th(t("col.host")),
    th(t("col.heard"), "num"),
  ];
  return h(
    "div",
    { class: "card", "data-key": "list", "data-at": at },
    h(
      "div",
      { class: "scroll", role: "region", tabindex: 0, "aria-label": t("nav.runs") },
      h(
        "table",
        { class: "runs" },
        h("thead", {}, h("tr", {}, heads)),
        h("tbody", {}, group("running", live), group("ended", ended)),
      ),
    ),
  );
}

/** @param {any} run @param {(run: any) => number} left */
function row(run, left) {
  const over = ENDED.has(run.state),
    tone = over ? "" : grade(run),
    now = new Date();
  const loss = latest(run, "train/loss"),
    norm = latest(run, "train/grad_norm"),
    scale = latest(run, "amp/loss_scale");
  const odd = (/** @type {number | null} */ v) => (v !== null && !Number.isFinite(v) ? " crit strong" : "");
  const reason = run.countdown
    ? t(`runs.reason.${run.countdown.kind}${run.countdown.dry_run ? ".dry" : ""}`, { clock: digits(left(run)) })
    : why(run, now);
  const tags = [run.project, run.attributes?.precision].filter(Boolean);
  return h(
    "tr",
    {
      class: tone === "crit" ? "trouble" : tone === "warn" ? "watch" : null,
      "data-key": run.run_id,
      "data-act": "row",
      "data-id": run.run_id,
    },
    h(
      "td",
      { class: "c-name" },
      h("a", { class: "name", href: runPath(run.run_id), title: run.name }, run.name),
      h(
        "span",
        { class: "tags" },
        tags.map((tag) => h("span", { class: "tag" }, tag)),
      ),
    ),
    h("td", { class: "c-state" }, runState(shownState(run)), reason && h("span", { class: "reason", title: reason }, reason)),
    h("td", { class: "c-prog" }, progress(run, tone, now)),
    h(
      "td",
      { class: "c-spark" },
      spark(run.sparkline ?? [], { faded: over, share: run.total_steps ? (run.step ?? 0) / run.total_steps : 1 }),
    ),
    h("td", { class: `num c-loss${odd(loss)}`, "data-label": t("label.loss") }, number(loss)),
    h("td", { class: `num c-grad${odd(norm)}`, "data-label": t("label.grad_norm") }, number(norm)),
    h(
      "td",
      { class: "c-alert", title: run.alerts.worst && alertTitle(run.alerts.worst) },
      run.alerts.worst && severityBadge(run.alerts.worst.severity, alertTitle(run.alerts.worst)),
    ),
    h("td", { class: "num c-scale" }, powerOfTwo(scale)),
    memory(run),
    h("td", { class: "c-host quiet" }, run.host),
    h(
      "td",
      { class: "num c-upd quiet" },
      run.heard_at ? shortSpan((now.getTime() - Date.parse(run.heard_at)) / 1000, timeWords()) : "\u2013",
    ),
  );
}

/** Why the run is in its state; a lost one says for how long. @param {any} run @param {Date} now */
const why = (run, now) =>
  (shownState(run) === "stalled"
    ? t("runs.stalled", { span: shortSpan((now.getTime() - Date.parse(run.stalled.since)) / 1000, timeWords()) })
    : "") ||
  (run.command && run.state === "running" ? lowered(t(`doing.command.${run.command.kind}`)) : "") ||
  (phaseNow(run) === "holding" ? t("phase.holding") : "") ||
  say(reasonOf(run)) ||
  (run.hold && !ENDED.has(run.state) ? t("runs.held") : "") ||
  (run.state === "lost" && run.heard_at
    ? t("runs.unheard", { span: shortSpan((now.getTime() - Date.parse(run.heard_at)) / 1000, timeWords()) })
    : "");

/** @param {any} run @param {string} tone @param {Date} now */
function progress(run, tone, now) {
  const share = run.total_steps ? (run.step ?? 0) / run.total_steps : null,
    ends = endsAt(run, now);
  const side = ends
    ? moment(ends, now, { words: timeWords() })
    : ENDED.has(run.state) && run.ended_at
      ? moment(new Date(run.ended_at), now, { words: timeWords() })
      : "";
  const kind = tone || (run.state === "finished" && !run.alerts.worst ? "good" : ""); // finished dead is not good
  return h(
    "div",
    { class: "prog" },
    h(
      "span",
      {},
      h("span", {}, share === null ? t("chart.step", { step: run.step ?? 0 }) : `${Math.floor(share * 100)} %`),
      h("span", { class: "quiet" }, side),
    ),
    share !== null && meter(share, kind), // without a plan there is no share, and an empty bar would say "nothing done"
  );
}

/** GPU memory, or the host's labelled as such: one is never shown as the other. @param {any} run */
function memory(run) {
  const gpu = latest(run, "system/gpu_memory_bytes"),
    host = latest(run, "system/host_memory_bytes");
  if (gpu !== null || host === null) return h("td", { class: "num c-mem" }, gibibytes(gpu));
  return h(
    "td",
    { class: "num c-mem", title: t("chart.host_memory") },
    gibibytes(host),
    " ",
    h("span", { class: "tag" }, t("col.host_short")),
  );
}

export const empty = () =>
  h(
    "div",
    { class: "card empty", "data-key": "empty" },
    h("h2", {}, t("runs.empty")),
    h("p", { class: "soft" }, t("runs.empty.text", { url: location.origin })),
    h("pre", {}, SNIPPET),
    h("div", { class: "bar" }, h("button", { class: "btn", "data-act": "copy" }, icon("copy"), t("act.copy"))),
  );

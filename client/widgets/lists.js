/** Lists on the run page and beyond: checkpoints with a verdict and its reason, alerts, commands with their history. */
import { number, size, toNumber, valueFormat } from "../format.js";
import { ENDED, commandSteps } from "../reducers.js";
import { runPath } from "../router.js";
import { alertTitle, t } from "../i18n/index.js";
import { by } from "./band.js";
import { h } from "./dom.js";
import { alertState, severityBadge, table, th, verdict, when } from "./parts.js";

/** @param {any} run RunDetail */
export function checkpointTable(run) {
  if (run.checkpoints.length === 0) return h("div", { class: "card pad quiet" }, t("checkpoints.none"));
  const target = ENDED.has(run.state) ? null : run.proposal?.target; // nothing goes back in a run that is over
  const rows = [...run.checkpoints]
    .sort((a, b) => b.step - a.step || b.segment - a.segment)
    .map((c) =>
      h(
        "tr",
        { "data-key": c.checkpoint_id, class: c.superseded ? "quiet" : null },
        h("td", { class: "num strong" }, c.step),
        h("td", {}, verdict(c.state)),
        h(
          "td",
          { class: "wrap" },
          c.reason,
          c.superseded && h("span", { class: "quiet" }, ` \u00b7 ${t("checkpoints.superseded")}`),
        ),
        h("td", {}, c.checkpoint_id === target && h("span", { class: "badge busy" }, t("rollback.proposed"))),
        h("td", { class: "num" }, c.segment),
        h("td", { class: "num" }, size(c.size_bytes)),
        h("td", { class: "quiet nowrap" }, when(c.saved_at, { seconds: true })),
        h("td", { class: "quiet mono path", title: c.directory }, c.directory),
      ),
    );
  return table(
    t("checkpoints"),
    [
      th(t("col.step"), "num"),
      th(t("col.verdict")),
      th(t("col.reason")),
      th(""),
      th(t("col.segment"), "num"),
      th(t("col.size"), "num"),
      th(t("col.saved")),
      th(t("col.directory")),
    ],
    rows,
    "wide",
  );
}

/** @param {any[]} alerts @param {{ runs?: boolean }} [options] `runs`: name the run of each */
export function alertTable(alerts, { runs = false } = {}) {
  if (alerts.length === 0) return h("div", { class: "card pad quiet" }, t("alerts.none"));
  const rows = alerts.map((a) => {
    const format = valueFormat(a.series),
      value = toNumber(a.value),
      limit = toNumber(a.limit);
    return h(
      "tr",
      { "data-key": a.alert_id, class: a.state === "resolved" ? "past" : null },
      h("td", {}, severityBadge(a.severity, alertTitle(a))),
      h("td", {}, alertState(a)),
      runs && h("td", {}, h("a", { class: "name", href: runPath(a.run_id) }, a.run_name)),
      h("td", {}, a.series),
      h("td", { class: value !== null && !Number.isFinite(value) ? "num crit strong" : "num" }, format(value)),
      h("td", { class: "num quiet" }, limit === null ? "\u2013" : number(limit)),
      h("td", { class: "num" }, steps(a)),
      h("td", { class: "quiet nowrap" }, when(a.firing_at ?? a.onset_at, { seconds: true })),
      h("td", { class: "text" }, a.text),
    );
  });
  return table(
    t("alerts"),
    [
      th(t("col.alert")),
      th(t("col.state")),
      runs && th(t("col.run")),
      th(t("col.series")),
      th(t("col.value"), "num"),
      th(t("col.limit"), "num"),
      th(t("col.steps"), "num"),
      th(t("col.since")),
      th(t("col.text")),
    ],
    rows,
    "wide prose",
  );
}

/** From the first sign to where it ended. @param {any} alert */
const steps = (alert) =>
  alert.resolved_step === null || alert.resolved_step === undefined
    ? `${alert.onset_step}${alert.state === "resolved" ? "" : " \u2013"}`
    : `${alert.onset_step} \u2013 ${alert.resolved_step}`;

/** @param {any} run RunDetail */
export function commandList(run) {
  /** @type {any[]} */ const commands = run.commands;
  if (commands.length === 0) return h("div", { class: "card pad quiet" }, t("commands.none"));
  return h(
    "div",
    { class: "card" },
    commands.map((c) =>
      h(
        "div",
        { class: "command", "data-key": c.command_id },
        h(
          "div",
          {},
          h("b", { class: "strong" }, commandName(c)),
          h("p", { class: ["failed", "rejected"].includes(c.state) ? "crit" : "soft" }, about(c, run)),
        ),
        h(
          "ol",
          { class: "steps", "aria-label": t("commands.progress") },
          commandSteps(c).map((s) =>
            h(
              "li",
              { class: s.mark || null, "data-state": s.state, "aria-current": s.mark === "now" ? "step" : null },
              t(`command.state.${s.state}`),
              h("small", {}, s.at ? when(s.at, { seconds: true }) : ""),
            ),
          ),
        ),
      ),
    ),
  );
}

/** @param {any} c */
export const commandName = (c) =>
  c.kind === "rollback" && c.rollback ? t("command.rollback_to", { step: c.rollback.target_step }) : t(`command.${c.kind}`);

/** Who, why, how, and how it ended. @param {any} c @param {any} run RunDetail */
function about(c, run) {
  const how = c.rollback
    ? [
        t(`order.data.${c.rollback.data}`),
        c.rollback.max_grad_norm === null || c.rollback.max_grad_norm === undefined
          ? ""
          : t("order.clip", { clip: number(c.rollback.max_grad_norm) }),
      ]
        .filter(Boolean)
        .join(", ")
    : "";
  return [
    by(c, run),
    " ",
    when(c.issued_at, { seconds: true }),
    c.reason && `, \u201c${c.reason}\u201d`,
    how && `. ${how}`,
    c.outcome && `. ${c.outcome}`,
  ];
}

/** An incident as Markdown, to paste into a chat or a report: the same words as the page, in its language. */
import { alertsOf, checkpointsAround } from "../incidents.js";
import { entries } from "../history.js";
import { incidentPath } from "../router.js";
import { alertTitle, clause, inLanguage, sentence, t } from "../i18n/index.js";
import { alertSteps, figures } from "./alertlist.js";
import { openDialog } from "./dialog.js";
import { delegate, h } from "./dom.js";
import { icon } from "./icons.js";
import { entryWords, knownAlerts } from "./incidentparts.js";
import { copy, incidentStanding } from "./parts.js";

/** @param {any} incident @param {any | null} run @param {Date} now */
export function markdown(incident, run, now) {
  const state = incident.state === "resolved" ? t("closed.recovered") : t(`incident.state.${incident.state}`);
  const facts = [
    state,
    `${t("col.run")} ${plain(incident.run_name)}`,
    clock(incident.opened_at),
    incident.resolved_at && clock(incident.resolved_at),
    incidentStanding(incident, now),
  ];
  return [
    `# ${t("incident.title", { number: incident.number, title: plain(alertTitle(incident)) })}`,
    facts.filter(Boolean).join(" \u00b7 "),
    location.origin + incidentPath(incident.run_id, incident.incident_id),
    `## ${t("alerts")}`,
    ...alertsOf(incident).map(alert),
    ...(run ? checkpoints(incident, run) : []),
    `## ${t("incident.timeline")}`,
    entries(incident.timeline ?? [], knownAlerts(incident, run))
      .map((e) => {
        const told = entryWords(e, run);
        return `- ${clock(e.at)} ${e.step === null ? "" : `${t("chart.step", { step: e.step })} `}**${plain(told.title)}**${told.text ? ` ${plain(told.text)}` : ""}`;
      })
      .join("\n"),
  ]
    .join("\n\n")
    .concat("\n");
}

/** @param {any} a */
function alert(a) {
  const { value, limit } = figures(a),
    held = a.limit === null ? "" : `, ${t("chart.limit")} ${limit}`,
    more = [
      ["alert.done", inLanguage(a.done)],
      ["alert.next", inLanguage(a.next)],
    ].filter(([, text]) => text);
  return [
    `- **${plain(alertTitle(a))}** (${t(`severity.${a.severity}`)}): ${plain(sentence(a))}`,
    `  ${a.series} ${value}${held}, ${t("col.steps")} ${alertSteps(a)}`,
    ...more.map(([key, text]) => `  ${t(key)} ${plain(text)}`),
  ].join("\n");
}

/** @param {any} incident @param {any} run */
function checkpoints(incident, run) {
  const around = checkpointsAround(incident, run);
  if (around.length === 0) return [];
  const rows = around.map((c) => `| ${c.step} | ${t(`verdict.${c.state}`)} | ${plain(clause(c.reason)).replaceAll("|", "\\|")} |`);
  return [
    `## ${t("checkpoints")}`,
    [`| ${t("col.step")} | ${t("col.verdict")} | ${t("col.reason")} |`, "|---|---|---|", ...rows].join("\n"),
  ];
}

/** A moment that means the same everywhere. @param {string} at */
const clock = (at) => `${new Date(at).toISOString().slice(0, 19).replace("T", " ")} UTC`;

/** What others have named, so that it stays text where the Markdown is read. @param {string} text */
const plain = (text) => text.replace(/[\\`*_<>[\]]/g, "\\$&").replace(/\s+/g, " ");

/** Shows it, to be copied. @param {string} text */
export function showMarkdown(text) {
  const dialog = openDialog({ label: "Markdown" });
  let done = "";
  const draw = () =>
    dialog.draw([
      h("div", { class: "top" }, h("div", {}, h("h2", {}, "Markdown"), h("p", {}, t("incident.markdown")))),
      h("div", { class: "body" }, h("pre", { class: "markdown", tabindex: 0 }, text)),
      h(
        "footer",
        {},
        h("span", { class: "sum", role: "status" }, done),
        h(
          "div",
          { class: "acts" },
          h("button", { class: "btn big", "data-act": "close" }, t("act.close")),
          h("button", { class: "btn big primary", "data-act": "copy" }, icon("copy"), t("act.copy")),
        ),
      ),
    ]);
  delegate(dialog.body, {
    close: dialog.close,
    copy: async () => {
      done = await copy(text, /** @type {HTMLElement} */ (dialog.body.querySelector("pre")));
      draw();
    },
  });
  draw();
}

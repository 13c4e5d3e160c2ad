/** The incidents of all runs: the open ones first, each leading to its page. */
import { firstOf, isOpen, sorted } from "../incidents.js";
import { incidentPath, runPath } from "../router.js";
import { alertTitle, t } from "../i18n/index.js";
import { h } from "./dom.js";
import { incidentState, silenced, table, th, when } from "./parts.js";

/** @param {any[]} incidents @param {Date} now */
export function incidentList(incidents, now) {
  const { open, resolved } = sorted(incidents);
  return [
    h(
      "section",
      { class: "section first", "data-key": "open" },
      h("header", {}, h("h2", {}, t("incidents.open")), h("span", { class: "quiet" }, t("incidents.about"))),
      open.length === 0 ? h("div", { class: "card pad quiet" }, t("incidents.none")) : listing(open, t("incidents.open"), now),
    ),
    resolved.length > 0 &&
      h(
        "section",
        { class: "section", "data-key": "resolved" },
        h("header", {}, h("h2", {}, t("incidents.resolved"))),
        listing(resolved, t("incidents.resolved"), now),
      ),
  ];
}

/** @param {any[]} incidents @param {string} label @param {Date} now */
const listing = (incidents, label, now) =>
  table(
    label,
    [
      th(t("col.state")),
      th(t("col.incident")),
      th(t("col.run")),
      th(t("col.step"), "num"),
      th(t("col.since")),
      th(t("col.alerts"), "num"),
      th(t("col.taken")),
      th(""),
    ],
    incidents.map((i) => row(i, now)),
    "wide incidents",
  );

/** @param {any} i @param {Date} now */
const row = (i, now) =>
  h(
    "tr",
    { "data-key": i.incident_id, "data-act": "row", "data-href": incidentPath(i.run_id, i.incident_id), class: tone(i) },
    h("td", { class: "c-state" }, incidentState(i)),
    h(
      "td",
      { class: "c-title" },
      h("a", { class: "name", href: incidentPath(i.run_id, i.incident_id) }, alertTitle(i)),
      h("span", { class: "quiet" }, t("incident.number", { number: i.number }), " \u00b7 ", t(`severity.${i.severity}`)),
    ),
    h("td", { class: "c-run" }, h("a", { href: runPath(i.run_id) }, i.run_name)),
    h("td", { class: "num c-step" }, h("span", { class: "on-phone quiet" }, t("label.step"), " "), firstOf(i).step),
    h(
      "td",
      { class: "quiet nowrap c-since" },
      when(firstOf(i).at, { seconds: true }),
      i.resolved_at && [" \u2013 ", when(i.resolved_at, { seconds: true })],
    ),
    h(
      "td",
      { class: "num c-count" },
      i.alerts.length,
      h("span", { class: "on-phone quiet" }, " ", t(i.alerts.length === 1 ? "label.alert" : "label.alerts")),
    ),
    h(
      "td",
      { class: "soft c-taken" },
      i.acknowledged_by || h("span", { class: "quiet hide-phone" }, "\u2013"),
      i.silenced_until && h("span", { class: "reason" }, silenced(i, now)),
      i.note && h("span", { class: "reason" }, `\u201c${i.note}\u201d`),
    ),
    h(
      "td",
      { class: "num row-acts c-acts" },
      i.state === "triggered" &&
        h(
          "button",
          {
            class: "btn small",
            "data-act": "acknowledge",
            "data-id": i.incident_id,
            "aria-label": t("act.acknowledge.one", { number: i.number }),
          },
          t("act.acknowledge"),
        ),
    ),
  );

/** @param {any} incident */
const tone = (incident) => (!isOpen(incident) ? "past" : incident.severity === "critical" ? "trouble" : "watch");

/** The silences: what each covers, by whom, why and until when; those that hold can be ended. */
import { covers, sorted } from "../silences.js";
import { say, t } from "../i18n/index.js";
import { h } from "./dom.js";
import { glyph } from "./icons.js";
import { table, th, when } from "./parts.js";

/** @param {any[]} silences @param {Date} now */
export function silenceList(silences, now) {
  const { active, past } = sorted(silences, now);
  return h(
    "section",
    { class: "section first", "data-key": "silences" },
    h(
      "header",
      {},
      h("h2", {}, t("silences")),
      h("span", { class: "quiet" }, t("silences.about")),
      h("span", { class: "end" }, h("button", { class: "btn small", "data-act": "silence" }, glyph("silent"), t("act.silence"))),
    ),
    active.length === 0 ? h("div", { class: "card pad quiet" }, t("silences.none")) : listing(active, t("silences"), true),
    past.length > 0 &&
      h(
        "details",
        { class: "folded", "data-key": "past" },
        h("summary", {}, t("silences.past", { count: past.length })),
        listing(past, t("silences.past", { count: past.length }), false),
      ),
  );
}

/** @param {any[]} silences @param {string} label @param {boolean} active */
const listing = (silences, label, active) =>
  table(
    label,
    [
      th(t("col.silenced")),
      th(t("col.reason")),
      th(t("col.by")),
      th(t("col.from")),
      th(t(active ? "col.until" : "col.ended")),
      th(""),
    ],
    silences.map((s) => row(s, active)),
    "wide prose silences",
  );

/** @param {any} s @param {boolean} active */
const row = (s, active) =>
  h(
    "tr",
    { "data-key": s.silence_id, "data-silence": s.silence_id, class: active ? null : "past" },
    h("td", { class: "wrap strong" }, say(covers(s))),
    h("td", { class: "text" }, s.reason),
    h("td", { "data-label": t("col.by") }, s.author),
    h("td", { class: "quiet nowrap hide-phone" }, when(s.starts_at)),
    h(
      "td",
      { class: "nowrap", "data-label": t(active ? "col.until" : "col.ended") },
      when(s.ended_at ?? s.ends_at),
      s.ended_at && s.ended_by && h("span", { class: "quiet" }, ` ${t("by", { who: s.ended_by })}`),
    ),
    h(
      "td",
      { class: "num row-acts" },
      active &&
        h(
          "button",
          {
            class: "btn small",
            "data-act": "end-silence",
            "data-id": s.silence_id,
            "aria-label": `${t("silence.end")}: ${say(covers(s))}`,
          },
          t("silence.end"),
        ),
    ),
  );

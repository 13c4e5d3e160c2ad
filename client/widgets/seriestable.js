/** A series as a table: what the chart shows, for who cannot see it or wants a number to copy. */
import { number, valueFormat } from "../format.js";
import { t } from "../i18n/index.js";
import { openDialog } from "./dialog.js";
import { delegate, h } from "./dom.js";
import { icon } from "./icons.js";

const ROWS = 300;

/** @param {string} name @param {import("../series.js").Decoded} data */
export function seriesTable(name, data) {
  const odd = new Map(data.nonfinite.map((m) => [`${m.segment}/${m.rank}/${m.step}`, m.value]));
  const rows = data.traces
    .flatMap((trace) =>
      Array.from(trace.steps, (step, i) => ({
        step,
        segment: trace.segment,
        rank: trace.rank,
        superseded: trace.superseded,
        value: odd.get(`${trace.segment}/${trace.rank}/${step}`) ?? valueFormat(name)(trace.values[i]),
      })),
    )
    .sort((a, b) => b.step - a.step || b.segment - a.segment);
  const dialog = openDialog({ label: `${t("chart.table")} ${name}` });
  dialog.draw([
    h(
      "div",
      { class: "top" },
      h("div", {}, h("h2", {}, name), h("p", {}, t("table.about", { shown: Math.min(ROWS, rows.length), all: rows.length }))),
      h("button", { class: "btn bare icon", "data-act": "close", "aria-label": t("act.close") }, icon("close")),
    ),
    h(
      "div",
      { class: "body", tabindex: 0, role: "region", "aria-label": name },
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["step", "value", "segment", "rank"].map((c) => h("th", { class: "num", scope: "col" }, t(`col.${c}`))),
            h("th", {}),
          ),
        ),
        h(
          "tbody",
          {},
          rows
            .slice(0, ROWS)
            .map((r) =>
              h(
                "tr",
                {},
                h("td", { class: "num" }, r.step),
                h("td", { class: /NaN|Inf/.test(r.value) ? "num crit strong" : "num" }, r.value),
                h("td", { class: "num" }, r.segment),
                h("td", { class: "num" }, number(r.rank)),
                h("td", { class: "quiet" }, r.superseded ? t("chart.superseded") : ""),
              ),
            ),
        ),
      ),
    ),
  ]);
  delegate(dialog.body, { close: dialog.close });
}

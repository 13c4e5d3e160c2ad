/** Holding automatic actions: the dialog, and the line that every viewer sees while it lasts. */
import { api } from "../api.js";
import { lackingTerm, proposedTerm, termBody } from "../terms.js";
import { moment } from "../format.js";
import { t, timeWords } from "../i18n/index.js";
import { h } from "./dom.js";
import { openForm } from "./form.js";
import { glyph } from "./icons.js";
import { endsAtText, takeTerm, termFields } from "./termfields.js";

/**
 * @param {any} run RunDetail
 * @param {() => void} done called after the server has taken it
 */
export function openHold(run, done) {
  const term = proposedTerm();
  return openForm({
    title: t("hold.title", { name: run.name }),
    intro: t(run.countdown && !run.countdown.dry_run ? "hold.intro.countdown" : "hold.intro"),
    content: () => termFields(term, t("hold.reason.hint")),
    sum: () => endsAtText(term, "hold.until"),
    send: t("hold.send"),
    lacking: () => lackingTerm(term),
    submit: async () => {
      await api.hold(run.run_id, termBody(term));
      done();
    },
    input: (field) => takeTerm(term, field),
  });
}

/** Who holds, until when and why. @param {any} run RunDetail @param {Date} now */
export const holdLine = (run, now) =>
  run.hold &&
  h(
    "div",
    { class: "notice held", "data-key": "hold" },
    glyph("paused"),
    h(
      "span",
      {},
      h("b", { class: "strong" }, t("hold.line", { time: moment(new Date(run.hold.until), now, { words: timeWords() }) })),
      t("order.and"),
      t("by", { who: run.hold.by }),
      run.hold.reason && [t("order.colon"), `\u201c${run.hold.reason}\u201d`],
    ),
    h("span", { class: "gap" }),
    h("button", { class: "btn small", "data-act": "lift" }, t("hold.lift")),
  );

/** @param {boolean} phone whether it stands in the menu of a phone */
export const holdButton = (phone) =>
  h("button", { class: phone ? "btn" : "btn hide-phone", "data-act": "hold", "data-key": "hold" }, t("act.hold"));

/** The dialog of a new silence: of what, for how long, why. */
import { api } from "../api.js";
import { covers, lacking, proposed, silenceBody } from "../silences.js";
import { alertTitle, say, t } from "../i18n/index.js";
import { h } from "./dom.js";
import { openForm } from "./form.js";
import { endsAtText, takeTerm, termFields } from "./termfields.js";

/** @typedef {{ runs: any[], rules: any[] }} Named what there is to choose from */

/**
 * @param {Named} known
 * @param {{ run?: string, project?: string, rule?: string }} about what it was opened for
 * @param {() => void} done called after the server has taken it
 */
export function openSilence(known, about, done) {
  const chosen = proposed(about),
    projects = [...new Set(known.runs.map((run) => run.project).filter(Boolean))].sort();
  return openForm({
    title: t("silence.title"),
    intro: t("silence.intro"),
    content: () => [
      h(
        "div",
        { class: "silence-of", "data-key": "of" },
        choice(
          "run",
          chosen.run,
          known.runs.map((run) => ({ id: run.run_id, name: run.name })),
        ),
        choice(
          "project",
          chosen.project,
          projects.map((name) => ({ id: name, name })),
        ),
        choice(
          "rule",
          chosen.rule,
          known.rules.map((rule) => ({ id: rule.rule_id, name: alertTitle({ title: rule.title }) })),
        ),
      ),
      termFields(chosen, t("silence.reason.hint")),
    ],
    sum: () => [said(chosen, known), t("order.stop"), endsAtText(chosen, "silence.until")],
    send: t("silence.send"),
    lacking: () => lacking(chosen),
    submit: async () => {
      await api.silence(silenceBody(chosen));
      done();
    },
    input: (field) => {
      if (field.name === "run" || field.name === "project" || field.name === "rule") chosen[field.name] = field.value;
      else takeTerm(chosen, field);
    },
  });
}

/** What it would cover, in the words of the list. @param {import("../silences.js").Chosen} chosen @param {Named} known */
function said(chosen, { runs, rules }) {
  const rule = rules.find((r) => r.rule_id === chosen.rule);
  return say(
    covers({
      run_id: chosen.run || null,
      run_name: runs.find((r) => r.run_id === chosen.run)?.name,
      project: chosen.project || null,
      rule_id: chosen.rule || null,
      rule_name: rule ? alertTitle({ title: rule.title }) : chosen.rule,
    }),
  );
}

/** @param {string} name @param {string} value @param {{ id: string, name: string }[]} offered */
const choice = (name, value, offered) =>
  h(
    "div",
    { class: "field", "data-key": name },
    h("label", { for: `silence-${name}` }, t(`silence.${name}`)),
    h(
      "select",
      { class: "input", id: `silence-${name}`, name },
      h("option", { value: "", selected: value === "" }, t(`silence.any.${name}`)),
      // One that is over or deleted is still what the dialog was opened for.
      (value && !offered.some((o) => o.id === value) ? [{ id: value, name: value }, ...offered] : offered).map((o) =>
        h("option", { value: o.id, selected: o.id === value }, o.name),
      ),
    ),
  );

/** Taking an incident on: asked once, with a note if there is something to say. */
import { api } from "../api.js";
import { alertTitle, t } from "../i18n/index.js";
import { h } from "./dom.js";
import { openForm } from "./form.js";

/**
 * @param {any} incident
 * @param {() => void} done called after the server has taken it
 */
export function openAcknowledge(incident, done) {
  let note = "";
  return openForm({
    title: t("acknowledge.title", { number: incident.number, title: alertTitle(incident) }),
    intro: t("acknowledge.intro"),
    content: () => [
      h(
        "div",
        { class: "field", "data-key": "note" },
        h("label", { for: "note" }, t("acknowledge.note"), t("order.gap"), h("span", { class: "quiet" }, t("optional"))),
        h("input", { class: "input", id: "note", name: "note", maxlength: 300, value: note, placeholder: t("acknowledge.hint") }),
      ),
    ],
    send: t("act.acknowledge.do"),
    submit: async () => {
      await api.acknowledge(incident.run_id, incident.incident_id, note.trim());
      done();
    },
    input: (field) => {
      if (field.name === "note") note = field.value;
    },
  });
}

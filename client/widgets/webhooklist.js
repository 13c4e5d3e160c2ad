/** Parts of the webhooks page: the form, the endpoints, what was sent to one, its secret and its end. */
import { duration } from "../format.js";
import { LANGUAGES, alertTitle, clause, language, t, timeWords } from "../i18n/index.js";
import { runPath } from "../router.js";
import { openDialog } from "./dialog.js";
import { delegate, h } from "./dom.js";
import { glyph, icon } from "./icons.js";
import { between, copy, table, th, when } from "./parts.js";

const SEVERITIES = ["info", "warning", "critical"];

/** In which language the messages are. @param {string} chosen @param {Record<string, string>} props */
const languages = (chosen, props) =>
  h(
    "select",
    { class: "input", name: "language", ...props },
    Object.entries(LANGUAGES).map(([id, { name, tag }]) => h("option", { value: id, selected: id === chosen, lang: tag }, name)),
  );

/** @param {any} bad */
export function addForm(bad) {
  const severity = h(
    "select",
    { class: "input", id: "hook-severity", name: "minimum_severity" },
    SEVERITIES.map((s) => h("option", { value: s, selected: s === "warning" }, t(`severity.${s}`))),
  );
  return h(
    "form",
    { class: "card pad form", "data-key": "add", "aria-label": t("webhooks.add") },
    h(
      "div",
      { class: "field c1 wide" },
      h("label", { for: "hook-name" }, t("col.name")),
      h("input", {
        class: "input",
        id: "hook-name",
        name: "name",
        required: true,
        maxlength: 100,
        placeholder: t("webhooks.name.hint"),
      }),
    ),
    h(
      "div",
      { class: "field c2 wide" },
      h("label", { for: "hook-url" }, t("webhooks.url")),
      h("input", {
        class: bad ? "input mono bad" : "input mono",
        id: "hook-url",
        name: "url",
        type: "url",
        required: true,
        placeholder: "https://",
        "aria-describedby": bad ? "hook-bad" : null,
        "aria-invalid": bad ? "true" : null,
      }),
      bad && h("span", { class: "hint bad", id: "hook-bad", role: "alert" }, bad.detail, bad.fix && between(bad.detail), bad.fix),
    ),
    h("div", { class: "field c1" }, h("label", { for: "hook-severity" }, t("webhooks.from")), severity),
    h(
      "div",
      { class: "field c1" },
      h("label", { for: "hook-language" }, t("webhooks.language")),
      languages(language(), { id: "hook-language" }),
    ),
    h(
      "div",
      { class: "field c1" },
      h("span", { class: "lbl" }, "\u00a0"),
      h("button", { class: "btn primary", type: "submit" }, t("webhooks.add")),
    ),
  );
}

/** @param {any[]} hooks @param {string} shown */
export function listing(hooks, shown) {
  if (hooks.length === 0) return h("div", { class: "card pad quiet section", "data-key": "list" }, t("webhooks.none"));
  const rows = hooks.map((hook) =>
    h(
      "tr",
      { "data-key": hook.webhook_id, class: hook.webhook_id === shown ? "picked" : null },
      h("td", { class: "strong wrap c-name" }, hook.name),
      h("td", { class: "mono wrap c-url" }, hook.url),
      h(
        "td",
        { class: "c-from", "data-label": t("webhooks.from") },
        h(
          "select",
          {
            class: "input",
            name: "minimum_severity",
            "data-hook": hook.webhook_id,
            "aria-label": `${t("webhooks.from")} ${hook.name}`,
          },
          SEVERITIES.map((s) => h("option", { value: s, selected: s === hook.minimum_severity }, t(`severity.${s}`))),
        ),
      ),
      h(
        "td",
        { class: "c-language", "data-label": t("webhooks.language") },
        languages(hook.language ?? "en", {
          "data-hook": hook.webhook_id,
          "aria-label": `${t("webhooks.language")} ${hook.name}`,
        }),
      ),
      h(
        "td",
        { class: "c-on" },
        h(
          "label",
          { class: "switch" },
          h("input", {
            type: "checkbox",
            "data-hook": hook.webhook_id,
            checked: hook.enabled,
            "aria-label": `${t("webhooks.enabled")} ${hook.name}`,
          }),
          " ",
          hook.enabled ? t("on") : t("off"),
        ),
        hook.disabled_because && h("span", { class: "reason crit" }, clause(hook.disabled_because)),
      ),
      h("td", { class: "c-last", "data-label": t("webhooks.last") }, outcome(hook.last_delivery)),
      h("td", { class: "quiet mono c-secret", "data-label": t("webhooks.secret") }, `\u2026${hook.secret_hint}`),
      h(
        "td",
        { class: "row-acts" },
        h("button", { class: "btn small", "data-act": "test", "data-id": hook.webhook_id }, t("webhooks.test")),
        " ",
        h(
          "button",
          {
            class: "btn bare small",
            "data-act": "show",
            "data-id": hook.webhook_id,
            "aria-pressed": String(hook.webhook_id === shown),
          },
          t("webhooks.log"),
        ),
        " ",
        h("button", { class: "btn bare small", "data-act": "delete", "data-id": hook.webhook_id }, t("act.delete")),
      ),
    ),
  );
  return h(
    "div",
    { class: "section", "data-key": "list" },
    table(
      t("nav.webhooks"),
      [
        th(t("col.name")),
        th(t("webhooks.url")),
        th(t("webhooks.from")),
        th(t("webhooks.language")),
        th(t("webhooks.enabled")),
        th(t("webhooks.last")),
        th(t("webhooks.secret")),
        th(""),
      ],
      rows,
      "wide hooks",
    ),
  );
}

/** What came back of an attempt, or why nothing did. @param {any} attempt */
const answer = (attempt) => String(attempt.status ?? clause(attempt.error ?? ""));

/** How a delivery stands: its status, or when it is tried again. @param {any} delivery */
function outcome(delivery) {
  if (!delivery) return h("span", { class: "quiet" }, "\u2013");
  const last = delivery.attempts.at(-1),
    text = last ? answer(last) : t("delivery.waiting");
  if (delivery.state === "succeeded") return h("span", { class: "badge good" }, glyph("finished"), text);
  if (delivery.state === "failed") return h("span", { class: "badge crit long" }, glyph("failed"), text);
  const seconds = delivery.next_attempt_at ? (Date.parse(delivery.next_attempt_at) - Date.now()) / 1000 : 0;
  return h(
    "span",
    { class: "badge warn long" },
    glyph("pending"),
    last && seconds > 0 ? t("delivery.again", { status: text, span: duration(seconds, timeWords()) }) : text,
  );
}

/** @param {any} hook @param {any[]} deliveries @param {Map<string, string>} names of the runs, by id */
export function log(hook, deliveries, names) {
  const rows = deliveries.map((d) =>
    h(
      "tr",
      { "data-key": d.delivery_id },
      h("td", { class: "c-event" }, d.title && h("b", { class: "strong" }, alertTitle(d)), h("span", { class: "quiet ids" }, d.event_type)),
      h("td", { class: "c-run" }, d.run_id === null ? "\u2013" : h("a", { href: runPath(d.run_id) }, names.get(d.run_id) ?? d.run_id)),
      h("td", { class: "c-result" }, outcome(d)),
      h("td", { class: "num c-tries", "data-label": t("delivery.tries") }, d.attempts.length),
      h("td", { class: "num c-took", "data-label": t("delivery.took") }, duration(d.attempts.at(-1)?.seconds, timeWords())),
      h("td", { class: "quiet nowrap c-when" }, when(d.created_at, { seconds: true })),
      h("td", { class: "c-attempts" }, tries(d.attempts)),
      h("td", { class: "mono quiet id" }, d.delivery_id),
    ),
  );
  return h(
    "section",
    { class: "section", "data-key": "log" },
    h("header", {}, h("h2", {}, t("webhooks.deliveries")), h("span", { class: "quiet" }, hook.name)),
    rows.length === 0
      ? h("div", { class: "card pad quiet" }, t("webhooks.no_deliveries"))
      : table(
          t("webhooks.deliveries"),
          [
            th(t("delivery.event")),
            th(t("col.run")),
            th(t("delivery.result")),
            th(t("delivery.tries"), "num"),
            th(t("delivery.took"), "num"),
            th(t("delivery.when")),
            th(t("delivery.attempts")),
            th("webhook-id"),
          ],
          rows,
          "wide prose deliveries",
        ),
  );
}

/** The last attempt; those before it fold away, for they mostly say the same. @param {any[]} attempts */
function tries(attempts) {
  const line = (/** @type {any} */ a) =>
    h("span", { class: "try" }, `${a.number}. `, when(a.at, { seconds: true }), ` ${answer(a)}`);
  const [last, ...before] = [...attempts].reverse();
  return [
    last && line(last),
    before.length > 0 &&
      h(
        "details",
        { class: "holds", "data-key": "before" },
        h("summary", {}, t("delivery.before", { count: before.length })),
        before.map(line),
      ),
  ];
}

/** The one moment a secret is seen. @param {any} hook */
export function showSecret(hook) {
  const dialog = openDialog({ narrow: true, label: t("secret.title") });
  let done = "";
  const draw = () =>
    dialog.draw([
      h("div", { class: "top" }, h("div", {}, h("h2", {}, t("secret.title")), h("p", {}, t("secret.text")))),
      h("div", { class: "body" }, h("pre", { class: "secret" }, hook.secret)),
      h(
        "footer",
        {},
        h("span", { class: "sum", role: "status" }, done),
        h(
          "div",
          { class: "acts" },
          h("button", { class: "btn big", "data-act": "copy" }, icon("copy"), t("act.copy")),
          h("button", { class: "btn big primary", "data-act": "close" }, t("act.done")),
        ),
      ),
    ]);
  delegate(dialog.body, {
    close: dialog.close,
    copy: async () => {
      done = await copy(hook.secret, /** @type {HTMLElement} */ (dialog.body.querySelector("pre")));
      draw();
    },
  });
  draw();
}

/** @param {any} hook @param {() => void} yes */
export function askDelete(hook, yes) {
  if (!hook) return;
  const dialog = openDialog({ narrow: true, label: t("webhooks.delete.title", { name: hook.name }) });
  dialog.draw([
    h(
      "div",
      { class: "top" },
      h("div", {}, h("h2", {}, t("webhooks.delete.title", { name: hook.name })), h("p", {}, t("webhooks.delete.text"))),
    ),
    h(
      "footer",
      {},
      h("span", { class: "sum" }),
      h(
        "div",
        { class: "acts" },
        h("button", { class: "btn big", "data-act": "close" }, t("act.close")),
        h("button", { class: "btn big stop primary", "data-act": "yes" }, t("act.delete")),
      ),
    ),
  ]);
  delegate(dialog.body, {
    close: dialog.close,
    yes: () => {
      dialog.close();
      yes();
    },
  });
}

/** Webhook endpoints: add one (its secret is shown once), test it, switch it, delete it, and see what was sent. */
import { api } from "../api.js";
import { createLoader, problemOf } from "../loader.js";
import { t } from "../i18n/index.js";
import { state } from "../store.js";
import { focusPage } from "../widgets/dialog.js";
import { delegate, h, patch } from "../widgets/dom.js";
import { glyph } from "../widgets/icons.js";
import { problemLine } from "../widgets/parts.js";
import { addForm, askDelete, listing, log, showSecret } from "../widgets/webhooklist.js";

/** What was sent to an endpoint that was deleted after the list was read; the list is read again at once. @param {any} error @returns {any[]} */
function noneOfGone(error) {
  if (error.status !== 404) throw error;
  return [];
}

/**
 * @param {HTMLElement} host
 * @param {import("../router.js").Shell} shell
 * @returns {import("../router.js").View}
 */
export function webhooksView(host, shell) {
  /** @type {any[] | null} */ let hooks = null;
  /** @type {any[]} */ let deliveries = [];
  /** @type {Map<string, string>} */ let names = new Map();
  /** @type {any} */ let problem = null;
  /** @type {any} */ let badForm = null;
  let shown = "";
  const draw = () => {
    const chosen = (hooks ?? []).find((hook) => hook.webhook_id === shown);
    patch(host, [
      h("div", { class: "crumbs" }, h("h1", {}, t("nav.webhooks"))),
      problemLine(problem),
      state.me &&
        !state.me.public_url &&
        h("div", { class: "notice", "data-key": "public" }, glyph("warning"), h("span", {}, t("webhooks.no_public_url"))),
      hooks !== null && addForm(badForm),
      hooks !== null && listing(hooks, shown),
      chosen && log(chosen, deliveries, names),
    ]);
    shell.title(t("nav.webhooks"), 0, false);
  };
  const loader = createLoader(
    async () => {
      hooks = await api.webhooks();
      if (!(hooks ?? []).some((hook) => hook.webhook_id === shown)) shown = hooks?.[0]?.webhook_id ?? "";
      deliveries = shown ? await api.deliveries(shown).catch(noneOfGone) : [];
      if (deliveries.some((each) => each.run_id !== null && !names.has(each.run_id)))
        names = new Map((await api.runs()).map((/** @type {any} */ run) => [run.run_id, run.name]));
    },
    (wrong) => {
      problem = wrong;
      draw();
    },
  );
  const id = (/** @type {HTMLElement} */ target) => target.dataset.id ?? "";
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.target),
      fields = new FormData(form);
    try {
      const made = await api.addWebhook({
        name: fields.get("name"),
        url: fields.get("url"),
        minimum_severity: fields.get("minimum_severity"),
        language: fields.get("language"),
      });
      badForm = null;
      shown = made.webhook_id;
      form.reset();
      showSecret(made);
    } catch (error) {
      badForm = problemOf(error);
    }
    await loader.load();
  };
  const change = (/** @type {Event} */ event) => {
    const field = /** @type {HTMLInputElement} */ (event.target),
      hook = field.dataset.hook;
    if (!hook) return;
    void loader.attempt(() =>
      api.changeWebhook(hook, field.type === "checkbox" ? { enabled: field.checked } : { [field.name]: field.value }),
    );
  };
  host.addEventListener("submit", submit);
  host.addEventListener("change", change);
  const quiet = delegate(host, {
    show: (target) => {
      shown = id(target);
      void loader.load();
    },
    test: (target) => {
      shown = id(target);
      void loader.attempt(() => api.testWebhook(id(target)));
    },
    delete: (target) =>
      askDelete(
        hooks?.find((hook) => hook.webhook_id === id(target)),
        () => {
          focusPage(); // the button goes with its row
          void loader.attempt(() => api.deleteWebhook(id(target)));
        },
      ),
  });
  void loader.load();
  return {
    changed: (_, all, webhooks) => {
      if (all || webhooks) void loader.load();
    },
    restyle: draw,
    keys: {},
    close() {
      loader.close();
      quiet();
      host.removeEventListener("submit", submit);
      host.removeEventListener("change", change);
      host.replaceChildren();
    },
  };
}

/** The rules page: all rules, the editor of one, and the backtest of what the editor holds. What is typed and not saved stays with its rule. */
import { api } from "../api.js";
import { body, changes } from "../rules.js";
import { EMPTY, NEW, counts, current, flawsOf, step, unsaved } from "../rulebook.js";
import { createLoader, problemOf } from "../loader.js";
import { paced } from "../pace.js";
import { rulePath } from "../router.js";
import { t } from "../i18n/index.js";
import { state } from "../store.js";
import { focusPage } from "../widgets/dialog.js";
import { delegate, h, patch } from "../widgets/dom.js";
import { icon } from "../widgets/icons.js";
import { problemLine } from "../widgets/parts.js";
import { askDelete, askLeave, askReset } from "../widgets/ruleasks.js";
import { ruleEditor, saveBar } from "../widgets/ruleeditor.js";
import { COMMON_SERIES, controlOf, fill } from "../widgets/rulefields.js";
import { ruleList, rulePick } from "../widgets/rulelist.js";
import { ruleName, unsavedNames } from "../widgets/rulewords.js";
import { createTester } from "../widgets/tester.js";

const COUNTS_MS = 3000; // between two looks at what the runs did to the counts of the list
const MAY_WRITE = new Set(["operator", "admin"]);

/**
 * @param {HTMLElement} host
 * @param {string} id of the rule to open; empty for the first
 * @param {import("../router.js").Shell} shell
 * @returns {import("../router.js").View}
 */
export function rulesView(host, id, shell) {
  let book = { ...EMPTY, open: id };
  /** @type {any} */ let problem = null;
  /** @type {{ detail: string, fix: string } | null} */ let refused = null;
  /** @type {import("../rules.js").Wrong[]} */ let flaws = [];
  /** @type {any[]} */ let runs = [];
  let busy = false,
    said = "",
    unfolded = /** @type {Record<string, boolean>} */ ({});
  const touched = new Set(); // fields of a new rule that have been typed into: the others are not wrong yet
  const readOnly = () => !MAY_WRITE.has(state.me?.role ?? "");
  const whyNot = () => (state.me && readOnly() ? t("rules.viewer", { role: t(`role.${state.me.role}`) }) : null);
  const tester = createTester({ runs: () => runs, changed: () => draw() });

  /** @param {import("../rulebook.js").Input} input */
  const take = (input) => {
    book = step(book, input);
    draw();
  };
  /** @param {NonNullable<ReturnType<typeof current>>} now @returns {import("../widgets/rulefields.js").Form} */
  const formOf = (now) => ({
    draft: now.draft,
    detectors: book.detectors,
    wrong: [...now.wrong.filter((w) => !now.isNew || touched.has(w.field)), ...flaws],
    readOnly: readOnly(),
    series: [...new Set([...COMMON_SERIES, ...(book.rules ?? []).map((rule) => rule.series)])].sort(),
    runs,
  });
  let shown = "";
  /** The open rule is in sight in its list; once, or the list would not let itself be scrolled. */
  const reveal = () => {
    const side = host.querySelector(".side"),
      row = side?.querySelector(".rule-row[aria-current]");
    if (!side || !row || shown === book.open) return;
    shown = book.open;
    const [list, own] = [side.getBoundingClientRect(), row.getBoundingClientRect()];
    side.scrollTop += Math.min(0, own.top - list.top) + Math.max(0, own.bottom - list.bottom);
  };
  let drawing = false,
    again = false;
  // A field that goes while it has the focus speaks up once more, in the middle of the drawing that removes it.
  const draw = () => {
    again = drawing;
    if (drawing) return;
    drawing = true;
    const now = current(book);
    patch(host, [head(), problemLine(problem), book.rules !== null && content(now)]);
    fill(host, now?.edited ?? false);
    tester.drawn(host);
    reveal();
    shell.title(t("nav.rules"), 0, false);
    drawing = false;
    if (again) draw();
  };
  const head = () =>
    h(
      "div",
      { class: "crumbs", "data-key": "head" },
      h("h1", {}, t("nav.rules")),
      book.rules && h("span", { class: "hide-phone" }, t("rules.count", counts(book.rules))),
      h(
        "span",
        { class: "end" },
        h("button", { class: "btn", "data-act": "new", "aria-disabled": String(readOnly()) }, icon("plus"), t("rules.new")),
      ),
    );
  /** @param {ReturnType<typeof current>} now */
  const content = (now) =>
    h(
      "div",
      { class: "cols list", "data-key": "cols" },
      h("div", { class: "side" }, ruleList(book, readOnly()), rulePick(book)),
      now && h("div", { class: "stack main-column" }, editorParts(now)),
    );
  /** @param {NonNullable<ReturnType<typeof current>>} now */
  const editorParts = (now) => {
    const form = formOf(now);
    return [
      ruleEditor(now, form, unfolded),
      tester.panel(now, book.detectors, whyNot()),
      saveBar(now, form, { busy, refused, said, whyNot: whyNot() }),
    ];
  };

  const loader = createLoader(
    async () => {
      const [rules, detectors] = await Promise.all([api.rules(), book.detectors.length > 0 ? book.detectors : api.detectors()]);
      book = step(book, { kind: "rules", rules, detectors });
    },
    (wrong) => {
      problem = wrong;
      address();
      draw();
    },
  );
  const readRuns = () =>
    api.runs().then(
      (all) => {
        runs = all;
        draw();
      },
      () => {}, // only what is offered to choose from; the live state tells that the server is away
    );
  /** The address says which rule is open, without a step in the history. */
  const address = () => {
    const path = rulePath(book.open);
    if (book.open && location.pathname !== path) shell.go(path, true);
  };
  const open = (/** @type {string} */ next) => {
    refused = null;
    flaws = [];
    said = "";
    touched.clear();
    take({ kind: "select", id: next });
    address();
    tester.opened(book.open);
  };

  let last = Promise.resolve(); // changes go out one after the other, each on what the one before has made
  /** @param {() => Promise<void>} what */
  const send = (what) => {
    const now = () => sendNow(what);
    last = last.then(now, now);
    return last;
  };
  /** Sends a change, and takes the answer in. @param {() => Promise<void>} what */
  const sendNow = async (what) => {
    if (loader.closed) return;
    busy = true;
    refused = null;
    flaws = [];
    draw();
    try {
      await what();
    } catch (error) {
      const wrong = problemOf(error);
      flaws = flawsOf(wrong.now?.errors ?? [], book.detectors, current(book)?.draft.detector ?? "");
      refused = wrong.status === 409 || flaws.length > 0 ? null : wrong;
      await loader.load(); // what is stored now says the rest
      if (wrong.status === 409 && !current(book)?.theirs) refused = wrong;
    } finally {
      busy = false;
      if (!loader.closed) draw();
    }
  };
  /** @param {boolean} trial */
  const save = (trial) => {
    const now = current(book);
    if (!now || busy || now.wrong.length > 0) return;
    const base = now.gone ? null : now.base;
    void send(async () => {
      const rule =
        base === null
          ? await api.addRule(body(now.draft, book.detectors, { trial }))
          : await api.changeRule(base.rule_id, changes(now.draft, base, book.detectors, trial));
      said = base === null ? t("rules.created") : t("rules.saved", { version: rule.version });
      book = step(book, { kind: "saved", rule });
      address();
      shell.speak(said);
      void loader.load();
    });
  };
  /** @param {string} rule @param {boolean} enabled */
  const switchRule = (rule, enabled) => {
    take({ kind: "switching", id: rule, enabled });
    void send(async () => {
      const version = book.rules?.find((r) => r.rule_id === rule)?.version;
      try {
        book = step(book, { kind: "switched", rule: await api.changeRule(rule, { enabled, version }) });
      } catch (error) {
        book = step(book, { kind: "unswitched", id: rule, enabled });
        throw error;
      }
    });
  };

  const acts = {
    new: () => open(NEW),
    save: () => save(false),
    try: () => save(true),
    discard: () => {
      touched.clear();
      refused = null;
      flaws = [];
      take({ kind: "discard" });
      address();
    },
    mine: () => take({ kind: "mine" }),
    focus: (/** @type {HTMLElement} */ target) => {
      const field = controlOf(host, target.dataset.id ?? ""),
        fold = field?.closest("details");
      if (fold) fold.open = true;
      field?.focus();
    },
    delete: () => {
      const rule = current(book)?.rule;
      if (rule)
        askDelete(ruleName(rule), () => {
          focusPage(); // the button goes with its rule
          void send(async () => {
            await api.deleteRule(rule.rule_id);
            book = step(book, { kind: "deleted", id: rule.rule_id });
            said = t("rules.deleted");
            address();
          });
        });
    },
    reset: () => {
      const rule = current(book)?.rule;
      if (rule)
        askReset(ruleName(rule), rule.version + 1, () =>
          send(async () => {
            book = step(book, { kind: "saved", rule: await api.resetRule(rule.rule_id) });
            said = t("rules.saved", { version: current(book)?.rule?.version ?? "" });
          }),
        );
    },
    ...tester.acts,
  };
  const quiet = delegate(host, acts);
  const onInput = (/** @type {Event} */ event) => {
    const field = /** @type {HTMLInputElement} */ (event.target),
      { dataset } = field;
    const value = field.type === "checkbox" ? ((field.checked ? dataset.on : dataset.off) ?? "") : field.value;
    if (dataset.field) {
      touched.add(dataset.field);
      flaws = flaws.filter((flaw) => flaw.field !== dataset.field);
      refused = null;
      said = "";
      take({ kind: "edit", field: dataset.field, value });
    } else if (dataset.switch && event.type === "change") switchRule(dataset.switch, field.checked);
    else if (dataset.pick && event.type === "change") open(field.value);
    else tester.input(field, event.type);
  };
  const onToggle = (/** @type {Event} */ event) => {
    const fold = /** @type {HTMLElement} */ (event.target);
    if (fold instanceof HTMLDetailsElement && fold.dataset.key) unfolded[fold.dataset.key] = fold.open;
  };
  const onLeave = (/** @type {BeforeUnloadEvent} */ event) => {
    if (unsaved(book)) event.preventDefault();
  };
  host.addEventListener("input", onInput);
  host.addEventListener("change", onInput);
  host.addEventListener("toggle", onToggle, true);
  window.addEventListener("beforeunload", onLeave);
  const recount = paced(COUNTS_MS, () => void loader.load());
  const move = (/** @type {number} */ by) => {
    const ids = [...(NEW in book.editing ? [NEW] : []), ...(book.rules ?? []).map((rule) => rule.rule_id)];
    const next = ids[Math.min(ids.length - 1, Math.max(0, ids.indexOf(book.open) + by))];
    if (next && next !== book.open) open(next);
  };
  void loader.load();
  void readRuns();

  return {
    changed: (revisions, all, _webhooks, rules) => {
      if (all || rules) void loader.load();
      else if (Object.keys(revisions).length > 0) recount.ask();
    },
    restyle: () => {
      draw();
      tester.restyle();
    },
    keys: { j: () => move(1), k: () => move(-1) },
    moved: (route) => {
      if (route.view === "rules" && route.id !== book.open) open(route.id);
    },
    leaving: (route, leave) => {
      if (route.view === "rules" || route.view === "signin" || !unsaved(book)) return true;
      askLeave(unsavedNames(book), () => {
        book = EMPTY;
        leave();
      });
      return false;
    },
    close() {
      loader.close();
      recount.stop();
      tester.destroy();
      quiet();
      host.removeEventListener("input", onInput);
      host.removeEventListener("change", onInput);
      host.removeEventListener("toggle", onToggle, true);
      window.removeEventListener("beforeunload", onLeave);
      host.replaceChildren();
    },
  };
}

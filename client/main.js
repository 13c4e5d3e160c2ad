/**
 * The one place where the page is put together: who is signed in, which view is open, what the live stream wakes.
 */
import { ApiError, api, onSignedOut } from "./api.js";
import { openStream } from "./stream.js";
import { set, state, subscribe } from "./store.js";
import { sameView, startRouter } from "./router.js";
import { badge } from "./reducers.js";
import { lacksClauses, learnClauses, setLanguage, t } from "./i18n/index.js";
import { alertsView } from "./views/alerts.js";
import { incidentView } from "./views/incident.js";
import { rulesView } from "./views/rules.js";
import { runView } from "./views/run.js";
import { runsView } from "./views/runs.js";
import { signinView } from "./views/signin.js";
import { webhooksView } from "./views/webhooks.js";
import { isDialogOpen } from "./widgets/dialog.js";
import { delegate, isField, patch } from "./widgets/dom.js";
import { keysDialog } from "./widgets/keys.js";
import { tendMenus } from "./widgets/menu.js";
import { missing } from "./widgets/parts.js";
import { topBar } from "./widgets/topbar.js";

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const bar = /** @type {HTMLElement} */ (document.getElementById("topbar"));
/** @type {import("./router.js").View | null} */ let view = null;
let at = /** @type {import("./router.js").Route} */ ({ view: "runs" });
/** @type {(() => void) | null} */ let closeStream = null;
let go = (/** @type {string} */ _path, /** @type {boolean} */ _replace = false) => false;

/** @type {import("./router.js").Shell} */
const shell = {
  go: (path, replace) => void go(path, replace),
  title(name, firing, critical) {
    const text = `${firing > 0 ? `(${firing}) ` : ""}${name} \u00b7 LossGuard`;
    if (document.title !== text) document.title = text;
    const icon = critical ? "/icon-critical.svg" : "/icon.svg",
      link = document.getElementById("favicon");
    if (link && link.getAttribute("href") !== icon) link.setAttribute("href", icon);
  },
  speak(text) {
    /** @type {HTMLElement} */ (document.getElementById("speak")).textContent = text;
  },
  shout(text) {
    /** @type {HTMLElement} */ (document.getElementById("shout")).textContent = text;
  },
  async signedIn() {
    await enter();
    go("/", true);
  },
};

/** @param {import("./router.js").Route} route */
function show(route) {
  if (view && sameView(route, at)) {
    at = route;
    view.moved?.(route);
    return;
  }
  view?.close();
  at = route;
  drawBar();
  view = open(route);
}

/** @param {import("./router.js").Route} route @returns {import("./router.js").View} */
function open(route) {
  if (route.view === "run") return runView(main, route.id, shell, route.steps);
  if (route.view === "incident") return incidentView(main, route, shell);
  if (route.view === "alerts") return alertsView(main, route.tab, shell);
  if (route.view === "rules") return rulesView(main, route.id, shell);
  if (route.view === "webhooks") return webhooksView(main, shell);
  if (route.view === "signin") return signinView(main, route.code, shell);
  if (route.view === "runs") return runsView(main, shell);
  const draw = () => patch(main, [missing("missing")]);
  draw();
  return { changed: () => {}, restyle: draw, keys: {}, close: () => main.replaceChildren() };
}

const drawBar = () => {
  patch(bar, topBar(state, at.view));
  /** @type {HTMLElement} */ (document.querySelector(".skip")).textContent = t("skip");
};

/** Reads who is signed in and opens the live stream; a 401 has sent us to the sign-in view by then. */
async function enter() {
  set({ me: await api.me() });
  void learn();
  closeStream?.();
  closeStream = openStream({
    hint,
    state: (live) => set({ live }),
    signedIn: () =>
      api.me().then(
        () => true,
        (error) => !(error instanceof ApiError && error.status === 401),
      ),
  });
}

let learning = false;
/** What the server stores in English is said in Chinese by its own table, which is read once and only by who needs it. */
async function learn() {
  if (!state.me || learning || !lacksClauses()) return;
  learning = true;
  try {
    learnClauses(await api.clauses());
    view?.restyle();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error; // then they are read in English
  } finally {
    learning = false;
  }
}

let asleep = false; // hints that came while the tab was hidden

/** @param {Record<string, number>} revisions @param {boolean} webhooks @param {boolean} all @param {boolean} rules */
function hint(revisions, webhooks, all, rules) {
  countAlerts();
  if (document.visibilityState === "hidden") {
    asleep = true;
    return;
  }
  view?.changed(revisions, all, webhooks, rules);
}

let counting = false;
/** The badge: fetched at most every two seconds, however many hints come. */
function countAlerts() {
  if (counting) return;
  counting = true;
  api.alerts(true).then(
    (alerts) => set({ firing: badge(alerts) }),
    () => {},
  );
  setTimeout(() => {
    counting = false;
  }, 2000);
}

function signOut() {
  closeStream?.();
  closeStream = null;
  set({ me: null });
  if (at.view !== "signin") go("/signin", true);
}

const acts = {
  theme: () => set({ theme: state.theme === "dark" ? "light" : "dark" }),
  language: () => set({ language: state.language === "zh" ? "en" : "zh" }),
  signout: () => {
    api.signOut().then(signOut, signOut);
  },
  keys: () => keysDialog(),
};

let awaitsG = false;
/** @param {KeyboardEvent} event */
function onKey(event) {
  if (event.metaKey || event.ctrlKey || event.altKey || isField(event.target) || isDialogOpen() || !state.me) return;
  const jump = awaitsG ? { r: "/", a: "/alerts", u: "/rules", w: "/webhooks" }[event.key] : undefined;
  awaitsG = event.key === "g";
  if (jump) {
    event.preventDefault();
    go(jump);
    return;
  }
  const handler = view?.keys[event.key] ?? { t: acts.theme, "?": acts.keys }[event.key];
  if (handler) {
    event.preventDefault();
    handler(event);
  }
}

/** @param {import("./store.js").State} now @param {Partial<import("./store.js").State>} changed */
function onState(now, changed) {
  if ("theme" in changed) document.documentElement.dataset.theme = now.theme;
  if ("language" in changed) setLanguage(now.language);
  drawBar();
  if ("theme" in changed || "language" in changed) view?.restyle();
  if ("language" in changed) void learn();
}

setLanguage(state.language);
document.documentElement.dataset.theme = state.theme;
subscribe(onState);
onSignedOut(signOut);
delegate(bar, acts);
tendMenus();
document.addEventListener("keydown", onKey);
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible" && asleep) {
    asleep = false;
    view?.changed({}, true, true, true);
  }
});
// The router shows the first view itself, before `go` is known: signing in needs `go`, so it starts first.
go = startRouter(show, (route, leave) => view?.leaving?.(route, leave) ?? true);
if (at.view !== "signin")
  void enter().then(
    () => view?.changed({}, true, true, true),
    (error) => {
      if (!(error instanceof ApiError)) throw error;
      if (error.status !== 401) setTimeout(() => location.reload(), 3000);
    },
  );

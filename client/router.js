/**
 * Which view an address means. Addresses hold ids only; a sign-in code lives in the fragment, which no server sees.
 *
 * @typedef {{ view: "runs" } | { view: "run", id: string, steps: [number, number] | null } | { view: "incident", run: string, id: string } | { view: "alerts", tab: "incidents" | "all" | "silences" } | { view: "rules", id: string } | { view: "webhooks" } | { view: "signin", code: string } | { view: "missing" }} Route
 * @typedef {{ changed: (revisions: Record<string, number>, all: boolean, webhooks: boolean, rules: boolean) => void, restyle: () => void,
 *             keys: Record<string, (event: KeyboardEvent) => void>, close: () => void, moved?: (route: Route) => void,
 *             leaving?: (route: Route, leave: () => void) => boolean }} View
 * `moved`: another address of the same view; `leaving`: false holds the reader back, for the view to ask and to call `leave` itself
 * @typedef {{ go: (path: string, replace?: boolean) => void, title: (name: string, firing: number, critical: boolean) => void,
 *             speak: (text: string) => void, shout: (text: string) => void, signedIn: () => Promise<void> }} Shell
 */

/**
 * @param {string} path
 * @param {string} [fragment]
 * @returns {Route}
 */
export function route(path, fragment = "") {
  const parts = path.split("/").filter(Boolean).map(decoded);
  if (parts.length === 0 || (parts.length === 1 && parts[0] === "runs")) return { view: "runs" };
  if (parts[0] === "runs" && parts.length === 2) return { view: "run", id: parts[1], steps: steps(fragment) };
  if (parts[0] === "runs" && parts.length === 4 && parts[2] === "incidents")
    return { view: "incident", run: parts[1], id: parts[3] };
  if (parts[0] === "alerts" && parts.length <= 2) return alerts(parts[1] ?? "incidents");
  if (parts[0] === "rules" && parts.length <= 2) return { view: "rules", id: parts[1] ?? "" };
  if (parts.length === 1 && parts[0] === "webhooks") return { view: parts[0] };
  return parts.length === 1 && parts[0] === "signin" ? { view: "signin", code: fragment.replace(/^#/, "") } : { view: "missing" };
}

/** @param {string} tab @returns {Route} */
const alerts = (tab) =>
  tab === "incidents" || tab === "all" || tab === "silences" ? { view: "alerts", tab } : { view: "missing" };

/** The steps that a link to a run points at. @param {string} fragment @returns {[number, number] | null} */
function steps(fragment) {
  const found = /^#steps=(\d{1,12})-(\d{1,12})$/.exec(fragment),
    [from, to] = [Number(found?.[1]), Number(found?.[2])];
  return from < to ? [from, to] : null;
}

/** Whether two addresses show the same, so that the view can stay. @param {Route} a @param {Route} b */
export const sameView = (a, b) =>
  a.view !== "signin" && JSON.stringify({ ...a, ...inside(a) }) === JSON.stringify({ ...b, ...inside(b) });

/** What a view can change of its address by itself. @param {Route} route */
const inside = (route) => (route.view === "rules" ? { id: "" } : { steps: null });

/** A part of an address; one that is not well formed stays as it is and leads nowhere. @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** @param {string} id */
export const runPath = (id) => `/runs/${encodeURIComponent(id)}`;

/** @param {string} run @param {string} id */
export const incidentPath = (run, id) => `${runPath(run)}/incidents/${encodeURIComponent(id)}`;

/** The run with its charts on some steps. @param {string} run @param {[number, number]} steps */
export const stepsPath = (run, [from, to]) =>
  `${runPath(run)}#steps=${Math.max(0, Math.floor(from))}-${Math.ceil(Math.max(to, from + 1))}`;

/** @param {string} [id] */
export const rulePath = (id) => (id ? `/rules/${encodeURIComponent(id)}` : "/rules");

/** @param {"incidents" | "all" | "silences"} tab */
export const alertsPath = (tab) => (tab === "incidents" ? "/alerts" : `/alerts/${tab}`);

/**
 * Shows the view of each address, also on back, forward and clicks on links of our own.
 * @param {(route: Route) => void} show
 * @param {(route: Route, leave: () => void) => boolean} mayLeave asked before every move; where it says no, calling `leave` moves after all
 * @returns {(path: string, replace?: boolean) => boolean} go whether it went
 */
export function startRouter(show, mayLeave) {
  let here = location.pathname + location.hash;
  const now = () => {
    here = location.pathname + location.hash;
    show(route(location.pathname, location.hash));
  };
  const move = (/** @type {string} */ path, /** @type {boolean} */ replace) => {
    if (replace) history.replaceState(null, "", path);
    else history.pushState(null, "", path);
    now();
  };
  const go = (/** @type {string} */ path, replace = false) => {
    const to = new URL(path, location.href);
    const may = mayLeave(route(to.pathname, to.hash), () => move(path, replace));
    if (may) move(path, replace);
    return may;
  };
  window.addEventListener("popstate", () => {
    const path = location.pathname + location.hash;
    if (mayLeave(route(location.pathname, location.hash), () => move(path, false))) now();
    else history.pushState(null, "", here); // the browser has moved already
  });
  document.addEventListener("click", (event) => {
    const link = /** @type {HTMLAnchorElement | null} */ (/** @type {Element} */ (event.target).closest("a[href^='/']"));
    if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || link.target)
      return;
    event.preventDefault();
    if (go(link.getAttribute("href") ?? "/")) window.scrollTo(0, 0);
  });
  now();
  return go;
}

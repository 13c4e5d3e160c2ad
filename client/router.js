/**
 * Which view an address means. Addresses hold ids only; a sign-in code lives in the fragment, which no server sees.
 *
 * @typedef {{ view: "runs" } | { view: "run", id: string } | { view: "alerts" } | { view: "webhooks" } | { view: "signin", code: string } | { view: "missing" }} Route
 * @typedef {{ changed: (revisions: Record<string, number>, all: boolean, webhooks: boolean) => void, restyle: () => void,
 *             keys: Record<string, (event: KeyboardEvent) => void>, close: () => void }} View
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
  if (parts.length === 2 && parts[0] === "runs") return { view: "run", id: parts[1] };
  if (parts.length === 1 && (parts[0] === "alerts" || parts[0] === "webhooks")) return { view: parts[0] };
  return parts.length === 1 && parts[0] === "signin" ? { view: "signin", code: fragment.replace(/^#/, "") } : { view: "missing" };
}

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

/**
 * Shows the view of each address, also on back, forward and clicks on links of our own.
 * @param {(route: Route) => void} show
 * @returns {(path: string, replace?: boolean) => void} go
 */
export function startRouter(show) {
  const now = () => show(route(location.pathname, location.hash));
  const go = (/** @type {string} */ path, replace = false) => {
    if (replace) history.replaceState(null, "", path);
    else history.pushState(null, "", path);
    now();
  };
  window.addEventListener("popstate", now);
  document.addEventListener("click", (event) => {
    const link = /** @type {HTMLAnchorElement | null} */ (/** @type {Element} */ (event.target).closest("a[href^='/']"));
    if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || link.target)
      return;
    event.preventDefault();
    go(link.getAttribute("href") ?? "/");
    window.scrollTo(0, 0);
  });
  now();
  return go;
}

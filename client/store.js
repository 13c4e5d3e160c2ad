/**
 * What the page knows: one plain object, changed by `set`, told to listeners. Preferences are remembered by the browser.
 *
 * @typedef {{ me: any | null, live: import("./reducers.js").LiveState, firing: number, language: "en" | "zh", theme: "light" | "dark",
 *             smoothing: number, robust: boolean, logY: boolean, eachRank: boolean }} State
 */

const REMEMBERED = /** @type {const} */ (["language", "theme", "smoothing", "robust", "logY", "eachRank"]);
const KEY = "lossguard";

/** @returns {Partial<State>} */
function recalled() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "{}");
  } catch {
    return {};
  } // storage may be switched off
}

/** @returns {State} */
function initial() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  const chinese = navigator.language.toLowerCase().startsWith("zh");
  return {
    me: null,
    live: "connecting",
    firing: 0,
    language: chinese ? "zh" : "en",
    theme: dark ? "dark" : "light",
    smoothing: 0.6,
    robust: true,
    logY: false,
    eachRank: false,
    ...recalled(),
  };
}

/** @type {Set<(state: State, changed: Partial<State>) => void>} */
const listeners = new Set();

/** @type {State} */
export const state = initial();

/** @param {Partial<State>} change */
export function set(change) {
  Object.assign(state, change);
  if (REMEMBERED.some((key) => key in change)) {
    const kept = Object.fromEntries(REMEMBERED.map((key) => [key, state[key]]));
    try {
      localStorage.setItem(KEY, JSON.stringify(kept));
    } catch {
      /* the page works without memory */
    }
  }
  for (const listener of listeners) listener(state, change);
}

/** @param {(state: State, changed: Partial<State>) => void} listener @returns {() => void} */
export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

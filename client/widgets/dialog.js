/**
 * A modal dialog: labelled, traps the focus, gives it back, Esc equals Close. One at a time. Its content is drawn by a function
 * that may be called again; what the reader has typed or chosen stays, because inputs are patched, never replaced.
 */
import { h, patch } from "./dom.js";

/** @type {(() => void) | null} */
let closeOpen = null;

export const isDialogOpen = () => closeOpen !== null;

/**
 * @param {{ narrow?: boolean, label: string, closed?: () => void }} options
 * @returns {{ body: HTMLElement, draw: (content: import("./dom.js").Child[]) => void, close: () => void }}
 */
export function openDialog({ narrow = false, label, closed }) {
  closeOpen?.();
  const host = /** @type {HTMLElement} */ (document.getElementById("dialogs")),
    before = /** @type {HTMLElement | null} */ (document.activeElement);
  const box = h("section", {
    class: narrow ? "dialog narrow" : "dialog",
    role: "dialog",
    "aria-modal": "true",
    "aria-label": label,
    tabindex: -1,
  });
  const scrim = h("div", { class: "scrim" }, box);
  const behind = ["main", "topbar"].map((id) => document.getElementById(id));
  const close = () => {
    if (closeOpen !== close) return;
    closeOpen = null;
    scrim.remove();
    behind.forEach((node) => node?.removeAttribute("inert"));
    document.removeEventListener("keydown", keys, true);
    document.documentElement.classList.remove("has-dialog");
    before?.focus();
    if (document.activeElement === document.body) focusPage();
    closed?.();
  };
  const keys = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      close();
    } else if (event.key === "Tab") trap(event, box);
  };
  closeOpen = close;
  host.append(scrim);
  behind.forEach((node) => node?.setAttribute("inert", ""));
  document.addEventListener("keydown", keys, true);
  document.documentElement.classList.add("has-dialog");
  box.focus();
  return { body: box, draw: (content) => patch(box, content), close };
}

/** Where what had the focus is gone from the page, or will be, the page itself has it: a keyboard goes on from there. */
export const focusPage = () => document.getElementById("main")?.focus({ preventScroll: true });

/** @param {KeyboardEvent} event @param {HTMLElement} box */
function trap(event, box) {
  const stops = /** @type {HTMLElement[]} */ ([...box.querySelectorAll("a[href], button, input, select, textarea")]).filter(
    (n) => !n.hasAttribute("disabled") && n.offsetParent !== null,
  );
  if (stops.length === 0) return;
  const edge = event.shiftKey ? stops[0] : stops[stops.length - 1];
  const outside = !box.contains(document.activeElement) || document.activeElement === box;
  if (document.activeElement !== edge && !(outside && event.shiftKey)) return;
  event.preventDefault();
  stops[event.shiftKey ? stops.length - 1 : 0].focus();
}

/** A key that makes one opening of a dialog one order, however often it is sent. `randomUUID` needs TLS or loopback. */
export function idempotencyKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((b) => b.toString(16).padStart(2, "0")).join("");
}

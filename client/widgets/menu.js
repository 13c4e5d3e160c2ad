/**
 * Menus that open from a button (`details.menu`). One shuts when something in it is chosen, when the reader clicks elsewhere, and at
 * Esc; the focus that was in it goes back to its button, so that a dialog opened from it gives it back there too.
 */
import { isDialogOpen } from "./dialog.js";

export function tendMenus() {
  document.addEventListener("click", (event) => shutAll((menu) => isOver(menu, /** @type {Element} */ (event.target))), true);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !isDialogOpen()) shutAll(() => true);
  });
}

/** Whether a click there ends a menu: on something to choose, or outside. @param {Element} menu @param {Element} target */
function isOver(menu, target) {
  if (!menu.contains(target)) return true;
  return target.closest("a, button:not([aria-disabled=true])") !== null;
}

/** @param {(menu: Element) => boolean} which */
function shutAll(which) {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!which(menu)) continue;
    const held = menu.contains(document.activeElement);
    menu.removeAttribute("open");
    if (held) menu.querySelector("summary")?.focus();
  }
}

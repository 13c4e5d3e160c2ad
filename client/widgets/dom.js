/**
 * Building and updating DOM. Widgets are functions from values to fresh nodes; `patch` brings them onto the page and changes
 * only what differs, so that focus, selection and scroll stay where the reader left them.
 *
 * Text always goes in as text. Clicks are found by `data-act` (see `delegate`), because patched nodes keep no listeners.
 */

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "path", "circle", "rect", "line", "use", "text", "clipPath"]);

/** @typedef {Node | string | number | null | undefined | false} Leaf */
/** @typedef {Leaf | (Leaf | (Leaf | Leaf[])[])[]} Child */

/**
 * One element. `style` takes an object and is set property by property: a style attribute would break the content policy.
 * @param {string} tag
 * @param {Record<string, any>} [props] attributes; null, undefined and false leave one out, true sets it empty
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, props = {}, ...children) {
  const node = /** @type {HTMLElement} */ (SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag));
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") Object.entries(value).forEach(([key, v]) => node.style.setProperty(key, String(v)));
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

/**
 * Makes the children of `host` be `next`, reusing what is there. Children with `data-key` are matched by it.
 * An element marked `data-own` belongs to somebody else below its attributes (a chart, an open menu).
 * @param {Element} host
 * @param {Child | Child[]} next
 */
export function patch(host, next) {
  const wanted = [next]
    .flat(3)
    .filter((n) => n !== null && n !== undefined && n !== false)
    .map((n) => (n instanceof Node ? n : document.createTextNode(String(n))));
  const keyed = new Map();
  for (const child of host.children) {
    const key = child.getAttribute("data-key");
    if (key !== null) keyed.set(key, child);
  }
  const wantedKeys = new Set(wanted.map((node) => (node instanceof Element ? node.getAttribute("data-key") : null)));
  const isGone = (/** @type {Node | null} */ node) =>
    node instanceof Element && node.hasAttribute("data-key") && !wantedKeys.has(node.getAttribute("data-key"));
  let at = host.firstChild;
  for (const node of wanted) {
    const key = node instanceof Element ? node.getAttribute("data-key") : null;
    const old = key === null ? at : (keyed.get(key) ?? null);
    // What goes is taken out of the way: moving what stays around it would take the focus from a field.
    while (key !== null && at && at !== old && isGone(at)) {
      const gone = at;
      at = at.nextSibling;
      host.removeChild(gone);
    }
    if (old && same(old, node)) {
      if (old === at) at = old.nextSibling;
      else host.insertBefore(old, at);
      sync(old, node);
    } else host.insertBefore(node, at);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    host.removeChild(gone);
  }
}

/** @param {Node} a @param {Node} b */
function same(a, b) {
  if (a.nodeType !== b.nodeType || a.nodeName !== b.nodeName) return false;
  return !(a instanceof Element && b instanceof Element) || a.getAttribute("data-key") === b.getAttribute("data-key");
}

/** @param {Node} old @param {Node} fresh */
function sync(old, fresh) {
  if (!(old instanceof Element && fresh instanceof Element)) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) {
    const kept = name === "style" || name === "open" || (old.hasAttribute("data-own") && name === "class");
    if (!kept && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  // A slider follows its setting (keys change it too), but never under the hand.
  if (old instanceof HTMLInputElement && old.type === "range" && document.activeElement !== old)
    old.value = old.getAttribute("value") ?? "";
  const [was, is] = [/** @type {HTMLElement} */ (old).style, /** @type {HTMLElement} */ (fresh).style];
  if (was && is && !old.hasAttribute("data-own") && was.cssText !== is.cssText) was.cssText = is.cssText;
  if (!old.hasAttribute("data-own")) patch(old, [...fresh.childNodes]);
}

/**
 * One listener for all clicks inside `host`: the nearest `data-act` names the handler.
 * @param {Element} host
 * @param {Record<string, (target: HTMLElement, event: Event) => void>} acts
 * @returns {() => void} takes the listener off
 */
export function delegate(host, acts) {
  const listen = (/** @type {Event} */ event) => {
    const target = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("[data-act]"));
    if (!target || !host.contains(target) || target.getAttribute("aria-disabled") === "true") return;
    acts[target.dataset.act ?? ""]?.(target, event);
  };
  host.addEventListener("click", listen);
  return () => host.removeEventListener("click", listen);
}

/** Whether single-letter keys should be left alone. @param {EventTarget | null} target */
export const isField = (target) =>
  target instanceof Element && target.closest("input, textarea, select, [contenteditable]") !== null;

/** The shapes of states, verdicts and actions. A state differs in shape before it differs in colour. */
import { h } from "./dom.js";

/** Drawn in a 12 px box. "f" fills. @type {Record<string, [string, string?]>} */
const GLYPHS = {
  running: ["M2.5 1.2 11 6l-8.5 4.8z", "f"],
  paused: ["M3.5 2v8M8.5 2v8"],
  lost: ["M6 1a5 5 0 1 0 0 10a5 5 0 1 0 0-10z", "dash"],
  stopped: ["M3 2h6a1 1 0 0 1 1 1v6a1 1 0 0 1-1 1H3a1 1 0 0 1-1-1V3a1 1 0 0 1 1-1z", "f"],
  failed: ["M2.2 2.2l7.6 7.6M9.8 2.2 2.2 9.8"],
  finished: ["M1.5 6.5 4.6 9.6 10.6 2.8"],
  created: ["M6 3a3 3 0 1 0 0 6a3 3 0 1 0 0-6z"],
  sound: ["M6 1.6a4.4 4.4 0 1 0 0 8.8a4.4 4.4 0 1 0 0-8.8z", "f"],
  unsound: ["M6 1l5 5-5 5-5-5z"],
  corrupt: ["M2 2l8 8M10 2 2 10"],
  complete: ["M6 1.8a4.2 4.2 0 1 0 0 8.4a4.2 4.2 0 1 0 0-8.4z"],
  writing: ["M6 1.8a4.2 4.2 0 1 0 0 8.4a4.2 4.2 0 1 0 0-8.4z", "dash"],
  deleted: ["M2 6h8"],
  firing: ["M6 .8 11.6 11H.4z", "f"],
  warning: ["M6 1.6 11 10.4H1z"],
  pending: ["M6 1.6 11 10.4H1z", "dash"],
  info: ["M6 1.8a4.2 4.2 0 1 0 0 8.4a4.2 4.2 0 1 0 0-8.4zM6 5.4v2.6M6 3.8v.01"],
  back: ["M4 1.8 1.4 4.4 4 7M1.8 4.4h5.4a3 3 0 0 1 0 6H4.5"],
  pin: ["M4 1.5h4M4.6 1.5v3.6L3 7.2h6L7.4 5.1V1.5M6 7.2v3.6"],
  stalled: ["M6 1a5 5 0 1 0 0 10a5 5 0 1 0 0-10zM6 3v3h2.4"],
  flask: ["M4.6 1h2.8M5 1.2v3.6L2 10.6h8L7 4.8V1.2"],
  person: ["M6 1.2a2.3 2.3 0 1 0 0 4.6a2.3 2.3 0 1 0 0-4.6zM1.6 10.8a4.4 4.4 0 0 1 8.8 0"],
  silent: ["M1.5 4.4h2l2.7-2.4v8l-2.7-2.4h-2zM8.4 4.6l2.6 2.8M11 4.6L8.4 7.4"],
  dot: ["M6 3a3 3 0 1 0 0 6a3 3 0 1 0 0-6z", "f"],
};

/** Drawn in a 16 px box. @type {Record<string, string>} */
const ICONS = {
  search: "M7 2.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9zM10.5 10.5l3.5 3.5",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  close: "M4 4l8 8M12 4l-8 8",
  link: "M6.5 9.5l3-3M7.5 4.5l1-1a2.8 2.8 0 0 1 4 4l-1 1M8.5 11.5l-1 1a2.8 2.8 0 0 1-4-4l1-1",
  copy: "M7 5.5h5a1.5 1.5 0 0 1 1.5 1.5v5a1.5 1.5 0 0 1-1.5 1.5H7A1.5 1.5 0 0 1 5.5 12V7A1.5 1.5 0 0 1 7 5.5zM10.5 5.5v-2a1 1 0 0 0-1-1h-6a1 1 0 0 0-1 1v6a1 1 0 0 0 1 1h2",
  grow: "M9.5 2.5h4v4M6.5 13.5h-4v-4M13.2 2.8 9 7M2.8 13.2 7 9",
  rows: "M2.5 3.5h11v9h-11zM2.5 6.500h11M2.5 9.500h11M6.500 3.5v9",
  plus: "M8 3v10M3 8h10",
  more: "M3 8h.01M8 8h.01M13 8h.01",
  chevron: "M4.5 6.5 8 10l3.5-3.5",
};

/** A 12 px state glyph. @param {string} name */
export function glyph(name) {
  const [d, how] = GLYPHS[name] ?? GLYPHS.dot;
  const path = h("path", { d, class: how === "f" ? "f" : null, "stroke-dasharray": how === "dash" ? "2.2 2" : null });
  return h("svg", { class: "g", viewBox: "0 0 12 12", "aria-hidden": "true" }, path);
}

/** A 16 px icon. @param {string} name */
export const icon = (name) =>
  h("svg", { class: "i", viewBox: "0 0 16 16", "aria-hidden": "true" }, h("path", { d: ICONS[name] }));

/** Half-filled disc of the theme switch. */
export const themeIcon = () =>
  h(
    "svg",
    { class: "i", viewBox: "0 0 16 16", "aria-hidden": "true" },
    h("circle", { cx: 8, cy: 8, r: 5.5 }),
    h("path", { d: "M8 2.5a5.5 5.5 0 0 1 0 11z", class: "f" }),
  );

/** The mark of the product. */
export const brand = () =>
  h(
    "svg",
    { viewBox: "0 0 22 22", class: "logo", "aria-hidden": "true" },
    h("path", { class: "ln", d: "M2 6c3 0 3.4 7 6 7s2.6-3 5.2-3" }),
    h("path", { class: "bx", d: "M16.5 2.5v17M16.5 2.5h3M16.5 19.5h3" }),
  );

/**
 * A chart's life on the page: when it draws, that it holds still under a drag, its size, and the crosshair over it.
 */
import { h } from "../widgets/dom.js";
import { erase, listen, render } from "./chart.js";
import { MARGIN } from "./labels.js";

/** @typedef {import("./model.js").Model} Model */

const STILL = 4; // pixels a hand moves while it clicks

/**
 * A chart inside `host`.
 * @param {HTMLElement} host
 * @param {{ zoom?: (from: number, to: number) => void, reset?: () => void, cross?: (step: number | null) => void, pick?: (step: number) => void }} on
 * `pick`: the reader has clicked on a step without dragging
 */
export function createChart(host, on = {}) {
  const plot = h("div", { class: "plot-area" }),
    cross = h("i", { class: "cross", hidden: true }),
    flag = h("span", { class: "cross-flag", hidden: true });
  host.append(plot, cross, flag);
  /** @type {((size: { width: number, height: number }) => Model) | null} */
  let build = null;
  /** @type {[number, number]} */
  let shown = [0, 1];
  let busy = false,
    again = false,
    held = false,
    gone = false,
    wired = false;

  const stepAt = (/** @type {PointerEvent} */ event) => {
    const box = host.getBoundingClientRect(),
      span = box.width - MARGIN.left - MARGIN.right;
    const share = (event.clientX - box.left - MARGIN.left) / span;
    return share < 0 || share > 1 ? null : Math.round(shown[0] + share * (shown[1] - shown[0]));
  };
  const paint = async () => {
    if (!build || gone) return;
    if (busy || held) {
      again = true;
      return;
    }
    busy = true;
    again = false;
    try {
      await show(build);
    } catch (error) {
      console.error(error); // the next draw tries again; the rest of the page does not depend on it
    } finally {
      busy = false;
    }
    if (again) void paint();
  };
  /** @param {(size: { width: number, height: number }) => Model} how */
  const show = async (how) => {
    const size = { width: host.clientWidth, height: host.clientHeight };
    if (size.width === 0 || size.height === 0) return;
    const model = how(size);
    shown = model.x;
    host.setAttribute("aria-label", model.alt);
    await render(plot, model, size);
    if (gone) erase(plot);
    else if (!wired)
      listen(
        plot,
        (from, to) => on.zoom?.(from, to),
        () => on.reset?.(),
      );
    wired = true;
  };
  // A redraw in the middle of a drag would tear the reader's selection away.
  const hold = () => {
    held = true;
  };
  const release = () => {
    held = false;
    if (again) void paint();
  };
  host.addEventListener("pointermove", (event) => on.cross?.(stepAt(event)));
  host.addEventListener("pointerleave", () => on.cross?.(null));
  let pressedAt = NaN;
  host.addEventListener("pointerdown", (event) => {
    pressedAt = event.clientX;
    hold();
  });
  host.addEventListener("pointerup", (event) => {
    const step = stepAt(event);
    if (step !== null && Math.abs(event.clientX - pressedAt) < STILL) on.pick?.(step);
  });
  window.addEventListener("pointerup", release);
  const watcher = new ResizeObserver(() => {
    void paint();
  });
  watcher.observe(host);

  return {
    /** @param {(size: { width: number, height: number }) => Model} how */
    draw(how) {
      build = how;
      return paint();
    },
    /** The crosshair; null takes it away. @param {number | null} step */
    cross(step) {
      const off = step === null || step < shown[0] || step > shown[1];
      cross.hidden = off;
      flag.hidden = off;
      if (off) return;
      const at = MARGIN.left + ((step - shown[0]) / (shown[1] - shown[0])) * (host.clientWidth - MARGIN.left - MARGIN.right);
      cross.style.transform = `translateX(${at}px)`;
      flag.style.transform = `translateX(calc(${at}px - 50%))`;
      flag.textContent = String(step);
    },
    destroy() {
      gone = true;
      watcher.disconnect();
      window.removeEventListener("pointerup", release);
      erase(plot);
      host.replaceChildren();
    },
  };
}

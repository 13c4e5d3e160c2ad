/**
 * The whole run on one line: loss as a faint hill, how far it is, alerts, superseded stretches, checkpoints, where a rollback
 * would go, and the frame of what the charts show, which can be dragged and pulled at its edges.
 */
import { linearTicks, robustRange, median } from "../series.js";
import { lengthOf } from "./labels.js";
import { h } from "../widgets/dom.js";

const HEIGHT = 62,
  BASE = 34,
  LEFT = 2,
  RIGHT = 4;

/**
 * @typedef {{ total: number, step: number, look: [number, number], marks: import("../timeline.js").Timeline, hill: { steps: ArrayLike<number>, values: ArrayLike<number> }[],
 *   target: number | null, note: string, alt: string }} Life
 */

/** @param {HTMLElement} host @param {{ look: (from: number, to: number) => void }} on */
export function createLifeline(host, on) {
  /** @type {Life | null} */
  let life = null;
  /** @type {{ x: number, look: [number, number], grip: "move" | "from" | "to" } | null} */
  let drag = null;
  const scale = () => (host.clientWidth - LEFT - RIGHT) / Math.max(1, life?.total ?? 1);
  /** Keeps the frame on the run. @param {number} from @param {number} to */
  const look = (from, to) => {
    const end = life?.total ?? to,
      width = Math.min(to - from, end),
      start = Math.max(0, Math.min(from, end - width));
    on.look(start, start + width);
  };
  const draw = () => {
    if (life && host.clientWidth) host.replaceChildren(picture(life, host.clientWidth));
  };
  host.addEventListener("pointerdown", (event) => {
    if (!life) return;
    const x = event.clientX - host.getBoundingClientRect().left,
      [a, z] = life.look.map((s) => LEFT + s * scale());
    if (x < a - 6 || x > z + 6) {
      const half = (life.look[1] - life.look[0]) / 2,
        at = (x - LEFT) / scale();
      look(at - half, at + half);
      return;
    }
    drag = { x, look: life.look, grip: x < a + 6 ? "from" : x > z - 6 ? "to" : "move" };
    host.setPointerCapture(event.pointerId);
  });
  host.addEventListener("pointermove", (event) => {
    if (!drag || !life) return;
    const by = (event.clientX - host.getBoundingClientRect().left - drag.x) / scale(),
      [from, to] = drag.look;
    if (drag.grip === "move") look(from + by, to + by);
    else if (drag.grip === "from") on.look(Math.max(0, Math.min(from + by, to - 5)), to);
    else on.look(from, Math.min(life.total, Math.max(to + by, from + 5)));
  });
  host.addEventListener("pointerup", () => {
    drag = null;
  });
  const watcher = new ResizeObserver(draw);
  watcher.observe(host);
  return {
    /** @param {Life} next */
    show(next) {
      life = next;
      draw();
    },
    destroy: () => watcher.disconnect(),
  };
}

/** @param {Life} life @param {number} width */
function picture(life, width) {
  const px = (/** @type {number} */ s) => LEFT + (Math.min(s, life.total) / life.total) * (width - LEFT - RIGHT);
  const text = (/** @type {number} */ x, /** @type {number} */ y, /** @type {any} */ words, anchor = "start", kind = "") =>
    h("text", { x, y, class: kind, "text-anchor": anchor }, String(words));
  const [a, z] = life.look.map((s) => px(Math.max(0, s)));
  return h(
    "svg",
    { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT, role: "img", "aria-label": life.alt },
    hill(life, px),
    h("rect", { class: "look", x: a, y: 3, width: Math.max(4, z - a), height: BASE - 3 }),
    h("line", { class: "rail", x1: px(0), x2: px(life.total), y1: BASE, y2: BASE }),
    h("line", { class: "rail done", x1: px(0), x2: px(life.step), y1: BASE, y2: BASE }),
    life.marks.bands.map((b) =>
      h("rect", {
        class: `band-${b.kind}`,
        x: px(b.from),
        y: b.kind === "mute" ? BASE - 6 : 3,
        width: Math.max(4, px(b.to ?? life.step) - px(b.from)),
        height: b.kind === "mute" ? 5 : BASE - 2,
      }),
    ),
    life.marks.superseded.map(([from, to]) =>
      h("path", { class: "old-stretch", d: `M${px(from)} ${BASE + 4}H${Math.max(px(to), px(from) + 4)}` }),
    ),
    life.marks.lines.map((l) =>
      h("line", { class: `life-${l.superseded ? "restart" : l.cause}`, x1: px(l.step), x2: px(l.step), y1: 3, y2: BASE }),
    ),
    life.marks.checkpoints.map((c) => verdictMark(px(c.step), BASE + 10, c.state, c.superseded)),
    arc(life, px),
    linearTicks(0, life.total, width < 500 ? 5 : 10)
      .filter((v) => px(v) < width - 8)
      .map((v) => text(px(v), HEIGHT - 3, v, v ? "middle" : "start")),
    px(life.total) - px(life.step) > 150 && text(px(life.total), 28, life.total, "end"),
    note(life, px, width, text),
  );
}

/** The present step, on a chip of its own: it stands on the bands. @param {Life} life @param {(s: number) => number} px @param {number} width @param {Function} text */
function note(life, px, width, text) {
  const left = px(life.step) > width - 110;
  const x = px(life.step) + (left ? -8 : 8),
    wide = lengthOf(life.note);
  return [
    h("rect", { class: "chip", x: left ? x - wide + 4 : x - 4, y: 2, width: wide, height: 17, rx: 3 }),
    text(x, 14, life.note, left ? "end" : "start", "lab"),
  ];
}

/** @param {Life} life @param {(s: number) => number} px */
function hill({ hill: traces }, px) {
  const all = traces.flatMap((t) => Array.from(t.values)),
    range = robustRange(all);
  if (range === null) return null;
  const floor = Math.min(range[0], median(all) ?? range[0]),
    reach = range[1] - floor || 1;
  return traces
    .filter((t) => t.steps.length > 1)
    .map(({ steps, values }) => {
      const points = Array.from(steps)
        .map((s, i) => [px(s), values[i]])
        .filter(([, v]) => Number.isFinite(v))
        .map(([x, v]) => `${x.toFixed(1)} ${(BASE - 4 - Math.max(0, Math.min(1, (v - floor) / reach)) * 22).toFixed(1)}`);
      return points.length
        ? h("path", { class: "hill", d: `M${px(steps[0])} ${BASE}L${points.join("L")}L${px(steps[steps.length - 1])} ${BASE}z` })
        : null;
    });
}

/** From now to the target of a rollback. @param {Life} life @param {(s: number) => number} px */
function arc({ step, target }, px) {
  if (target === null) return null;
  const a = px(step),
    z = px(target);
  return [
    h("path", { class: "arc", d: `M${a} 6C${a} -3 ${z} -3 ${z} ${BASE - 7}` }),
    h("path", { class: "arc-tip", d: `M${z - 3.5} ${BASE - 9}l3.5 6l3.5 -6z` }),
  ];
}

/** @param {number} x @param {number} y @param {string} state @param {boolean} old */
function verdictMark(x, y, state, old) {
  const r = 2.8,
    kind = `v-${state}${old ? " v-old" : ""}`;
  if (state === "unsound")
    return h("path", { class: kind, d: `M${x} ${y - r - 1}l${r + 1} ${r + 1}l${-r - 1} ${r + 1}l${-r - 1} ${-r - 1}z` });
  if (state === "corrupt")
    return h("path", { class: kind, d: `M${x - r} ${y - r}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}` });
  return h("circle", { class: kind, cx: x, cy: y, r });
}

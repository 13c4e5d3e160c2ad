/** The ledger of samples: what went into a step, and into which steps a sample or a document went. Quiet until it is asked. */
import { api } from "../api.js";
import { problemOf } from "../loader.js";
import { counted, ranges } from "../samples.js";
import { t } from "../i18n/index.js";
import { delegate, h, patch } from "./dom.js";
import { problemLine, section } from "./parts.js";

const MOST_STEPS = 40; // listed; the rest is a count

/**
 * @param {HTMLElement} host
 * @param {string} runId
 */
export function createLedger(host, runId) {
  let step = "",
    what = "",
    asked = 0;
  /** @type {any} */ let found = null;
  /** @type {any} */ let problem = null;
  const draw = () => patch(host, [section("ledger", t("ledger"), about(), fields(), result())]);
  const about = () => h("span", { class: "quiet" }, t("ledger.about"));
  const fields = () =>
    h(
      "div",
      { class: "bar", "data-key": "fields" },
      form("show", "ledger-step", t("ledger.step"), step, t("ledger.show"), { inputmode: "numeric", class: "input short" }),
      form("find", "ledger-what", t("ledger.find"), what, t("ledger.search"), { class: "input sought" }),
    );
  const result = () =>
    problemLine(problem) || (found && h("div", { class: "card pad found", "data-key": "found" }, picture(found)));
  /** @param {() => Promise<any>} read */
  const ask = async (read) => {
    const mine = (asked += 1);
    try {
      const answer = await read();
      if (mine !== asked) return;
      [found, problem] = [answer, null];
    } catch (error) {
      if (mine !== asked) return;
      [found, problem] = [null, problemOf(error)];
    }
    draw();
  };
  const show = () => {
    if (/^\d{1,12}$/.test(step.trim()))
      return ask(async () => ({ step: Number(step), ...(await api.samples(runId, { step: step.trim() })) }));
    found = null;
    problem = { detail: t("ledger.whole"), fix: "" };
    return draw();
  };
  const find = () => {
    const text = what.trim();
    return (
      text &&
      ask(async () => ({
        what: text,
        ...(await api.samples(runId, /^\d{1,15}$/.test(text) ? { sample: text } : { document: text })),
      }))
    );
  };
  const field = (/** @type {string} */ id) => /** @type {HTMLInputElement} */ (host.querySelector(`#${id}`));
  const pick = (/** @type {number} */ at) => {
    step = String(at);
    draw();
    field("ledger-step").value = step; // a hand may have typed there
  };
  const typed = (/** @type {Event} */ event) => {
    const { id, value } = /** @type {HTMLInputElement} */ (event.target);
    if (id === "ledger-step") step = value;
    else what = value;
  };
  const submitted = (/** @type {Event} */ event) => {
    const asks = /** @type {HTMLElement} */ (event.target).dataset.form;
    event.preventDefault();
    if (asks === "show") void show();
    else void find();
  };
  host.addEventListener("input", typed);
  host.addEventListener("submit", submitted);
  const quiet = delegate(host, {
    step: (target) => {
      pick(Number(target.dataset.id));
      void show();
    },
  });
  return {
    draw,
    /** The reader points at a step of a chart: it stands in the field, and is asked for at once where an answer shows. @param {number} at */
    pick: (at) => {
      pick(at);
      if (found && "step" in found) void show();
    },
    destroy() {
      asked += 1;
      quiet();
      host.removeEventListener("input", typed);
      host.removeEventListener("submit", submitted);
    },
  };
}

/** @param {string} act @param {string} id @param {string} label @param {string} value @param {string} send @param {Record<string, any>} props */
const form = (act, id, label, value, send, props) =>
  h(
    "form",
    { class: "bar", "data-key": act, "data-form": act },
    h("label", { for: id }, label),
    h("input", { id, name: id, value, autocomplete: "off", ...props }),
    h("button", { class: "btn", type: "submit" }, send),
  );

/** @param {any} found */
function picture(found) {
  if ("step" in found) return found.ranks.length ? found.ranks.map(rank) : t("ledger.none", { step: found.step });
  const count = found.steps.length;
  if (count === 0) return t("ledger.not_found", { what: found.what });
  return [
    h("p", {}, t(count === 1 ? "ledger.found.one" : "ledger.found", { what: found.what, count })),
    h(
      "p",
      { class: "places" },
      found.steps
        .slice(0, MOST_STEPS)
        .map((/** @type {any} */ at) => place(at, Math.max(...found.steps.map((/** @type {any} */ s) => s.segment)))),
      count > MOST_STEPS && h("span", { class: "quiet" }, t("ledger.more", { count: count - MOST_STEPS })),
      found.truncated && h("span", { class: "quiet" }, t("ledger.truncated")),
    ),
  ];
}

/** A step it went into; of an earlier segment it says so, and where a rollback left it behind. @param {any} at @param {number} newest segment */
const place = (at, newest) =>
  h(
    "button",
    { class: "btn small", "data-act": "step", "data-id": at.step, "data-key": `${at.segment}/${at.step}/${at.rank}` },
    at.segment === newest ? at.step : t("ledger.of", { step: at.step, segment: at.segment }),
    at.superseded && h("span", { class: "quiet" }, t("ledger.superseded")),
  );

/** What one rank took. @param {any} r */
function rank(r) {
  const { text, more } = ranges(r.samples),
    documents = r.documents ?? [];
  return h(
    "dl",
    { class: "rank-samples", "data-key": `${r.segment}/${r.rank}` },
    h("dt", {}, `${t("chart.rank", { rank: r.rank })} \u00b7 ${t("ledger.samples")}`),
    h(
      "dd",
      { class: "mono wrap" },
      text || "\u2013",
      more > 0 && h("span", { class: "quiet" }, ` ${t("ledger.more", { count: more })}`),
    ),
    documents.length > 0 && h("dt", {}, t("ledger.documents")),
    documents.length > 0 &&
      h(
        "dd",
        { class: "mono wrap" },
        counted(documents)
          .map(({ document, samples }) => (samples === 1 ? document : `${document} \u00d7${samples}`))
          .join(", "),
      ),
  );
}

/** Every command of a run: what, who, when, why, how far it came and how it ended. */
import { commandSteps, stageKey } from "../commands.js";
import { norm, number } from "../format.js";
import { withoutWhat } from "../rollbacks.js";
import { clause, t } from "../i18n/index.js";
import { h } from "./dom.js";
import { by, commandName, when } from "./parts.js";

const TONES = /** @type {Record<string, string>} */ ({
  succeeded: "good",
  failed: "crit",
  rejected: "crit",
  unconfirmed: "warn",
  queued: "busy",
  delivered: "busy",
  running: "busy",
});

/** @param {any} run RunDetail */
export function commandList(run) {
  /** @type {any[]} */ const commands = run.commands;
  if (commands.length === 0) return h("div", { class: "card pad quiet" }, t("commands.none"));
  return h(
    "div",
    { class: "card" },
    commands.map((c) =>
      h(
        "div",
        { class: "command", "data-key": c.command_id, "data-kind": c.kind },
        h(
          "div",
          {},
          h("b", { class: "strong" }, commandName(c)),
          " ",
          h("span", { class: `badge ${TONES[c.state] ?? "mute"}` }, t(`command.state.${c.state}`)),
          h("p", { class: "soft" }, about(c, run)),
          c.outcome && h("p", { class: ["failed", "rejected"].includes(c.state) ? "crit" : "quiet" }, clause(c.outcome)),
        ),
        progress(c),
      ),
    ),
  );
}

/** Its way as a row of dots, each with its time. @param {any} c @param {string} [kind] */
export const progress = (c, kind = "") =>
  h(
    "ol",
    { class: `steps ${kind}`.trim(), "aria-label": t("commands.progress") },
    commandSteps(c).map((s) =>
      h(
        "li",
        { class: s.mark || null, "data-state": s.state, "aria-current": s.mark === "now" ? "step" : null },
        t(stageKey(c.kind, s.state)),
        kind === "" && h("small", {}, s.at ? when(s.at, { seconds: true }) : ""),
      ),
    ),
  );

/** Who, when, why and how. @param {any} c @param {any} run RunDetail */
function about(c, run) {
  return [
    by(c, run),
    " ",
    when(c.issued_at, { seconds: true }),
    c.reason && `${t("order.and")}\u201c${c.reason}\u201d`,
    c.rollback && `${t("order.stop")}${how(c.rollback)}`,
  ];
}

/** What a rollback changes. @param {any} rollback */
function how(rollback) {
  const given = (/** @type {any} */ v) => v !== null && v !== undefined;
  const data =
    rollback.data === "exclude"
      ? withoutWhat((rollback.exclude_documents ?? []).length, (rollback.exclude_samples ?? []).length)
      : { key: `order.data.${rollback.data}`, values: {} };
  const said = [
    t(data.key, data.values),
    given(rollback.max_grad_norm) && t("order.clip", { clip: norm(rollback.max_grad_norm) }),
    given(rollback.learning_rate_factor) && t("order.factor", { factor: number(rollback.learning_rate_factor) }),
  ]
    .filter(Boolean)
    .join(t("order.and"));
  return said.charAt(0).toUpperCase() + said.slice(1);
}

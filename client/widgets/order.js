/**
 * An order and its dialog: what every question that ends in a command has in common. It goes out under one idempotency key per
 * decision, so a doubled click or a retry after a lost answer is one order. What the run did meanwhile stands as a line in the
 * dialog; the choice stays as it was. Where the run has moved on to another segment nothing is sent until the reader has decided
 * anew: the server refuses a stale one with 412, and so does the button once the page knows.
 */
import { ApiError, api } from "../api.js";
import { problemOf } from "../loader.js";
import { countdown as digits } from "../format.js";
import { t } from "../i18n/index.js";
import { state } from "../store.js";
import { idempotencyKey, openDialog } from "./dialog.js";
import { delegate, h } from "./dom.js";
import { icon } from "./icons.js";
import { commandName, problemLine, when } from "./parts.js";

/**
 * @typedef {import("./dom.js").Child} Child
 * @typedef {{ run: () => any, left: () => number, sent: (command?: any) => void, load: (name: string, from: number, to: number) => Promise<import("../series.js").Decoded> }} Context
 * @typedef {{ redraw: () => void, close: () => void }} Opened
 * @typedef {{ label: string, narrow?: boolean, stop?: boolean, top: (run: any) => { title: string, intro: Child }, content: (run: any) => Child[],
 *   sum?: (run: any) => Child, send: (run: any) => string, close?: string, lacking?: (run: any) => string | null, body: (run: any) => any,
 *   input?: (field: HTMLInputElement) => void, anew?: (run: any) => void, acts?: Record<string, (target: HTMLElement) => void>, closed?: () => void }} Wish
 * `lacking`: why it cannot be sent yet, a dictionary key; `anew`: the run has moved on and the reader starts over
 */

/**
 * @param {Context} context
 * @param {Wish} wish
 * @returns {Opened & { body: HTMLElement }}
 */
export function openOrder(context, wish) {
  let key = idempotencyKey(),
    seen = asSeen(context.run()),
    tries = 0,
    sending = false,
    problem = /** @type {any} */ (null),
    isOpen = true,
    quicker = /** @type {any} */ (null);
  const closed = () => {
    isOpen = false;
    wish.closed?.();
  };
  const dialog = openDialog({ narrow: wish.narrow, label: wish.label, closed });
  const redraw = () => {
    if (isOpen) dialog.draw(picture(context, wish, { seen, sending, problem, quicker }));
  };
  const send = async () => {
    if (sending) return;
    sending = true;
    problem = null;
    tries += 1;
    redraw();
    try {
      const { command, created } = await api.command(context.run().run_id, { ...wish.body(context.run()), ...seen }, key);
      const isOurs = created || (tries > 1 && command.issued_by === state.me?.name);
      if (isOurs) dialog.close();
      else quicker = command;
      context.sent(command);
    } catch (error) {
      problem = problemOf(error);
      // Refused for good: what is sent next is another decision. A lost answer keeps its key, and so its order.
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) key = idempotencyKey();
      context.sent();
    }
    sending = false;
    redraw();
  };
  delegate(dialog.body, {
    close: () => dialog.close(),
    send,
    anew: () => {
      seen = asSeen(context.run());
      key = idempotencyKey();
      problem = null;
      wish.anew?.(context.run());
      redraw();
      // What a hand has chosen is the field's own; here it follows what is proposed now.
      for (const field of dialog.body.querySelectorAll("input"))
        if (field.type === "radio" || field.type === "checkbox") field.checked = field.hasAttribute("checked");
    },
    "cancel-auto": () =>
      cancelAuto(context, (p) => {
        problem = p;
        redraw();
      }),
    ...wish.acts,
  });
  dialog.body.addEventListener("input", (event) => {
    wish.input?.(/** @type {HTMLInputElement} */ (event.target));
    redraw();
  });
  redraw();
  return { redraw, close: dialog.close, body: dialog.body };
}

/** The run as its reader saw it, which the server compares with how it is. @param {any} run */
const asSeen = (run) => ({
  seen_segment: run.segment,
  ...(run.incarnation ? { seen_incarnation: run.incarnation } : {}),
  ...(run.step === null ? {} : { seen_step: run.step }),
});

/** Whether it has rolled back or started again since. @param {ReturnType<typeof asSeen>} seen @param {any} run */
const hasMoved = (seen, run) =>
  run.segment !== seen.seen_segment || (seen.seen_incarnation !== undefined && run.incarnation !== seen.seen_incarnation);

/**
 * @param {Context} context @param {Wish} wish
 * @param {{ seen: ReturnType<typeof asSeen>, sending: boolean, problem: any, quicker: any }} now
 */
function picture(context, wish, { seen, sending, problem, quicker }) {
  const run = context.run(),
    known = hasMoved(seen, run),
    told = problem?.status === 412 ? problem.now : null,
    moved = known || told !== null,
    lacks = wish.lacking?.(run) ?? null,
    { title, intro } = wish.top(run);
  return [
    h("div", { class: "top" }, h("div", {}, h("h2", {}, title), h("p", {}, intro)), wish.narrow ? null : closeButton()),
    h(
      "div",
      { class: "body stack" },
      quicker ? quickerLine(quicker) : moved ? movedLine(told ?? run, known) : problemLine(problem),
      countdownLine(run, context.left()),
      run.command && run.command.command_id !== quicker?.command_id && otherLine(run.command),
      wish.content(run),
    ),
    h(
      "footer",
      { "data-key": "foot" },
      h("p", { class: "sum", role: "status" }, lacks ? h("span", { class: "soft" }, t(lacks)) : (wish.sum?.(run) ?? null)),
      h(
        "div",
        { class: "acts" },
        h("button", { class: "btn big", "data-act": "close" }, t(wish.close ?? "act.close")),
        !quicker &&
          h(
            "button",
            {
              class: wish.stop ? "btn big stop primary" : "btn big primary",
              "data-act": "send",
              "aria-disabled": String(sending || moved || lacks !== null),
            },
            wish.send(run),
          ),
      ),
    ),
  ];
}

export const closeButton = () =>
  h("button", { class: "btn bare icon", "data-act": "close", "aria-label": t("act.close") }, icon("close"));

/** The run has moved on since this was opened. @param {any} now @param {boolean} known whether the page shows it as it is by now */
const movedLine = (now, known) =>
  h(
    "div",
    { class: "notice", "data-key": "moved", role: "alert" },
    h("span", {}, t("dialog.moved", { segment: now.segment, step: now.step ?? 0 })),
    h("span", { class: "gap" }),
    h("button", { class: "btn small", "data-act": "anew", "aria-disabled": known ? null : "true" }, t("dialog.anew")),
  );

/** Somebody gave the same order first, so this one did nothing. @param {any} command */
export const quickerLine = (command) =>
  h(
    "div",
    { class: "notice auto", "data-key": "quicker", role: "alert" },
    h(
      "span",
      {},
      t("dialog.quicker", { who: command.issued_by, what: commandName(command) }),
      " ",
      when(command.issued_at, { relative: true }),
      t("order.stop"),
      t("dialog.nothing"),
    ),
  );

/** Another command is under way. @param {any} command */
const otherLine = (command) =>
  h("div", { class: "notice", "data-key": "other" }, t("dialog.other", { who: command.issued_by, what: commandName(command) }));

/** The line that an open dialog shows while an automatic action counts down. @param {any} run @param {number} left */
function countdownLine(run, left) {
  if (!run.countdown || run.countdown.dry_run) return null;
  const [before, after] = t(`dialog.countdown.${run.countdown.kind}`, {
    step: run.countdown.target_step ?? "",
    clock: "{clock}",
  }).split("{clock}");
  return h(
    "div",
    { class: "notice auto", "data-key": "auto" },
    h("span", {}, before, h("b", { class: "strong" }, digits(left)), after),
    h("span", { class: "gap" }),
    h("button", { class: "btn small", "data-act": "cancel-auto" }, t("dialog.cancel_it")),
  );
}

/** @param {Context} context @param {(problem: any) => void} fail */
async function cancelAuto(context, fail) {
  try {
    await api.cancelCountdown(context.run().run_id);
    context.sent();
  } catch (error) {
    fail(problemOf(error));
  }
}

/** The field for the reason, the same in every order. @param {string} value */
export const reasonField = (value) => [
  h("label", { for: "reason" }, t("reason"), t("order.gap"), h("span", { class: "quiet" }, t("optional"))),
  h("input", {
    class: "input",
    id: "reason",
    name: "reason",
    maxlength: 300,
    value,
    placeholder: t("reason.hint"),
  }),
];

/**
 * An order that asks nothing: saved, paused or resumed at one click.
 * @param {Context} context
 * @param {import("../commands.js").Kind} kind
 * @returns {Promise<any>} the command of whoever was quicker; null when it is ours
 */
export async function giveNow(context, kind) {
  const run = context.run();
  const { command, created } = await api.command(run.run_id, { kind, ...asSeen(run) }, idempotencyKey());
  context.sent(command);
  return created ? null : command;
}

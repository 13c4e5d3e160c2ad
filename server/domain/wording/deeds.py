"""What was done about an alert: nothing, a countdown, a command and what became of it, a rewind, a stop by the guard.

Of an alert for which nothing was done by itself it says what is being done, or was done, to the run because of another one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from server.domain.alerts import Alert, CloseReason
from server.domain.commands import ACTIVE, IssuedCommand
from server.domain.countdowns import Countdown, CountdownState
from server.domain.holds import Hold
from server.domain.rules import ActionKind
from trainer_agent.wire.vocabulary import CommandKind, CommandState

from .words import Both, filled

MOST_REASON: Final = 200
"""Characters of a person's reason that a message repeats."""


class DeedKind(StrEnum):
    """How far it came."""

    NOTHING = "nothing"
    HELD = "held"
    """Its rule would act, and a person holds what is automatic."""
    COUNTING = "counting"
    WOULD = "would"
    """A dry run: what would have been done."""
    CANCELLED = "cancelled"
    WITHDRAWN = "withdrawn"
    OVERTAKEN = "overtaken"
    REFUSED = "refused"
    ORDERED = "ordered"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNCONFIRMED = "unconfirmed"
    UNDONE = "undone"
    """The command ended before it was begun."""
    REWOUND = "rewound"
    GUARD = "guard"


@dataclass(frozen=True, slots=True)
class Deed:
    """What was done. `step` is where a rollback goes; `seconds` are left of a countdown."""

    kind: DeedKind
    is_rollback: bool = False
    step: int | None = None
    seconds: float = 0.0
    by: str = ""
    cause: str = ""
    """The title of the other alert that it was done for; empty where it was for the alert itself."""
    dry_run: bool = False
    hold: Hold | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """All that was done to a run, whatever for."""

    countdowns: tuple[Countdown, ...] = ()
    commands: tuple[IssuedCommand, ...] = ()
    from_steps: Mapping[int, int] | None = None
    """The step from which each segment started."""
    stopped_by_guard: bool = False
    causes: Mapping[str, Alert] | None = None
    """By id, the alerts that the countdowns were for."""


_K, _C = DeedKind, CommandState
_OF_COMMAND: Final = {
    _C.QUEUED: _K.ORDERED,
    _C.DELIVERED: _K.ORDERED,
    _C.RUNNING: _K.RUNNING,
    _C.SUCCEEDED: _K.SUCCEEDED,
    _C.FAILED: _K.FAILED,
    _C.UNCONFIRMED: _K.UNCONFIRMED,
    _C.REJECTED: _K.UNDONE,
    _C.CANCELLED: _K.UNDONE,
    _C.EXPIRED: _K.UNDONE,
    _C.SUPERSEDED: _K.UNDONE,
}
_OF_COUNTDOWN: Final = {
    CountdownState.COUNTING: _K.COUNTING,
    CountdownState.DUE: _K.REFUSED,  # its command would have been found first
    CountdownState.CANCELLED: _K.CANCELLED,
    CountdownState.WITHDRAWN: _K.WITHDRAWN,
    CountdownState.OVERTAKEN: _K.OVERTAKEN,
}


def deed_of(alert: Alert, done: Done, now: datetime, hold: Hold | None = None) -> Deed:
    """What was done about one alert. `hold`: what keeps its rule from acting now."""
    countdown = next((each for each in done.countdowns if each.alert_id == alert.alert_id), None)
    deed = None if countdown is None else _by_rule(countdown, done.commands, now)
    if deed is not None and deed.kind not in (DeedKind.WITHDRAWN, DeedKind.OVERTAKEN):
        return deed
    if alert.closed_because is CloseReason.REWOUND:
        return _rewound(alert, done)
    if done.stopped_by_guard and alert.closed_because is CloseReason.RUN_ENDED:
        return Deed(DeedKind.GUARD)
    held = None if hold is None else Deed(DeedKind.HELD, hold=hold)
    return _for_another(alert, done, now) or deed or held or Deed(DeedKind.NOTHING)


def _for_another(alert: Alert, done: Done, now: datetime) -> Deed | None:
    """What goes on in the run because of another alert while this one is open, or what that has come to."""
    if alert.trial:
        return None
    for countdown in done.countdowns:
        cause = (done.causes or {}).get(countdown.alert_id)
        if cause is None or cause.alert_id == alert.alert_id:
            continue
        command = _command_of(countdown, done.commands)
        if _goes_on(alert, countdown, command) or _has_ended(alert, cause, command):
            deed = _by_rule(countdown, done.commands, now)
            return replace(deed, cause=cause.title)
    return None


def _goes_on(alert: Alert, countdown: Countdown, command: IssuedCommand | None) -> bool:
    active = countdown.state is CountdownState.COUNTING if command is None else command.state in ACTIVE
    return active and alert.is_open


def _has_ended(alert: Alert, cause: Alert, command: IssuedCommand | None) -> bool:
    """Whether the command for an alert of the same incident was carried out while this one was open."""
    if command is None or command.state is not CommandState.SUCCEEDED or alert.incident_id != cause.incident_id:
        return False
    was_open = alert.onset_at <= command.updated_at and (alert.resolved_at is None or alert.resolved_at >= command.issued_at)
    return was_open and alert.incident_id is not None


def _by_rule(countdown: Countdown, commands: Iterable[IssuedCommand], now: datetime) -> Deed:
    command = _command_of(countdown, commands)
    if command is not None:
        return _of_command(command)
    kind = _OF_COUNTDOWN[countdown.state]
    if kind is DeedKind.REFUSED and countdown.action.dry_run:
        kind = DeedKind.WOULD
    left = max(0.0, (countdown.due_at - now).total_seconds())
    is_rollback = countdown.action.kind is ActionKind.ROLLBACK
    return Deed(kind, is_rollback, countdown.target_step, left, dry_run=countdown.action.dry_run)


def _command_of(countdown: Countdown, commands: Iterable[IssuedCommand]) -> IssuedCommand | None:
    key = f"countdown:{countdown.countdown_id}"
    return next((each for each in commands if each.idempotency_key == key), None)


def _of_command(command: IssuedCommand) -> Deed:
    target = None if command.rollback is None else command.rollback.target_step
    return Deed(_OF_COMMAND[command.state], command.kind is CommandKind.ROLLBACK, target, by=command.issued_by)


def _rewound(alert: Alert, done: Done) -> Deed:
    """The rollback or restart that took the steps of the alert back."""
    after = {segment: step for segment, step in (done.from_steps or {}).items() if segment > alert.segment}
    segment = min(after, default=None)
    command = next((each for each in done.commands if each.rollback and each.rollback.new_segment == segment), None)
    by = "" if command is None else command.issued_by
    return Deed(DeedKind.REWOUND, is_rollback=True, step=None if segment is None else after[segment], by=by)


_DRY: Final[Mapping[DeedKind, Both]] = {
    _K.COUNTING: (
        "{What} would follow in {seconds:time}; it is a dry run, and nothing will be sent.",
        "演练：{seconds:time}后本会{what}，不会发出指令。",
    ),
    _K.WOULD: ("Would have {done}; dry run, nothing was sent.", "演练：本会{what}，没有发出指令。"),
}
_FOR_ANOTHER: Final[Mapping[DeedKind, Both]] = {
    _K.COUNTING: ("A {order} is counting down for '{cause}'.", "因“{cause}”，{order}正在倒计时。"),
}
TEXTS: Final[Mapping[DeedKind, Both]] = {
    _K.NOTHING: ("Nothing was done automatically.", "没有自动采取任何操作。"),
    _K.HELD: ("Held by {by} until {until}: {why}.", "{by} 已暂缓自动处置，至 {until}：{why}。"),
    _K.COUNTING: ("{What} in {seconds:time}, unless somebody cancels it.", "{seconds:time}后{what}，除非有人取消。"),
    _K.WOULD: _DRY[_K.WOULD],
    _K.CANCELLED: ("The {order} was cancelled before its time.", "{order}在到时之前被取消。"),
    _K.WITHDRAWN: (
        "The {order} was called off: the reason for it was gone, or automatic actions were held.",
        "{order}已撤回：原因已消失，或自动处置已暂缓。",
    ),
    _K.OVERTAKEN: ("A person's own command took the place of the {order}.", "人工指令取代了{order}。"),
    _K.REFUSED: ("The {what} could not be ordered.", "{what}的指令未能发出。"),
    _K.ORDERED: ("A {what}[ for '{cause}'] is on its way to the trainer.", "[因“{cause}”，]{what}的指令正在送往训练进程。"),
    _K.RUNNING: ("The trainer carries out a {what}[ for '{cause}'].", "[因“{cause}”，]训练进程正在{what}。"),
    _K.SUCCEEDED: ("{Has_done}[ for '{cause}'].", "[因“{cause}”，]{has_done}。"),
    _K.FAILED: ("The {what} failed.", "{what}失败。"),
    _K.UNCONFIRMED: ("The trainer began a {what} and has not said how it ended.", "训练进程已开始{what}，但没有报告结果。"),
    _K.UNDONE: ("A {what} was ordered and not begun.", "已下达{what}的指令，但没有执行。"),
    _K.REWOUND: ("The run went back {back}.", "训练已回到{back}。"),
    _K.GUARD: ("The guard in the trainer stopped the run.", "训练进程内的守护停止了训练。"),
}

_STOP: Final[Both] = ("stop", "停止")
_ROLLBACK: Final[Both] = ("rollback[ to step {step}]", "回滚[到第 {step} 步]")
_DRY_ORDER: Final[Both] = ("dry run of a {what}", "{what}的演练")
_STOPPED: Final[Both] = ("stopped the run", "停止")
_ROLLED_BACK: Final[Both] = ("rolled back[ to step {step}]", "回滚[到第 {step} 步]")
_DRY_RUN_CAME_TO: Final[Both] = ("dry run: it would have {done}, nothing was sent", "演练：本会{what}，没有发出指令")
_WAS_STOPPED: Final[Both] = ("the run was stopped", "训练已停止")
_HAS_ROLLED_BACK: Final[Both] = ("rolled back[ to step {step}]", "已回滚[到第 {step} 步]")
_TO_STEP: Final[Both] = ("to step {step}", "第 {step} 步")
_BEHIND_IT: Final[Both] = ("behind it", "它之前")


def in_words(deed: Deed) -> Both:
    """What was done, in both languages."""
    texts = _FOR_ANOTHER.get(deed.kind) if deed.cause else _DRY.get(deed.kind) if deed.dry_run else None
    hold = {} if deed.hold is None else _of_hold(deed.hold)
    return filled(texts or TEXTS[deed.kind], cause=deed.cause or None, seconds=deed.seconds, **_of_order(deed), **hold)


def _of_order(deed: Deed) -> dict[str, Both]:
    """What is, was or would be done, as each sentence needs it. `order` names the dry run where it is one."""
    what = order_in_words(deed.step, is_rollback=deed.is_rollback)
    return {
        "what": what,
        "order": filled(_DRY_ORDER, what=what) if deed.dry_run else what,
        "done": _done(deed.step, is_rollback=deed.is_rollback),
        "has_done": filled(_HAS_ROLLED_BACK, step=deed.step) if deed.is_rollback else _WAS_STOPPED,
        "back": _BEHIND_IT if deed.step is None else filled(_TO_STEP, step=deed.step),
    }


def order_in_words(step: int | str | None, *, is_rollback: bool) -> Both:
    """A stop, or a rollback and where it goes."""
    return filled(_ROLLBACK, step=step) if is_rollback else _STOP


def dry_run_in_words(step: int | str | None, *, is_rollback: bool) -> Both:
    """What the countdown of a dry run came to: a clause, which is stored in English."""
    what = order_in_words(step, is_rollback=is_rollback)
    return filled(_DRY_RUN_CAME_TO, what=what, done=_done(step, is_rollback=is_rollback))


def _done(step: int | str | None, *, is_rollback: bool) -> Both:
    return filled(_ROLLED_BACK, step=step) if is_rollback else _STOPPED


def _of_hold(hold: Hold) -> dict[str, str]:
    """The reason is cut: a message must stay small."""
    why = hold.reason if len(hold.reason) <= MOST_REASON else f"{hold.reason[:MOST_REASON]}..."
    return {"by": hold.by, "until": f"{hold.until:%Y-%m-%d %H:%M} UTC", "why": why.rstrip(".。")}

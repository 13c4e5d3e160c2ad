"""What was done about an alert: nothing, a countdown, a command and what became of it, a rewind, a stop by the guard.

Of an alert for which nothing was done by itself it says what is being done, or was done, to the run because of another one.
"""

from collections.abc import Callable, Iterable, Mapping
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

from . import chinese, english

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
            return replace(deed, cause=cause.title, dry_run=countdown.action.dry_run)
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
    return Deed(kind, countdown.action.kind is ActionKind.ROLLBACK, countdown.target_step, left)


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


def _what(deed: Deed) -> str:
    if not deed.is_rollback:
        return "stop"
    return "rollback" if deed.step is None else f"rollback to step {deed.step}"


def _what_zh(deed: Deed) -> str:
    if not deed.is_rollback:
        return "停止"
    return "回滚" if deed.step is None else f"回滚到第 {deed.step} 步"


def _for(deed: Deed) -> str:
    return f" for '{deed.cause}'" if deed.cause else ""


def _for_zh(deed: Deed) -> str:
    return f"因“{deed.cause}”，" if deed.cause else ""


def _succeeded(deed: Deed) -> str:
    done = f"Rolled back to step {deed.step}" if deed.is_rollback else "The run was stopped"
    return f"{done}{_for(deed)}."


def _succeeded_zh(deed: Deed) -> str:
    done = f"已回滚到第 {deed.step} 步" if deed.is_rollback else "训练已停止"
    return f"{_for_zh(deed)}{done}。"


def _counting(deed: Deed) -> str:
    if deed.cause:
        return f"A {_what(deed)} is counting down for '{deed.cause}'{' (a dry run)' if deed.dry_run else ''}."
    return f"{_what(deed).capitalize()} in {english.duration(deed.seconds)}, unless somebody cancels it."


def _counting_zh(deed: Deed) -> str:
    if deed.cause:
        return f"因“{deed.cause}”，{_what_zh(deed)}正在倒计时{'（演练）' if deed.dry_run else ''}。"
    return f"{chinese.duration(deed.seconds)}后{_what_zh(deed)}，除非有人取消。"


def _rewound_text(deed: Deed) -> str:
    return "The run went back behind it." if deed.step is None else f"The run went back to step {deed.step}."


def _rewound_zh(deed: Deed) -> str:
    return "训练已回到它之前。" if deed.step is None else f"训练已回到第 {deed.step} 步。"


def _held(deed: Deed) -> str:
    until, why = _until_and_why(deed)
    return f"Held by {deed.hold.by if deed.hold else 'a person'} until {until}: {why}."


def _held_zh(deed: Deed) -> str:
    until, why = _until_and_why(deed)
    return f"{deed.hold.by if deed.hold else '有人'} 已暂缓自动处置，至 {until}：{why}。"


def _until_and_why(deed: Deed) -> tuple[str, str]:
    """The reason is cut: a message must stay small."""
    if deed.hold is None:
        return "?", "?"
    why = deed.hold.reason
    short = why if len(why) <= MOST_REASON else f"{why[:MOST_REASON]}..."
    return f"{deed.hold.until:%Y-%m-%d %H:%M} UTC", short.rstrip(".。")


ENGLISH: Final[Mapping[DeedKind, Callable[[Deed], str]]] = {
    _K.NOTHING: lambda _: "Nothing was done automatically.",
    _K.HELD: _held,
    _K.COUNTING: _counting,
    _K.WOULD: lambda d: f"Nothing was done: this was a dry run of a {_what(d)}.",
    _K.CANCELLED: lambda d: f"The {_what(d)} was cancelled before its time.",
    _K.WITHDRAWN: lambda d: f"The {_what(d)} was called off: the reason for it was gone, or automatic actions were held.",
    _K.OVERTAKEN: lambda d: f"A person's own command took the place of the {_what(d)}.",
    _K.REFUSED: lambda d: f"The {_what(d)} could not be ordered.",
    _K.ORDERED: lambda d: f"A {_what(d)}{_for(d)} is on its way to the trainer.",
    _K.RUNNING: lambda d: f"The trainer carries out a {_what(d)}{_for(d)}.",
    _K.SUCCEEDED: _succeeded,
    _K.FAILED: lambda d: f"The {_what(d)} failed.",
    _K.UNCONFIRMED: lambda d: f"The trainer began a {_what(d)} and has not said how it ended.",
    _K.UNDONE: lambda d: f"A {_what(d)} was ordered and not begun.",
    _K.REWOUND: _rewound_text,
    _K.GUARD: lambda _: "The guard in the trainer stopped the run.",
}
CHINESE: Final[Mapping[DeedKind, Callable[[Deed], str]]] = {
    _K.NOTHING: lambda _: "没有自动采取任何操作。",
    _K.HELD: _held_zh,
    _K.COUNTING: _counting_zh,
    _K.WOULD: lambda d: f"没有实际操作：这是{_what_zh(d)}的演练。",
    _K.CANCELLED: lambda d: f"{_what_zh(d)}在到时之前被取消。",
    _K.WITHDRAWN: lambda d: f"{_what_zh(d)}已撤回：原因已消失，或自动处置已暂缓。",
    _K.OVERTAKEN: lambda d: f"人工指令取代了{_what_zh(d)}。",
    _K.REFUSED: lambda d: f"{_what_zh(d)}的指令未能发出。",
    _K.ORDERED: lambda d: f"{_for_zh(d)}{_what_zh(d)}的指令正在送往训练进程。",
    _K.RUNNING: lambda d: f"{_for_zh(d)}训练进程正在{_what_zh(d)}。",
    _K.SUCCEEDED: _succeeded_zh,
    _K.FAILED: lambda d: f"{_what_zh(d)}失败。",
    _K.UNCONFIRMED: lambda d: f"训练进程已开始{_what_zh(d)}，但没有报告结果。",
    _K.UNDONE: lambda d: f"已下达{_what_zh(d)}的指令，但没有执行。",
    _K.REWOUND: _rewound_zh,
    _K.GUARD: lambda _: "训练进程内的守护停止了训练。",
}

"""Countdowns: a rule's action, announced, stoppable, and done when its time is up.

Nothing is begun while a person holds what is automatic or a backlog is on its way: `take_up` looks again when that is over.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from server.domain import countdowns as domain
from server.domain import holds, wording
from server.domain.admission import default_data, is_live
from server.domain.alerts import Alert, CloseReason
from server.domain.commands import SERVER, Hand, IssuedCommand
from server.domain.countdowns import Countdown, CountdownInput, CountdownState, Decision
from server.domain.rules import ActionKind, AlertRule
from server.domain.wording.clauses import clause
from server.domain.wording.deeds import dry_run_in_words, order_in_words
from server.domain.wording.event_words import countdown_text
from server.domain.wording.words import Both
from server.store import alerts as alerts_store
from server.store import commands as commands_store
from server.store import countdowns as store
from server.store import rules as rules_store
from server.store import runs as run_store
from server.store import segments as segments_store
from server.store import standing as standings
from server.store.standing import RunStanding
from server.store.touched import touch
from trainer_agent.wire.vocabulary import AlertState, CommandKind, DataMode

from . import checkpoints, commands, guard_rails, transitions
from .commands import RULE_PREFIX, NewCommand
from .errors import Conflict, ServiceError

_ENDING = frozenset({CommandKind.STOP, CommandKind.ROLLBACK})
"""The commands beside which a rule begins nothing. The others are soon over, and only waited for."""


def start(connection: Connection, rule: AlertRule, alert: Alert, now: datetime) -> None:
    """A rule with an action has fired: begin its countdown, unless something is on its way already or a guard rail holds.

    An alert has one countdown. It is not begun where the alert is no longer what the run is like: see `_is_current`.
    """
    standing = standings.read_standing(connection, alert.run_id)
    if rule.action.kind is ActionKind.NOTIFY or alert.trial or standing is None or not is_live(standing.state):
        return
    held = holds.in_force(standing.hold, now) is not None
    if held or not _is_current(connection, alert, standing) or not _gives_way(connection, rule, alert, now):
        return
    step_now = max(alert.firing_step or alert.onset_step, standing.step)
    decision = guard_rails.decide(connection, rule.action, alert, standing, step_now)
    if decision.breaker and not rule.action.dry_run and not guard_rails.open_breaker(connection, rule, alert, decision, now):
        return
    if decision.kind is not None:
        countdown = _made(connection, rule, alert, decision.kind, now)
        transitions.start_countdown(connection, countdown, _text(countdown, alert, decision), rule.title)


def take_up(connection: Connection, run_id: str, now: datetime) -> None:
    """Begin what could not begin when it fired: a hold is over, or a backlog is in. Only of what fires still."""
    for alert in alerts_store.open_alerts(connection, run_id):
        rule = rules_store.read_rule(connection, alert.rule_id) if alert.state is AlertState.FIRING else None
        if rule is not None and rule.enabled:
            start(connection, rule, alert, now)


def _is_current(connection: Connection, alert: Alert, standing: RunStanding) -> bool:
    """Whether the alert speaks of the newest step of its process, and of the process and the segment that the run is in."""
    if alert.segment < standing.segment:
        return False
    speaker = segments_store.get(connection, alert.run_id, alert.segment)
    if speaker is not None and speaker.incarnation != standing.incarnation:
        return False
    return not _is_behind(connection, alert)


def _is_behind(connection: Connection, alert: Alert) -> bool:
    """Whether a backlog of the process whose points the alert is of is still on its way."""
    ranks = None if alert.rank < 0 else alert.rank
    lives = run_store.newest_lives(connection, alert.run_id, ranks)
    return any(domain.is_behind(life.next_seq, life.made_seq) for life in lives)


def _gives_way(connection: Connection, rule: AlertRule, alert: Alert, now: datetime) -> bool:
    """Whether nothing else is being done to the run. What is only tried gives way to what is meant."""
    if store.read_countdown(connection, alert.run_id, _countdown_id(alert)) is not None:
        return False
    active = commands_store.active_command(connection, alert.run_id)
    if active is not None and active.kind in _ENDING:
        return False
    counting = store.active_countdown(connection, alert.run_id)
    if counting is None:
        return True
    if rule.action.dry_run or not counting.action.dry_run:
        return False
    withdraw(connection, alert.run_id, f"the rule {rule.name} acts, and this was a dry run", now)
    return True


def _countdown_id(alert: Alert) -> str:
    return guard_rails.derived_id("d", alert.run_id, alert.alert_id)


def _made(connection: Connection, rule: AlertRule, alert: Alert, kind: CommandKind, now: datetime) -> Countdown:
    target = checkpoints.propose(connection, alert.run_id).choice.target if kind is CommandKind.ROLLBACK else None
    return Countdown(
        run_id=alert.run_id,
        countdown_id=_countdown_id(alert),
        state=CountdownState.COUNTING,
        rule_id=rule.rule_id,
        rule_name=rule.name,
        alert_id=alert.alert_id,
        segment=alert.segment,
        action=replace(rule.action, kind=ActionKind(kind.value)),
        checkpoint_id=None if target is None else target.checkpoint_id,
        target_step=None if target is None else target.step,
        started_at=now,
        due_at=now + timedelta(seconds=rule.action.countdown_seconds),
    )


def _text(countdown: Countdown, alert: Alert, decision: Decision) -> Both:
    action, texts = countdown.action, wording.texts(alert)
    order = order_in_words(countdown.target_step, is_rollback=action.kind is ActionKind.ROLLBACK)
    alert_said = (texts["en"], texts["zh"])
    return countdown_text(order, action.countdown_seconds, clause(decision.because), alert_said, dry_run=action.dry_run)


def run_due(connection: Connection, now: datetime) -> int:
    """Carry out the countdowns whose time is up. How many."""
    return sum(_run(connection, countdown, now) for countdown in store.due_countdowns(connection, now))


def _run(connection: Connection, due: Countdown, now: datetime) -> bool:
    """Whether it was carried out. Not when another server process is busy with the run: it may be ending the countdown."""
    if run_store.lock(connection, due.run_id, wait=False) is None:
        return False
    countdown = store.active_countdown(connection, due.run_id)
    if countdown is None or countdown.countdown_id != due.countdown_id:
        return False
    alert = alerts_store.read_alert(connection, countdown.run_id, countdown.alert_id)
    standing = standings.read_standing(connection, countdown.run_id)
    if alert is None or standing is None or not alert.is_open:
        withdraw(connection, countdown.run_id, "the alert is over", now)
        return True
    if waits := _waits_for(connection, alert):
        if countdown.outcome != waits:
            store.say(connection, countdown, waits)
            touch(connection, countdown.run_id)
        return False
    _carry_out(connection, countdown, alert, standing, now)
    return True


def _waits_for(connection: Connection, alert: Alert) -> str:
    """Why the time has not come although it is up: nothing is done by what no longer holds at the newest step. Empty: it has."""
    if _is_behind(connection, alert):
        return "waits for a backlog of the run: what it is like now is not known"
    if alert.state is not AlertState.FIRING:
        return "waits: the condition does not hold at the newest step"
    active = commands_store.active_command(connection, alert.run_id)
    return f"waits for a {active.kind}" if active is not None and active.kind not in _ENDING else ""


def _carry_out(connection: Connection, countdown: Countdown, alert: Alert, standing: RunStanding, now: datetime) -> None:
    decision = guard_rails.decide(connection, countdown.action, alert, standing, standing.step)
    if countdown.action.dry_run:
        outcome = _would(countdown, decision)
    elif decision.kind is None:
        outcome = decision.because
    else:
        outcome = _issue(connection, countdown, decision.kind, alert.text, now)
    if decision.because and decision.because != outcome:
        outcome = f"{outcome} ({decision.because})"
    transitions.end_countdown(connection, countdown, CountdownInput.TIME_UP, outcome, now)
    if decision.breaker and not countdown.action.dry_run:
        _tell_of_breaker(connection, countdown, alert, decision, now)


def _would(countdown: Countdown, decision: Decision) -> str:
    """What a dry run comes to."""
    if decision.kind is None:
        return "dry run: nothing would have been done"
    return dry_run_in_words(countdown.target_step, is_rollback=decision.kind is CommandKind.ROLLBACK)[0]


def _tell_of_breaker(connection: Connection, countdown: Countdown, alert: Alert, decision: Decision, now: datetime) -> None:
    """A guard rail gave way between the countdown's beginning and its end: what is left has been done already."""
    rule = rules_store.read_rule(connection, countdown.rule_id)
    if rule is not None:
        at_once = replace(rule, action=replace(countdown.action, countdown_seconds=0.0))
        guard_rails.open_breaker(connection, at_once, alert, decision, now)


def _issue(connection: Connection, countdown: Countdown, kind: CommandKind, reason: str, now: datetime) -> str:
    """Give the rule's command. What came of it, in words; a refusal is an answer too."""
    by = Hand(f"{RULE_PREFIX}{countdown.rule_id}", SERVER.name)
    new = _command(countdown, kind, by, reason, _modes(connection, countdown.run_id))
    try:
        command = commands.issue(connection, new, now).command
    except ServiceError as error:
        return f"not done: {error.detail}"
    return _done(command)


def _modes(connection: Connection, run_id: str) -> Sequence[DataMode]:
    standing = standings.read_standing(connection, run_id)
    return () if standing is None else standing.data_modes


def _command(countdown: Countdown, kind: CommandKind, by: Hand, reason: str, modes: Sequence[DataMode]) -> NewCommand:
    """A rollback does with the data what the rule says, or else what the run can do."""
    new = NewCommand(
        run_id=countdown.run_id,
        kind=kind,
        idempotency_key=f"{guard_rails.KEY}{countdown.countdown_id}",
        issued_by=by.name,
        issued_from=by.place,
        seen_segment=countdown.segment,
        reason=reason,
    )
    if kind is not CommandKind.ROLLBACK:
        return new
    wanted = countdown.action.data
    data = wanted if wanted in modes else default_data(modes, has_sign=True)
    return replace(new, data=data, max_grad_norm=countdown.action.max_grad_norm)


def _done(command: IssuedCommand) -> str:
    return f"rollback to step {command.rollback.target_step} given" if command.rollback is not None else f"{command.kind} given"


def cancel(connection: Connection, run_id: str, by: Hand, now: datetime) -> Countdown:
    """The run's countdown, cancelled.

    Raises:
        Conflict: none is counting.
    """
    said = f"cancelled by {by.name}"
    return transitions.end_countdown(connection, _counting(connection, run_id), CountdownInput.CANCEL, said, now)


def run_now(connection: Connection, run_id: str, by: Hand, now: datetime) -> tuple[Countdown, IssuedCommand]:
    """The run's countdown, ended early, and the command: a person's own, so the guard rails of rules do not hold it.

    Raises:
        Conflict: none is counting, or it is a dry run.
        Refused, Stale: the command may not be made; the countdown then goes on.
    """
    countdown = _counting(connection, run_id)
    if countdown.action.dry_run:
        raise Conflict("this is a dry run: nothing is done at its end", "give the order yourself")
    kind = CommandKind(countdown.action.kind.value)
    ended = transitions.end_countdown(connection, countdown, CountdownInput.TIME_UP, f"{by.name} said now", now)
    new = _command(countdown, kind, by, f"{countdown.rule_name}, at once", _modes(connection, run_id))
    return ended, commands.issue(connection, new, now).command


def _counting(connection: Connection, run_id: str) -> Countdown:
    run_store.lock(connection, run_id)  # or its time could be up in another server process at the same moment
    countdown = store.active_countdown(connection, run_id)
    if countdown is None:
        raise Conflict("no countdown is running on this run", "look at the run as it is now")
    return countdown


def withdraw(connection: Connection, run_id: str, because: str, now: datetime, *, alert_id: str | None = None) -> None:
    """End the run's countdown, if it has one (and it is for `alert_id`, where that is given): nothing is left to do it for."""
    countdown = store.active_countdown(connection, run_id)
    if countdown is not None and alert_id in (None, countdown.alert_id):
        transitions.end_countdown(connection, countdown, CountdownInput.WITHDRAW, because, now)


def settle(connection: Connection, over: Alert, now: datetime) -> None:
    """An alert has recovered: nothing is left to do for it, and nobody needs to be called to it any more."""
    withdraw(connection, over.run_id, "the alert is over", now, alert_id=over.alert_id)
    breaker = guard_rails.open_breaker_of(connection, over)
    if breaker is not None:
        ended = replace(
            breaker,
            state=AlertState.RESOLVED,
            resolved_step=over.resolved_step,
            resolved_at=over.resolved_at,
            closed_because=over.closed_because,
        )
        transitions.resolve(connection, ended, breaker.state, now)


def dismiss(connection: Connection, closed: Alert, because: CloseReason, now: datetime, step: int) -> None:
    """An alert was cut off at `step`, which says nothing of the trouble: its countdown and its call for a person end quietly."""
    withdraw(connection, closed.run_id, "the rule was changed", now, alert_id=closed.alert_id)
    breaker = guard_rails.open_breaker_of(connection, closed)
    if breaker is not None:
        transitions.cut_off(connection, breaker, because, now, step)


def withdraw_before(connection: Connection, run_id: str, segment: int, now: datetime) -> None:
    """End a countdown that was begun in an earlier segment than `segment`."""
    countdown = store.active_countdown(connection, run_id)
    if countdown is not None and countdown.segment < segment:
        transitions.end_countdown(connection, countdown, CountdownInput.WITHDRAW, f"the run went on in segment {segment}", now)

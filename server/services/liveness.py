"""Whether a run steps, and what is told when it does not, is not heard of, or has ended.

Steps are noted as they come; whether one is missing is looked at by the worker, by a stored time. That time is never later than
any limit that may hold by then: no limit is under a rule's floor, and each counts from the step or the phase that set it.
"""

import hashlib
import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from server.domain import holds as holds_domain
from server.domain import liveness as domain
from server.domain.alerts import Alert, CloseReason
from server.domain.detectors import absence
from server.domain.detectors.absence import ABSENCES, JUDGES, Pulse
from server.domain.detectors.base import DetectorKind, Verdict
from server.domain.rules import AlertRule, settings_of
from server.domain.runs import ENDED
from server.domain.wording import describe
from server.store import alerts as alerts_store
from server.store import rules as rules_store
from server.store import runs as run_store
from server.store.runs import Run
from trainer_agent.wire.messages import Heartbeat
from trainer_agent.wire.vocabulary import AlertState

from . import holds, transitions


def reach(connection: Connection, run: Run, step: int, now: datetime, *, is_own: bool) -> Run:
    """The run after points up to `step` of its segment were stored. `is_own`: of the process that speaks for it."""
    values: dict[str, Any] = {"step": step}
    if not is_own:
        return _changed(connection, run, values)
    pace = domain.from_parsed(run.pace)
    stride = domain.stepped(pace, _stored(run), (run.segment, step), run.stepped_at, now)
    if stride.is_step:
        values |= {"stepped_at": now} | _pace_change(pace, stride.pace)
    run = _changed(connection, run, values)
    return look(connection, run, now) if stride.is_step and pace.is_stalled else run


def heard(connection: Connection, run: Run, heartbeat: Heartbeat, now: datetime) -> Run:
    """The run after a heartbeat said what it does and where it is: a step that is not stored yet is one all the same."""
    values: dict[str, Any] = {}
    if run.phase is not heartbeat.phase:
        values |= {"phase": heartbeat.phase, "phase_since": now}
    pace, seen = domain.from_parsed(run.pace), (heartbeat.segment, -1 if heartbeat.step is None else heartbeat.step)
    frontier = max(_stored(run), (pace.segment, pace.step))
    if seen > frontier:
        stride = domain.stepped(pace, frontier, seen, run.stepped_at, now)
        values |= {"stepped_at": now} | _pace_change(pace, domain.told(stride.pace, *seen))
    if not values:
        return run
    run = _changed(connection, run, values)
    return look(connection, run, now) if pace.is_stalled else run


def _stored(run: Run) -> tuple[int, int]:
    return run.segment, -1 if run.step is None else run.step


def _pace_change(before: domain.Pace, after: domain.Pace) -> dict[str, Any]:
    return {} if after == before else {"pace": domain.to_parsed(after)}


def _changed(connection: Connection, run: Run, values: dict[str, Any]) -> Run:
    run_store.update(connection, run.run_id, values)
    return replace(run, **values)


def look_due(connection: Connection, now: datetime) -> int:
    """Look at the live runs whose time for it has come. How many."""
    due = run_store.due_for_a_look(connection, now)
    for run in due:
        look(connection, run, now)
    return len(due)


def look(connection: Connection, run: Run, now: datetime) -> Run:
    """Judge a locked run by the rules of absence, end a hold that is over, and say when to look again."""
    holds.end_over(connection, run, now)
    told = {each.rule_id: each for each in alerts_store.open_alerts(connection, run.run_id) if each.detector in ABSENCES}
    rules, pace = _rules(connection, run), domain.from_parsed(run.pace)
    after = [_judge(connection, run, rule, told.get(rule.rule_id), now) for rule in rules]
    is_stalled = any(each is not None and each.detector == DetectorKind.STALLED for each in after)
    values: dict[str, Any] = {"look_at": None if run.state in ENDED else _next_look(run, rules, now)}
    return _changed(connection, run, values | _pace_change(pace, replace(pace, is_stalled=is_stalled)))


def pulse_of(run: Run) -> Pulse:
    """What the rules of absence look at."""
    since, gaps = run.phase_since or run.heard_at, domain.from_parsed(run.pace).gaps
    return Pulse(run.state, run.phase, run.heard_at, run.stepped_at, since, gaps)


def _rules(connection: Connection, run: Run) -> list[AlertRule]:
    found = rules_store.read_rules(connection, enabled_only=True)
    return [rule for rule in found if rule.detector in ABSENCES and rule.scope.covers(run.run_id, run.project)]


def _next_look(run: Run, rules: list[AlertRule], now: datetime) -> datetime:
    settings = [settings_of(rule) for rule in rules if rule.detector is DetectorKind.STALLED]
    floors = [timedelta(seconds=each["floor_seconds"]) for each in settings]
    pulse, times = pulse_of(run), [now + min([timedelta(seconds=domain.LOOK_SECONDS), *floors])]
    soon = now + timedelta(seconds=domain.SOON_SECONDS)  # it is stalled, or was silent when it would have been
    times += [max(due, soon) if due <= now else due for each in settings if (due := absence.stall_due_at(pulse, each))]
    hold = holds_domain.in_force(run.hold, now)
    return min([*times, hold.until] if hold is not None else times)


def _judge(connection: Connection, run: Run, rule: AlertRule, alert: Alert | None, now: datetime) -> Alert | None:
    """The rule's open alert after it was judged: fired, resolved, or as it was. None: none is open."""
    verdict = JUDGES[rule.detector](pulse_of(run), settings_of(rule), now)
    if alert is None:
        return _fire(connection, _begun(run, rule, verdict, now), now) if verdict.holds else None
    if verdict.holds is not False:
        return alert
    reason = CloseReason.RECOVERED
    over = replace(alert, state=AlertState.RESOLVED, resolved_step=run.step, resolved_at=now, closed_because=reason)
    transitions.resolve(connection, over, alert.state, now)
    return None


def _fire(connection: Connection, alert: Alert, now: datetime) -> Alert | None:
    """The alert, told; None where it was told before, and has been closed since."""
    if alerts_store.read_alert(connection, alert.run_id, alert.alert_id) is not None:
        return None
    transitions.fire(connection, alert, now, is_new=True)
    return alert


def _begun(run: Run, rule: AlertRule, verdict: Verdict, now: datetime) -> Alert:
    step, since = run.step or 0, now - timedelta(seconds=verdict.value) if rule.detector is not DetectorKind.ENDED else now
    return Alert(
        run_id=run.run_id,
        alert_id=_episode_id(run, rule, since),
        rule_id=rule.rule_id,
        rule_version=rule.version,
        rule_name=rule.name,
        title=rule.title,
        severity=rule.severity,
        series=rule.series,
        rank=0,
        segment=run.segment,
        state=AlertState.FIRING,
        onset_step=step,
        onset_at=since,
        firing_step=step,
        firing_at=now,
        value=verdict.value,
        limit=verdict.limit,
        evidence=dict(verdict.evidence),
        text=describe(rule, verdict, step),
        detector=rule.detector.value,
        trial=rule.trial,
    )


def _episode_id(run: Run, rule: AlertRule, since: datetime) -> str:
    """Made of what it is about, so that the same silence is told once."""
    key = [run.run_id, rule.rule_id, rule.version, run.segment, run.step, since.isoformat()]
    return f"a_{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]}"

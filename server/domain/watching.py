"""A rule at its post: the state of its detector and of its alert on one series of one rank, and what a point does to both.

Points come in `seq` order, so where a rule stands is a function of the points so far and of the rule's version: however the
stream was cut, doubled or delayed, it stands in the same place.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from trainer_agent.wire.codec import from_json, to_json
from trainer_agent.wire.vocabulary import SegmentCause

from . import alerts
from .alerts import FIRED, Alert, AlertOutcome, AlertStatus
from .detectors import DETECTORS, State
from .detectors.base import Verdict
from .points import Point, agent_time
from .rules import AlertRule, settings_of

REPLAYED_POINTS: Final = 20_000
"""How many points of a series a rule looks at again after a rewind. Longer ago than that lies no window of any detector; what a
detector remembers of a whole run (a best level, a count) is then that of the last so many points."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Where a rule stands. `segment` is the one whose points it has seen last; points of earlier ones come too late for it."""

    detector: State
    status: AlertStatus
    segment: int
    rule_version: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one point did: the next watch, the detector's verdict, and what became of the alert."""

    watch: Watch
    verdict: Verdict
    outcome: AlertOutcome


def fresh(rule: AlertRule, segment: int) -> Watch:
    """A rule that has seen nothing."""
    return Watch(DETECTORS[rule.detector].start(), AlertStatus(), segment, rule.version)


def judge(rule: AlertRule, watch: Watch, point: Point, run_id: str) -> Judgement:
    """Feed one point to the rule."""
    detector, verdict = DETECTORS[rule.detector].step(watch.detector, point, settings_of(rule))
    outcome = alerts.step(watch.status, verdict, rule, point.step, lambda: episode_id(run_id, rule, point))
    return Judgement(Watch(detector, outcome.status, point.segment, rule.version), verdict, outcome)


def replay(
    rule: AlertRule, points: Iterable[Point], segment: int, still_open: Alert | None, cause: SegmentCause | None = None
) -> Watch:
    """The rule as it stands after `points` of the effective curve, before the first point of `segment`; nothing is told.

    `still_open` is the stored episode that the rewind leaves open. An episode that the rewind has ended, or that had ended
    before, does not come back. `cause`: why the segment begins; None where nobody has announced it.
    """
    watch = fresh(rule, segment)
    for point in points:
        watch = replace(judge(rule, watch, point, "").watch, segment=segment)
    watch = begun(rule, watch, segment, cause)
    return replace(watch, status=kept(watch.status, still_open))


def begun(rule: AlertRule, watch: Watch, segment: int, cause: SegmentCause | None) -> Watch:
    """The rule before the first point of a segment that goes on from where it stands. `cause`: None where nobody has said."""
    begins = DETECTORS[rule.detector].begins
    detector = watch.detector if begins is None or cause is None else begins(watch.detector, cause)
    return replace(watch, detector=detector, segment=segment)


def kept(replayed: AlertStatus, still_open: Alert | None) -> AlertStatus:
    """Where the episode stands after a rewind that has left `still_open` open; None where none is.

    One that is pending counts its points anew: an episode that had ended before may have held at them too.
    """
    if still_open is None:
        return AlertStatus()
    both_fired = replayed.state in FIRED and still_open.state in FIRED
    state = replayed.state if both_fired else still_open.state
    return replace(replayed, state=state, alert_id=still_open.alert_id, onset_step=still_open.onset_step, held=0)


def episode_id(run_id: str, rule: AlertRule, point: Point) -> str:
    """The id of the episode that begins at `point`: made of what it is about, so that the same points give the same id."""
    key = [run_id, rule.rule_id, rule.version, point.series, point.rank, point.segment, point.step, point.seq]
    return f"a_{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]}"


def time_of(point: Point, now: datetime) -> datetime:
    """When the point was made, by the agent's clock; `now` where that clock cannot be right."""
    return agent_time(point.time, now)


def to_parsed(rule: AlertRule, watch: Watch) -> dict[str, Any]:
    """Detector and alert as strict JSON."""
    return {"detector": DETECTORS[rule.detector].stored(watch.detector), "alert": to_json(watch.status)}


def from_parsed(rule: AlertRule, parsed: Mapping[str, Any], segment: int) -> Watch:
    """The watch out of what `to_parsed` gave for the same version of the rule."""
    detector = DETECTORS[rule.detector].restore(parsed["detector"])
    return Watch(detector, from_json(AlertStatus, parsed["alert"]), segment, rule.version)


def without_episode(parsed: Mapping[str, Any]) -> dict[str, Any]:
    """What `to_parsed` gave, with the episode ended; the detector keeps what it knows."""
    return {**parsed, "alert": to_json(AlertStatus())}

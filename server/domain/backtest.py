"""What rules would have made of a run: its stored points, judged once more by the very `Judging` that judges them as they arrive.

The points come back in the order in which they were judged: segment by segment, within one by `seq`. At the start of a segment
each rule goes back to where it stood on the effective curve, as in `services/evaluation`; where that is read from the database
there, it is taken here from the points in hand. At the end of a run, open episodes close.

Two things differ from what the server did if the trainer's messages came out of order: points of an old segment that arrived
after a newer one had begun are judged here in their place, and so are points of a rank that came after the end of the run.

Points are counted N; columns are sequences of shape (N,).
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from heapq import merge

from trainer_agent.wire.vocabulary import AlertState, SegmentCause

from . import episodes, watching
from .alerts import Alert, AlertStatus, CloseReason
from .judging import Change, Judging, Key, Post
from .points import Point
from .rules import AlertRule
from .watching import Watch


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """What one life of a rank has told of one series in one segment, in the order of `seq`.

    `life` counts the lives of a rank in the order in which they began.
    """

    series: str
    segment: int
    rank: int
    life: int
    seq: Sequence[float]
    step: Sequence[float]
    time: Sequence[float]
    value: Sequence[float]


@dataclass(frozen=True, slots=True)
class SegmentBegun:
    """A segment as the trainer announced it: the steps from `from_step` on, exclusive."""

    from_step: int
    cause: SegmentCause = SegmentCause.START


@dataclass(frozen=True, slots=True)
class Recording:
    """What is stored of a run, as far as rules look at it."""

    run_id: str
    project: str
    columns: tuple[StoredColumn, ...]
    segments: Mapping[int, SegmentBegun] = field(default_factory=dict)
    ends: Mapping[int, int | None] = field(default_factory=dict)
    """The segments in which the run has ended, each with the step where it was (None: not known)."""
    world_size: int = 1


def episodes_of(recording: Recording, rules: Iterable[AlertRule], now: datetime) -> tuple[Alert, ...]:
    """Every episode that fired, in the order of firing. `now` stands in for times that cannot be right."""
    replayed = _Replayed(recording, tuple(rules), now)
    by_segment: dict[int, list[StoredColumn]] = {segment: [] for segment in (*recording.segments, *recording.ends)}
    for column in recording.columns:
        by_segment.setdefault(column.segment, []).append(column)
    for segment, columns in sorted(by_segment.items()):
        replayed.begin(segment)
        for point in points_in(columns):
            replayed.judge(point)
        if segment in recording.ends:
            replayed.end(recording.ends[segment])
    return tuple(alert for alert in replayed.alerts.values() if alert.firing_step is not None)


def points_in(columns: Iterable[StoredColumn]) -> Iterator[Point]:
    """The points of one segment in the order in which they are judged: by life and `seq`, those of one `seq` by name.

    Each column is in that order already, so they are merged and never all made at once.
    """
    for _, seq, rank, series, step, time, value, segment in merge(*map(_rows, columns)):
        yield Point(series, segment, rank, int(seq), int(step), time, value)


_Row = tuple[int, float, int, str, float, float, float, int]


def _rows(column: StoredColumn) -> Iterator[_Row]:
    """The points, each behind its place. No two places are equal, so that a value, which may be NaN, is never compared."""
    life, rank, series, segment = column.life, column.rank, column.series, column.segment
    for seq, step, time, value in zip(column.seq, column.step, column.time, column.value, strict=True):
        yield life, seq, rank, series, step, time, value, segment


class _Replayed:
    """The rules at their posts on all ranks, and the episodes so far."""

    def __init__(self, recording: Recording, rules: tuple[AlertRule, ...], now: datetime) -> None:
        self._recording, self._rules, self._now = recording, rules, now
        self._judgings: dict[int, Judging] = {}
        self._history = History(recording.columns)
        self.alerts: dict[str, Alert] = {}
        """By id, in the order in which they began or fired."""
        self._open: dict[str, Alert] = {}

    def judge(self, point: Point) -> None:
        """Feed one point to all rules of its rank."""
        judging = self._judgings.get(point.rank)
        if judging is None:
            judging = self._judgings[point.rank] = self._new(point.rank)
        for change in judging.judge(point):
            self._follow(change)

    def _new(self, rank: int) -> Judging:
        run = self._recording
        made = Judging(run.run_id, run.project, rank, self._rules, self._stand, ranks=run.world_size)
        for other in self._judgings.values():
            made.share(other)
            break
        return made

    def _posts(self) -> Sequence[Post]:
        return next((judging.posts for judging in self._judgings.values()), ())

    def _follow(self, change: Change) -> None:
        """Keep what became of the episode."""
        before, after = change.before, change.outcome.after
        if before.state is None:
            self._keep(episodes.begun(self._recording.run_id, change, self._now))
            return
        alert = self._open.get(before.alert_id)
        if alert is None:  # cut off while this rank still had points of its segment to send
            return
        if after is None:
            self._open.pop(alert.alert_id)
            self.alerts.pop(alert.alert_id, None)
        elif after is AlertState.RESOLVED:
            self._keep(episodes.recovered(alert, change.point, self._now))
        elif before.state is AlertState.PENDING:
            self.alerts.pop(alert.alert_id, None)  # in the order of firing
            self._keep(episodes.as_of(alert, change, self._now))
        else:
            self._keep(replace(alert, state=after))

    def _keep(self, alert: Alert) -> None:
        self.alerts[alert.alert_id] = alert
        if alert.is_open:
            self._open[alert.alert_id] = alert
        else:
            self._open.pop(alert.alert_id, None)

    def _cut_off(self, alert: Alert, because: CloseReason, step: int | None) -> None:
        if alert.state is AlertState.PENDING:
            self._open.pop(alert.alert_id)
            self.alerts.pop(alert.alert_id, None)
            return
        self._keep(replace(alert, state=AlertState.RESOLVED, resolved_step=step, resolved_at=self._now, closed_because=because))

    def begin(self, segment: int) -> None:
        """A segment begins. One that nobody has announced begins for each rule with its first point, in `_stand`."""
        begun = self._recording.segments.get(segment)
        if begun is None:
            return
        self._close_rewound(segment, begun.from_step)
        for post in self._posts():
            if post.segment < segment:
                post.take(self._rewound(post.rule, post.key, segment, begun.from_step, begun.cause))

    def _stand(self, rule: AlertRule, key: Key, point: Point) -> Watch:
        if not any(post.key == key for post in self._posts()):
            return watching.fresh(rule, point.segment)
        self._close_rewound(point.segment, point.step - 1)
        return self._rewound(rule, key, point.segment, point.step - 1, None)

    def _close_rewound(self, segment: int, from_step: int) -> None:
        for alert in list(self._open.values()):
            if alert.segment < segment and alert.onset_step > from_step:
                self._cut_off(alert, CloseReason.REWOUND, None)

    def _rewound(self, rule: AlertRule, key: Key, segment: int, from_step: int, cause: SegmentCause | None) -> Watch:
        """The rule as it stands at the start of `segment`, from the effective curve up to `from_step`."""
        rule_id, series, rank = key
        points = self._history.recent(series, rank, segment, from_step, self._recording.segments)
        mine = (alert for alert in self._open.values() if alert.rule_id == rule_id)
        still_open = next((alert for alert in mine if (alert.series, alert.rank) == (series, rank)), None)
        watch = watching.replay(rule, points, segment, still_open, cause)
        state = watch.status.state
        if still_open is not None and state is not None and state is not still_open.state:
            self._keep(replace(still_open, state=state))
        return watch

    def end(self, step: int | None) -> None:
        """The run has ended: what is open closes, and each rule stands where it stood, without an episode."""
        for alert in list(self._open.values()):
            self._cut_off(alert, CloseReason.RUN_ENDED, max(alert.onset_step, step or 0))
        for post in self._posts():
            post.take(replace(post.watch, status=AlertStatus()))


class History:
    """The effective curve of each series and rank at the start of a segment, out of the columns of the earlier ones."""

    def __init__(self, columns: Iterable[StoredColumn]) -> None:
        self._columns: dict[tuple[str, int], list[StoredColumn]] = {}
        self._resolved: dict[tuple[str, int, int], tuple[list[int], list[Point]]] = {}
        for column in columns:
            self._columns.setdefault((column.series, column.rank), []).append(column)

    def recent(
        self, series: str, rank: int, before_segment: int, up_to_step: int, segments: Mapping[int, SegmentBegun]
    ) -> list[Point]:
        """The last points, oldest first, of the curve that segment `before_segment` goes on from at `up_to_step`."""
        found: list[Point] = []
        limit = up_to_step
        told = {column.segment for column in self._columns.get((series, rank), ())}
        for segment in sorted(told | set(segments), reverse=True):
            if segment >= before_segment:
                continue
            if segment in told:
                steps, points = self._of_segment(series, rank, segment)
                end = bisect_right(steps, limit)
                found += points[max(0, end - watching.REPLAYED_POINTS) : end]
            if segment in segments:
                limit = min(limit, segments[segment].from_step)
        found.sort(key=lambda point: (point.step, point.segment))
        return found[-watching.REPLAYED_POINTS :]

    def of_segment(self, series: str, rank: int, segment: int) -> list[Point]:
        """The points of a segment by step, one a step: the one written last."""
        return self._of_segment(series, rank, segment)[1]

    def _of_segment(self, series: str, rank: int, segment: int) -> tuple[list[int], list[Point]]:
        """Steps and points."""
        known = self._resolved.get((series, rank, segment))
        if known is None:
            mine = sorted((c for c in self._columns[series, rank] if c.segment == segment), key=lambda c: c.life)
            by_step = {point.step: point for column in mine for point in points_in([column])}
            steps = sorted(by_step)
            known = self._resolved[series, rank, segment] = steps, [by_step[step] for step in steps]
        return known

"""What rules would have made of a run: its stored points, judged once more by the very `Judging` that judges them as they arrive.

The points come back in the order in which they were judged: segment by segment, within one by `seq`. At the start of a segment
each rule goes back to where it stood on the effective curve, as in `services/evaluation`; where that is read from the database
there, it is taken here from the points in hand. At the end of a run, open episodes close.

Two things differ from what the server did if the trainer's messages came out of order: points of an old segment that arrived
after a newer one had begun are judged here in their place, and so are points of a rank that came after the end of the run.

Points are counted N; columns are sequences of shape (N,).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from heapq import merge

from trainer_agent.wire.vocabulary import AlertState, SegmentCause

from . import episodes, watching
from .alerts import Alert, AlertStatus, CloseReason
from .detectors import DETECTORS
from .judging import ALL_RANKS, Change, Failure, Judging, Key, Post
from .points import Point
from .replaying import replayed
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
    unread: tuple[str, ...] = ()
    """Further series that are stored of it, which no rule looks at."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of it: every episode that fired, in the order of firing, and the rules that could not judge a point."""

    alerts: tuple[Alert, ...]
    failures: tuple[Failure, ...] = ()


def replay(recording: Recording, rules: Iterable[AlertRule], now: datetime) -> Replayed:
    """Judge a recording. `now` stands in for times that cannot be right."""
    again = _Replaying(recording, tuple(rules), now)
    by_segment: dict[int, list[StoredColumn]] = {segment: [] for segment in (*recording.segments, *recording.ends)}
    for column in recording.columns:
        by_segment.setdefault(column.segment, []).append(column)
    for segment, columns in sorted(by_segment.items()):
        again.enter(segment)
        for point in points_in(columns):
            again.judge(point)
        if segment in recording.ends:
            again.end(recording.ends[segment])
    return Replayed(tuple(alert for alert in again.alerts.values() if alert.firing_step is not None), again.failures)


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


class _Replaying:
    """The rules at their posts on all ranks, and the episodes so far."""

    def __init__(self, recording: Recording, rules: tuple[AlertRule, ...], now: datetime) -> None:
        self._recording, self._rules, self._now = recording, rules, now
        self._judgings: dict[int, Judging] = {}
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

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Of each rule that has failed the first, on whatever rank."""
        found = {rule_id: each for judging in self._judgings.values() for rule_id, each in judging.failures.items()}
        return tuple(found.values())

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

    def enter(self, segment: int) -> None:
        """A segment begins. One that nobody has announced begins for each rule with its first point, in `_stand`."""
        begun = self._recording.segments.get(segment)
        if begun is None:
            return
        self._close_rewound(segment, begun.from_step)
        behind = [post for post in self._posts() if post.segment < segment]
        for rank in sorted({post.key[2] for post in behind}):
            mine = [post for post in behind if post.key[2] == rank]
            judging = self._judged_again(mine, rank, segment, begun.from_step)
            for post in mine:
                post.take(self._as_rewound(post, judging, segment, begun.cause))

    def _stand(self, rule: AlertRule, key: Key, point: Point) -> Watch:
        post = next((each for each in self._posts() if each.key == key), None)
        if post is None:
            return watching.fresh(rule, point.segment)
        self._close_rewound(point.segment, point.step - 1)
        judging = self._judged_again([post], key[2], point.segment, point.step - 1)
        return self._as_rewound(post, judging, point.segment, None)

    def _close_rewound(self, segment: int, from_step: int) -> None:
        for alert in list(self._open.values()):
            if alert.segment < segment and alert.onset_step > from_step:
                self._cut_off(alert, CloseReason.REWOUND, None)

    def _judged_again(self, posts: Sequence[Post], rank: int, segment: int, from_step: int) -> Judging:
        """The rules of these posts where the points that `segment` has left standing bring them."""
        run, rules = self._recording, {post.rule.rule_id: post.rule for post in posts}
        names = {post.key[1] for post in posts}
        names |= {name for rule in rules.values() for name in DETECTORS[rule.detector].companions}
        mine = (column for column in run.columns if column.series in names and rank in {column.rank, ALL_RANKS})
        points = kept_points(mine, run.segments, segment, from_step)
        causes = {number: begun.cause for number, begun in run.segments.items()}
        return replayed(run.run_id, rank, rules.values(), points, causes, ranks=run.world_size)

    def _as_rewound(self, post: Post, judging: Judging, segment: int, cause: SegmentCause | None) -> Watch:
        """Where the rule of a post stands at the start of `segment`. The episode that the segment leaves open goes on."""
        rule_id, series, rank = post.key
        again = judging.post(post.key)
        watch = watching.fresh(post.rule, segment) if again is None else watching.begun(post.rule, again.watch, segment, cause)
        mine = (alert for alert in self._open.values() if alert.rule_id == rule_id)
        still_open = next((alert for alert in mine if (alert.series, alert.rank) == (series, rank)), None)
        watch = replace(watch, status=watching.kept(watch.status, still_open))
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


def kept_points(
    columns: Iterable[StoredColumn], segments: Mapping[int, SegmentBegun], before_segment: int, up_to_step: int
) -> Iterator[Point]:
    """The points that segment `before_segment`, which goes on at `up_to_step`, has left standing, in the order of judging.

    Of each series and rank the last `watching.REPLAYED_POINTS`.
    """
    left: dict[tuple[str, int], int] = {}
    kept: dict[int, list[StoredColumn]] = {}
    for column in sorted(columns, key=lambda each: (each.segment, each.life), reverse=True):
        room = left.get((column.series, column.rank), watching.REPLAYED_POINTS)
        if column.segment >= before_segment or not room:
            continue
        later = (begun.from_step for number, begun in segments.items() if column.segment < number < before_segment)
        part = _cut(column, min([up_to_step, *later]), room)
        left[column.series, column.rank] = room - len(part.step)
        kept.setdefault(column.segment, []).append(part)
    for _, parts in sorted(kept.items()):
        yield from points_in(parts)


def _cut(column: StoredColumn, up_to_step: int, most: int) -> StoredColumn:
    """The last `most` points of a column up to a step."""
    places = [at for at, step in enumerate(column.step) if step <= up_to_step][-most:]
    if len(places) == len(column.step):
        return column
    seq, step, time, value = ([row[at] for at in places] for row in (column.seq, column.step, column.time, column.value))
    return replace(column, seq=seq, step=step, time=time, value=value)


def by_step(columns: Iterable[StoredColumn]) -> list[Point]:
    """The points of one series, rank and segment by step, one a step: the one written last."""
    found = {point.step: point for column in sorted(columns, key=lambda each: each.life) for point in points_in([column])}
    return [found[step] for step in sorted(found)]

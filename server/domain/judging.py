"""All rules of a run at their posts: which of them a point concerns, and what it does to each.

This is the one way in which points are judged: by the server as they arrive, by a backtest over stored ones, by the benchmark.
Points of one rank come in `seq` order. Nothing is read or written here; where a rule stood before its first point is asked
of `stand`, and what has changed is for the caller to keep.

Thread: one at a time.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from . import alerts, watching
from .alerts import AlertOutcome, AlertStatus
from .detectors import DETECTORS
from .detectors.base import RANKS, Verdict
from .points import Point
from .rules import AlertRule, settings_of
from .watching import Watch

ALL_RANKS = -1
"""Stands for the rank of a rule whose detector looks at all ranks together."""

Key = tuple[str, str, int]
"""Rule, series, rank."""

Stand = Callable[[AlertRule, Key, Point], Watch]
"""Where a rule stands before a point: at the first that concerns it, and at the first of a newer segment."""


def anew(rule: AlertRule, key: Key, point: Point) -> Watch:
    """Where a rule stands that has seen nothing."""
    del key
    return watching.fresh(rule, point.segment)


@dataclass(frozen=True, slots=True)
class Change:
    """A point has brought an alert into another state."""

    rule: AlertRule
    key: Key
    point: Point
    before: AlertStatus
    verdict: Verdict
    outcome: AlertOutcome


class Post:
    """One rule on one series of one rank. It holds a `Watch` in place, because most points change only the detector."""

    __slots__ = ("_detector", "_settings", "key", "rule", "segment", "state", "status")

    def __init__(self, rule: AlertRule, key: Key, watch: Watch, ranks: int = 0) -> None:
        self.rule, self.key = rule, key
        self._detector, self._settings = DETECTORS[rule.detector], settings_of(rule)
        if self._detector.across_ranks:
            self._settings[RANKS] = float(ranks)
        self.take(watch)

    def take(self, watch: Watch) -> None:
        """Stand where `watch` says."""
        self.state, self.status, self.segment = watch.detector, watch.status, watch.segment

    @property
    def watch(self) -> Watch:
        """Where it stands."""
        return Watch(self.state, self.status, self.segment, self.rule.version)

    def observe(self, point: Point) -> None:
        """See a point of a companion series."""
        assert self._detector.observe is not None
        self.state = self._detector.observe(self.state, point, self._settings)

    def judge(self, point: Point, run_id: str) -> Change | None:
        """See a point of its own series. What became of the alert, where anything did."""
        self.state, verdict = self._detector.step(self.state, point, self._settings)
        before = self.status
        if before.state is None and not verdict.holds:
            return None
        if self._detector.across_ranks:
            point = _of_all_ranks(point, verdict)
        outcome = alerts.step(before, verdict, self.rule, point.step, lambda: watching.episode_id(run_id, self.rule, point))
        self.status = outcome.status
        return Change(self.rule, self.key, point, before, verdict, outcome) if outcome.changed else None


def _of_all_ranks(point: Point, verdict: Verdict) -> Point:
    """Where an episode across ranks stands: at the step that the verdict names, whichever rank's point came last."""
    step = int(dict(verdict.evidence).get("step", point.step))
    return replace(point, rank=ALL_RANKS, seq=0, step=step)


class Judging:
    """The rules that cover one run, at their posts on one rank. `ranks`: how many the run has, 0 where that is not known."""

    def __init__(
        self, run_id: str, project: str, rank: int, rules: Iterable[AlertRule], stand: Stand = anew, *, ranks: int = 0
    ) -> None:
        self._run_id, self._rank, self._stand, self._ranks = run_id, rank, stand, ranks
        self._rules = [rule for rule in rules if rule.enabled and rule.scope.covers(run_id, project)]
        self._posts: dict[Key, Post] = {}
        self._by_series: dict[str, tuple[tuple[tuple[AlertRule, Key], ...], tuple[tuple[AlertRule, Key], ...]]] = {}

    def judge(self, point: Point) -> Iterator[Change]:
        """What a point changes. The iterator must be read to its end before the next point is judged."""
        observed_by, judged_by = self._concerned(point.series)
        for rule, key in observed_by:
            post = self._post(rule, key, point)
            if post is not None:
                post.observe(point)
        for rule, key in judged_by:
            post = self._post(rule, key, point)
            change = post.judge(point, self._run_id) if post is not None else None
            if change is not None:
                yield change

    def concerns(self, series: str) -> bool:
        """Whether any rule looks at a series."""
        return any(self._concerned(series))

    def share(self, posts_of: "Judging") -> None:
        """Stand at the posts of another rank's judging of the same run too, so that rules across ranks see the points of both."""
        self._posts = posts_of._posts  # noqa: SLF001

    def is_at_post(self, key: Key) -> bool:
        """Whether a rule has seen a point already."""
        return key in self._posts

    @property
    def posts(self) -> tuple[Post, ...]:
        """All that have seen a point."""
        return tuple(self._posts.values())

    def _concerned(self, series: str) -> tuple[tuple[tuple[AlertRule, Key], ...], tuple[tuple[AlertRule, Key], ...]]:
        """The rules that observe a series, and those that judge it."""
        found = self._by_series.get(series)
        if found is None:
            observing = tuple(
                (rule, self._key(rule, rule.series))
                for rule in self._rules
                if not rule.is_pattern and series in DETECTORS[rule.detector].companions and series != rule.series
            )
            judging = tuple((rule, self._key(rule, series)) for rule in self._rules if rule.watches(series))
            found = self._by_series[series] = observing, judging
        return found

    def _key(self, rule: AlertRule, series: str) -> Key:
        return rule.rule_id, series, ALL_RANKS if DETECTORS[rule.detector].across_ranks else self._rank

    def _post(self, rule: AlertRule, key: Key, point: Point) -> Post | None:
        """The rule's post; None where the point is of a segment that the run has left behind."""
        post = self._posts.get(key)
        if post is None:
            post = self._posts[key] = Post(rule, key, self._stand(rule, key, point), self._ranks)
        if point.segment > post.segment:
            post.take(self._stand(rule, key, point))
        return None if point.segment < post.segment else post

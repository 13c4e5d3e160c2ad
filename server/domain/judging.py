"""All rules of a run at their posts: which of them a point concerns, and what it does to each.

This is the one way in which points are judged: by the server as they arrive, by a backtest over stored ones, by the benchmark.
Points of one rank come in `seq` order. Nothing is read or written here; where a rule stood before its first point is asked
of `stand`, and what has changed is for the caller to keep.

A rule whose detector raises, or takes far too long over a point, is judged no more: the others go on, and the caller is told.

Thread: one at a time.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from . import alerts, watching
from .alerts import AlertOutcome, AlertStatus
from .detectors import DETECTORS, State
from .detectors.absence import ABSENCES
from .detectors.base import RANKS, Settings, Verdict
from .points import Point
from .rules import MAX_SERIES, AlertRule, settings_of
from .watching import Watch

ALL_RANKS = -1
"""Stands for the rank of a rule whose detector looks at all ranks together."""
SLOW_SECONDS: Final = 0.05
"""No detector may take longer over one point. A healthy one takes some microseconds."""

Key = tuple[str, str, int]
"""Rule, series, rank."""

Stand = Callable[[AlertRule, Key, Point], Watch]
"""Where a rule stands before a point: at the first that concerns it, and at the first of a newer segment."""


def anew(rule: AlertRule, key: Key, point: Point) -> Watch:
    """Where a rule stands that has seen nothing."""
    del key
    return watching.fresh(rule, point.segment)


def _none(_: Point) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Change:
    """A point has brought an alert into another state."""

    rule: AlertRule
    key: Key
    point: Point
    before: AlertStatus
    verdict: Verdict
    outcome: AlertOutcome


@dataclass(frozen=True, slots=True)
class Failure:
    """A rule could not judge a point, and judges no more. `text` says why, without the rule's name."""

    rule: AlertRule
    point: Point
    text: str


class Post:
    """One rule on one series of one rank. It holds a `Watch` in place, because most points change only the detector.

    `step` and `observe` are the detector's own. `Judging` calls them itself, a dozen at each point: a method between would cost
    as much as many of them.
    """

    __slots__ = ("key", "observe", "rule", "segment", "settings", "state", "status", "step")

    def __init__(self, rule: AlertRule, key: Key, watch: Watch, ranks: int = 0) -> None:
        self.rule, self.key = rule, key
        detector, self.settings = DETECTORS[rule.detector], settings_of(rule)
        self.step, self.observe = detector.step, detector.observe or _as_it_was
        if detector.across_ranks:
            self.settings[RANKS] = float(ranks)
        self.take(watch)

    def take(self, watch: Watch) -> None:
        """Stand where `watch` says."""
        self.state, self.status, self.segment = watch.detector, watch.status, watch.segment

    @property
    def watch(self) -> Watch:
        """Where it stands."""
        return Watch(self.state, self.status, self.segment, self.rule.version)

    def follow(self, verdict: Verdict, point: Point, run_id: str) -> Change | None:
        """What becomes of the alert after a verdict, where anything does."""
        if self.key[2] == ALL_RANKS:
            point = _of_all_ranks(point, verdict)
        before, rule = self.status, self.rule
        outcome = alerts.step(before, verdict, rule, point.step, lambda: watching.episode_id(run_id, rule, point))
        self.status = outcome.status
        return Change(rule, self.key, point, before, verdict, outcome) if outcome.changed else None

    def look_again(self, before: State, point: Point) -> None:
        """Have the detector judge a point once more, from the state it had; what it finds is thrown away."""
        again = self.step if point.series == self.key[1] else self.observe
        again(before, point, self.settings)


def _as_it_was(state: State, point: Point, settings: Settings) -> State:
    """What a detector without companions sees of another series."""
    del point, settings
    return state


def _of_all_ranks(point: Point, verdict: Verdict) -> Point:
    """Where an episode across ranks stands: at the step that the verdict names, whichever rank's point came last."""
    step = int(dict(verdict.evidence).get("step", point.step))
    return replace(point, rank=ALL_RANKS, seq=0, step=step)


_Concerned = tuple[tuple[AlertRule, Key], ...]
_Posts = tuple[Post, ...]


class Judging:
    """The rules that cover one run, at their posts on one rank.

    Args:
        run_id: the run.
        project: that it belongs to.
        rank: whose points come.
        rules: all there are; those that are off or whose scope is elsewhere are left out.
        stand: see `Stand`.
        ranks: how many the run has, 0 where that is not known.
        clock: seconds that only rise, to find a detector that is too slow; without it, time is not looked at.
        known: the posts that have been taken before, by which the series of a pattern are counted.
        is_kept: whether a point of an earlier segment lies on the curve that the newest one goes on from; only asked for
            rules across ranks, because ranks enter a segment one after the other.
    """

    def __init__(
        self,
        run_id: str,
        project: str,
        rank: int,
        rules: Iterable[AlertRule],
        stand: Stand = anew,
        *,
        ranks: int = 0,
        clock: Callable[[], float] | None = None,
        known: Iterable[Key] = (),
        is_kept: Callable[[Point], bool] = _none,
    ) -> None:
        self._run_id, self._rank, self._stand, self._ranks = run_id, rank, stand, ranks
        self._clock, self._is_kept = clock, is_kept
        self.rules = [rule for rule in rules if rule.enabled and rule.scope.covers(run_id, project) and _by_points(rule)]
        self.failures: dict[str, Failure] = {}
        """By rule: those that judge no more since this began."""
        self.crowded: dict[str, AlertRule] = {}
        """By rule: those whose pattern matches more series than are watched."""
        self._posts: dict[Key, Post] = {}
        self._by_series: dict[str, tuple[_Concerned, _Concerned]] = {}
        self._ready: dict[str, tuple[int, tuple[_Posts, _Posts]]] = {}
        """By series: the segment that all its posts stand in, those that observe and those that judge."""
        self._of_pattern: dict[str, set[str]] = {rule.rule_id: set() for rule in self.rules if rule.is_pattern}
        for rule_id, series, of_rank in known:
            if rule_id in self._of_pattern and of_rank == rank:
                self._of_pattern[rule_id].add(series)

    def judge(self, point: Point) -> Sequence[Change]:
        """What a point changes."""
        ready = self._ready.get(point.series)
        posts = ready[1] if ready is not None and ready[0] == point.segment else self._gathered(point)
        return self._seen(point, posts) if self._clock is None else self._timed(point, posts, self._clock)

    def _seen(self, point: Point, posts: tuple[_Posts, _Posts]) -> list[Change]:
        """Show a point to the posts. Nearly always none of the rules holds, and nothing is done but to ask the detectors."""
        observing, judging = posts
        changes = []
        for post in observing:
            try:
                observe = post.observe
                post.state = observe(post.state, point, post.settings)
            except Exception as error:  # whatever one rule does, the others must not suffer
                self._raised(post.rule, point, error)
        for post in judging:
            try:
                step = post.step  # taken first: called where it stands it would be looked for as a method, which costs more
                post.state, verdict = step(post.state, point, post.settings)
                if verdict.holds or post.status.state is not None:
                    change = post.follow(verdict, point, self._run_id)
                    if change is not None:
                        changes.append(change)
            except Exception as error:  # the same
                self._raised(post.rule, point, error)
        return changes

    def _timed(self, point: Point, posts: tuple[_Posts, _Posts], clock: Callable[[], float]) -> list[Change]:
        """The same with an eye on the clock, and with the state that each post had before: see `_slow`."""
        befores, began = [(post, post.state) for post in (*posts[0], *posts[1])], clock()
        changes = self._seen(point, posts)
        took = clock() - began
        if took <= SLOW_SECONDS:  # all together: nearly always it is nobody's fault
            return changes
        slow = self._slow(befores, point, took, clock)
        return [each for each in changes if each.rule.rule_id not in slow]

    def _gathered(self, point: Point) -> tuple[_Posts, _Posts]:
        """The posts that are to see a point, kept for the next point of its series where they will be the same."""
        observing, judging = self._concerned(point.series)
        posts = self._posts_of(observing, point), self._posts_of(judging, point)
        gathered, concerned = (*posts[0], *posts[1]), (*observing, *judging)
        if len(gathered) == len(concerned) and not any(post.key[2] == ALL_RANKS for post in gathered):
            self._ready[point.series] = point.segment, posts
        return posts

    def _posts_of(self, concerned: _Concerned, point: Point) -> _Posts:
        return tuple(post for rule, key in concerned if (post := self._post(rule, key, point)) is not None)

    def _slow(self, befores: Iterable[tuple[Post, State]], point: Point, took: float, clock: Callable[[], float]) -> set[str]:
        """The rules that took too long, and do so once more: the first time it may have been the machine that stood still."""
        slow = set()
        for post, before in befores:
            began = clock()
            if post.rule.rule_id not in self.failures:
                post.look_again(before, point)
            if clock() - began > SLOW_SECONDS:
                said = f"its detector took {took * 1000:.0f} ms over one point, twice; {SLOW_SECONDS * 1000:g} ms is the limit"
                self._fail(post.rule, point, said)
                slow.add(post.rule.rule_id)
        return slow

    def _raised(self, rule: AlertRule, point: Point, error: Exception) -> None:
        self._fail(rule, point, f"its detector raised {type(error).__name__}: {str(error)[:200]}")

    def _fail(self, rule: AlertRule, point: Point, text: str) -> None:
        self.failures[rule.rule_id] = Failure(rule, point, text)
        self.rules = [each for each in self.rules if each is not rule]
        self._by_series.clear()
        self._ready.clear()
        for key in [key for key in self._posts if key[0] == rule.rule_id]:
            del self._posts[key]

    def concerns(self, series: str) -> bool:
        """Whether any rule looks at a series."""
        return any(self._concerned(series))

    def share(self, posts_of: "Judging") -> None:
        """Stand at the posts of another rank's judging of the same run too, so that rules across ranks see the points of both."""
        self._posts = posts_of._posts  # noqa: SLF001

    def post(self, key: Key) -> Post | None:
        """The rule's post; None before its first point."""
        return self._posts.get(key)

    def is_at_post(self, key: Key) -> bool:
        """Whether a rule has seen a point already."""
        return key in self._posts

    @property
    def posts(self) -> tuple[Post, ...]:
        """All that have seen a point."""
        return tuple(self._posts.values())

    def _concerned(self, series: str) -> tuple[_Concerned, _Concerned]:
        """The rules that observe a series, and those that judge it."""
        found = self._by_series.get(series)
        if found is None:
            observing = tuple(
                (rule, self._key(rule, rule.series))
                for rule in self.rules
                if not rule.is_pattern and series in DETECTORS[rule.detector].companions and series != rule.series
            )
            judging = tuple((rule, self._key(rule, series)) for rule in self.rules if self._watches(rule, series))
            found = self._by_series[series] = observing, judging
        return found

    def _watches(self, rule: AlertRule, series: str) -> bool:
        """Whether a rule judges a series: of a pattern, no more than the first so many that come."""
        if not rule.is_pattern or not rule.watches(series):
            return rule.watches(series)
        taken = self._of_pattern[rule.rule_id]
        if series not in taken and len(taken) >= MAX_SERIES:
            self.crowded[rule.rule_id] = rule
            return False
        taken.add(series)
        return True

    def _key(self, rule: AlertRule, series: str) -> Key:
        return rule.rule_id, series, ALL_RANKS if DETECTORS[rule.detector].across_ranks else self._rank

    def _post(self, rule: AlertRule, key: Key, point: Point) -> Post | None:
        """The rule's post; None where it judges no more, or the point is of a stretch that the run has left behind."""
        if rule.rule_id in self.failures:
            return None
        post = self._posts.get(key)
        if post is None:
            post = self._posts[key] = Post(rule, key, self._stand(rule, key, point), self._ranks)
        if point.segment > post.segment:
            post.take(self._stand(rule, key, point))
            self._ready.clear()  # it may be a companion's too
        if point.segment == post.segment or (key[2] == ALL_RANKS and self._is_kept(point)):
            return post
        return None


def _by_points(rule: AlertRule) -> bool:
    """Whether points say when the rule holds, and not the time that passes without any."""
    return rule.detector not in ABSENCES

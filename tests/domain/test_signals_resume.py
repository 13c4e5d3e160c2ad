"""A curve that does not go on after a restart where it was; rollbacks, noise and a falling loss are no break."""

import math
import random

import pytest
from recorded_runs import make_points

from server.domain import watching
from server.domain.detectors import DETECTORS, DetectorKind, with_defaults
from server.domain.judging import Judging
from server.domain.rules import AlertRule
from trainer_agent.wire import series
from trainer_agent.wire.vocabulary import AlertState, SegmentCause

KIND = DetectorKind.DISCONTINUITY
DETECTOR = DETECTORS[KIND]


def after_resume(before, after, cause=SegmentCause.RESTART, name=series.LOSS, **settings):
    """Verdicts on the points of a segment that goes on from the last of `before`."""
    state, filled, out = DETECTOR.start(), with_defaults(KIND, settings), []
    for point in make_points(before, name):
        state, verdict = DETECTOR.step(state, point, filled)
        assert not verdict.holds
    state = DETECTOR.begins(state, cause)
    for point in make_points(after, name, len(before) + 1, segment=2):
        state, verdict = DETECTOR.step(state, point, filled)
        out.append(verdict)
    return out


def held(verdicts):
    return [n for n, said in enumerate(verdicts, 1) if said.holds]


def noisy(level, count, spread=0.02, seed=1, slope=0.0):
    chance = random.Random(seed)
    return [level + slope * n + chance.gauss(0.0, spread * level) for n in range(count)]


def schedule(first, last, peak=6e-5, warm_up=100, total=1000):
    """Linear warm-up, then a cosine down to 0."""

    def rate(step):
        if step < warm_up:
            return peak * step / warm_up
        return peak * (1 + math.cos(math.pi * (step - warm_up) / (total - warm_up))) / 2

    return [rate(step) for step in range(first, last)]


@pytest.mark.parametrize(
    ("before", "after", "first"),
    [
        (noisy(2.0, 60), noisy(2.0, 40, seed=2), None),
        (noisy(2.0, 60), noisy(3.0, 40, seed=2), 3),  # the first three tell nothing of a level
        (noisy(2.0, 60), noisy(1.2, 40, seed=2), 3),
        (noisy(2.0, 60, 0.001), noisy(2.12, 40, 0.001, seed=2), 3),  # 6 %, and far out of its scatter
        (noisy(2.0, 60, 0.001), noisy(2.06, 40, 0.001, seed=2), None),  # 3 %, however far out
        (noisy(2.0, 60, 0.3), noisy(2.6, 40, 0.3, seed=2), None),  # 30 %, and within its scatter
        (noisy(2.0, 60, slope=-0.02), noisy(0.8, 40, seed=2, slope=-0.02), None),  # goes on falling
        (noisy(2.0, 60, slope=-0.02), noisy(0.8, 40, seed=2), None),  # stops falling
        ([2.0] * 9, [9.0] * 40, None),  # too little before
        ([2.0] * 60, [math.nan] * 40, None),
        ([math.nan, 2.0] * 30, [3.0, math.inf, 3.0, 3.0], 4),
        ([-2.0] * 60, [-3.0] * 5, 3),
        ([0.0] * 60, [0.0] * 40, None),
    ],
)
def test_a_loss_after_a_restart_is_off_by_level_or_by_scatter_and_neither_alone_cries_wolf(before, after, first):
    found = held(after_resume(before, after))
    assert (found[0] if found else None) == first


def test_an_optimizer_that_was_not_restored_shows_after_some_updates():
    rise = noisy(2.0, 4, seed=2) + [2.0 + 0.25 * n for n in range(1, 17)]
    assert 8 <= held(after_resume(noisy(2.0, 60), rise))[0] <= 16


def test_after_the_twentieth_point_the_resume_is_over():
    found = held(after_resume(noisy(2.0, 60), noisy(3.0, 60, seed=2)))
    assert found == list(range(3, 21))


def test_it_says_what_was_expected_and_what_came():
    said = after_resume([2.0] * 60, [3.0, 3.5, 3.0])[-1]
    evidence = dict(said.evidence)
    assert (evidence["expected"], evidence["level"], evidence["points"]) == (2.0, 3.0, 3.0)
    assert said.limit == pytest.approx(2.1)


@pytest.mark.parametrize("cause", [SegmentCause.ROLLBACK, SegmentCause.START])
def test_a_rollback_has_changed_what_it_was_told_to_and_is_not_judged(cause):
    assert held(after_resume(noisy(2.0, 60), noisy(3.0, 40, seed=2), cause)) == []


@pytest.mark.parametrize(
    ("before", "after", "is_off"),
    [
        (schedule(0, 500), schedule(500, 540), False),
        (schedule(20, 60), schedule(60, 100), False),  # in the warm-up
        (schedule(60, 100), schedule(100, 140), False),  # at its end
        (schedule(950, 990), schedule(990, 1000), False),
        (schedule(450, 500), schedule(0, 40), True),  # the schedule begins again
        (schedule(450, 500), schedule(500, 540, total=10_000), True),  # with another length
        (schedule(450, 500), schedule(500, 540, peak=3e-5), True),
        (schedule(450, 500), [6e-5] * 40, True),  # back at its peak
        ([6e-5] * 50, [6e-5] * 40, False),
    ],
)
def test_a_learning_rate_goes_on_along_its_schedule_or_is_off(before, after, is_off):
    verdicts = after_resume(before, after, name=series.LEARNING_RATE, points=5)
    assert bool(held(verdicts)) is is_off
    assert all(n <= 5 for n in held(verdicts))


def test_a_schedule_that_takes_its_step_down_a_little_after_the_resume_is_not_off():
    after = [6e-5] * 5 + [6e-6] * 40
    assert held(after_resume([6e-5] * 60, after, name=series.LEARNING_RATE, points=5)) == []


def test_no_resume_of_a_hundred_noisy_losses_that_go_on_is_a_break():
    found = []
    for seed in range(100):
        spread = (0.01, 0.1, 0.5)[seed % 3]
        curve = noisy(3.0, 200, spread, seed, slope=-0.005)
        found += [seed] * bool(held(after_resume(curve[:100], curve[100:])))
    assert found == []


# --- in the judging, as the server does it


RULE = AlertRule("jump", "Jump", "Jump", series.LOSS, KIND, for_points=3, keep_firing_for_points=5)


def told(cause):
    """The transitions of the rule where 60 points at 2.0 are gone on from with 3.0."""
    before, after = make_points([2.0] * 60), make_points([3.0] * 60, first_step=61, segment=2)

    def stand(rule, key, point):
        del key
        if point.segment == 1:
            return watching.fresh(rule, 1)
        return watching.replay(rule, before, 2, None, cause)

    judging = Judging("run", "p", 0, [RULE], stand)
    changes = [change for point in (*before, *after) for change in judging.judge(point)]
    return [(change.outcome.after, change.point.step, change.outcome.status.onset_step) for change in changes]


def test_the_alert_of_a_break_begins_at_the_third_point_and_is_over_soon_after_the_twentieth():
    assert told(SegmentCause.RESTART) == [
        (AlertState.PENDING, 63, 63),
        (AlertState.FIRING, 65, 63),
        (AlertState.RECOVERING, 81, 63),
        (AlertState.RESOLVED, 85, 0),
    ]


@pytest.mark.parametrize("cause", [SegmentCause.ROLLBACK, None])
def test_a_segment_of_a_rollback_or_that_nobody_has_announced_begins_no_alert(cause):
    assert told(cause) == []

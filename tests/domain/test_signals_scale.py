"""Loss scale and skipped steps: the search at the start and one skip in thousands are normal, a collapse is not."""

import math

import pytest
from recorded_runs import make_points

from server.domain.detectors import DETECTORS, DetectorKind, with_defaults
from trainer_agent.wire import series
from trainer_agent.wire.vocabulary import SegmentCause

NAN, INF = math.nan, math.inf
SCALE, STREAK, SHARE = DetectorKind.LOSS_SCALE, DetectorKind.SKIP_STREAK, DetectorKind.SKIP_SHARE


def verdicts(kind, points, **settings):
    detector = DETECTORS[kind]
    state, filled, out = detector.start(), with_defaults(kind, settings), []
    for point in points:
        state, verdict = detector.step(state, point, filled)
        out.append(verdict)
    return out


def first(kind, values, first_step=1, name=series.OVERFLOW, **settings):
    """The step at which the condition holds first, None for never."""
    points = make_points(values, name, first_step)
    found = zip(points, verdicts(kind, points, **settings), strict=True)
    return next((point.step for point, said in found if said.holds), None)


def after_restart(kind, before, after, name=series.OVERFLOW, cause=SegmentCause.RESTART):
    """The points after a restart at which the condition holds, counted from 1."""
    detector, filled = DETECTORS[kind], with_defaults(kind, {})
    state, found = detector.start(), []
    for point in make_points(before, name):
        state, _ = detector.step(state, point, filled)
    state = detector.begins(state, cause)
    for n, point in enumerate(make_points(after, name, len(before) + 1, segment=2), 1):
        state, said = detector.step(state, point, filled)
        found += [n] * bool(said.holds)
    return found


def halving(start, count):
    return [start / 2**n for n in range(count)]


# --- loss scale


@pytest.mark.parametrize(
    ("values", "first_step"),
    [
        ([65536.0] * 1000, None),
        (halving(65536.0, 17) + [1.0] * 80, None),  # the search of the first 100 steps
        (halving(2.0**32, 20) + [2.0**13] * 1000, None),  # a search from very high up
        ([65536.0] * 110 + [256.0] * 10, None),  # 2^-8 is not under 2^-8
        ([65536.0] * 110 + [255.0] * 10, 111),
        ([65536.0] * 110 + halving(65536.0, 20), 120),  # under 2^-8 at the tenth value
        ([8.0] * 3000, None),  # fixed by hand, however small
        ([1.0] * 3000, None),
        ([0.5] * 3000, None),
        ([8.0] * 100 + [4.0, 2.0, 1.0, 1.0], 103),
        (halving(8.0, 4) + [1.0] * 200, 101),  # walked to 1 in the search and stays there
        ([65536.0] * 110 + [0.0], 111),  # torch has no floor
        ([65536.0, 32768.0] * 1000, None),
        ([65536.0] * 110 + [NAN, INF, 65536.0], None),
    ],
)
def test_a_loss_scale_has_collapsed_far_under_its_maximum_or_at_1_but_not_in_the_search_nor_when_fixed(values, first_step):
    assert first(SCALE, values, name=series.LOSS_SCALE) == first_step


def test_a_low_level_that_lasts_becomes_the_maximum_that_counts():
    low = verdicts(SCALE, make_points([65536.0] * 200 + [128.0] * 11_000, series.LOSS_SCALE))
    assert low[200].holds
    assert low[-1].holds is False


def test_a_collapsed_scale_says_from_where_it_fell():
    said = verdicts(SCALE, make_points([65536.0] * 110 + [128.0], series.LOSS_SCALE))[-1]
    assert (said.value, said.limit, dict(said.evidence)) == (128.0, 256.0, {"maximum": 65536.0})
    said = verdicts(SCALE, make_points([64.0] * 110 + [1.0], series.LOSS_SCALE))[-1]
    assert (said.value, said.limit, dict(said.evidence)) == (1.0, 1.0, {"maximum": 64.0})


@pytest.mark.parametrize(
    ("after", "first"),
    [
        ([256.0] * 300, None),  # restored
        (halving(65536.0, 9) + [256.0] * 300, None),  # not restored: it searches and comes to where it was
        (halving(256.0, 9), 9),  # dies again soon after
        ([0.5] * 300, None),  # fixed by hand from now on
    ],
)
def test_after_a_restart_the_scale_is_measured_by_where_it_stood_before(after, first):
    found = after_restart(SCALE, [256.0] * 500, after, series.LOSS_SCALE)
    assert (found[0] if found else None) == first


def test_after_a_rollback_the_scale_is_measured_by_all_that_is_remembered():
    found = after_restart(SCALE, [65536.0] * 500, [256.0] * 5 + [128.0] * 5, series.LOSS_SCALE, SegmentCause.ROLLBACK)
    assert found == [6, 7, 8, 9, 10]


# --- skips


def test_twelve_skips_in_a_row_at_step_5000_fire_at_the_tenth_where_ten_are_the_limit():
    values = [0.0] * 4999 + [1.0] * 12 + [0.0] * 50
    assert first(STREAK, values, streak=10) == 5009


def test_sixteen_halvings_in_a_row_are_the_search_in_the_first_hundred_steps_and_seventeen_are_not():
    assert first(STREAK, [1.0] * 16 + [0.0] * 100) is None
    assert first(STREAK, [1.0] * 17 + [0.0] * 100) == 17
    assert first(SHARE, [1.0] * 16 + [0.0] * 100) is None


@pytest.mark.parametrize(("applied", "skips", "first"), [(0, 16, None), (0, 17, 17), (1, 16, None), (2, 4, 6)])
def test_a_scaler_that_was_not_restored_may_search_again_with_the_first_steps_after_a_restart(applied, skips, first):
    after = [0.0] * applied + [1.0] * skips + [0.0] * 100
    found = after_restart(STREAK, [0.0] * 500, after)
    assert (found[0] if found else None) == first
    assert bool(after_restart(SHARE, [0.0] * 500, after)) is (applied == 2)


def test_a_rollback_restores_the_scaler_so_no_search_is_allowed_there():
    assert after_restart(STREAK, [0.0] * 500, [1.0] * 5, cause=SegmentCause.ROLLBACK) == [4, 5]
    assert after_restart(SHARE, [0.0] * 500, [1.0] * 5, cause=SegmentCause.ROLLBACK) == [3, 4, 5]


def test_a_streak_does_not_go_on_over_a_restart():
    assert after_restart(STREAK, [0.0] * 500 + [1.0] * 3, [0.0, 0.0, 1.0, 1.0, 1.0]) == []
    assert after_restart(STREAK, [0.0] * 500 + [1.0] * 3, [1.0] * 16) == []


def test_one_skip_in_two_thousand_steps_for_twenty_thousand_is_no_alert(figure):
    values = [1.0 if n % 2000 == 0 else 0.0 for n in range(1, 20_001)]
    false = [kind for kind in (STREAK, SHARE) if first(kind, values) is not None]
    figure("F25", "false alerts of the skip detectors, 20,000 steps with one skip in 2,000", len(false), at_most=0)
    assert false == []


@pytest.mark.parametrize(
    ("values", "first_step", "fires_at"),
    [
        ([1, 0, 0, 1, 0, 0, 1, 0], 5000, 5006),
        ([1, 1, 0] + [0] * 46 + [1], 5000, 5049),  # the fiftieth point
        ([1, 1, 0] + [0] * 47 + [1], 5000, None),  # the fifty-first
        (([1] + [0] * 24) * 20, 5000, 5175),  # one in 25: eight in 200
        (([1] + [0] * 33) * 20, 5000, None),  # one in 34
        ([1, 0] * 60, 1, 105),  # those of the search are not counted
        ([1, NAN, 1, NAN, 1], 5000, 5004),
    ],
)
def test_three_skips_in_fifty_points_or_a_twenty_fifth_of_two_hundred_are_too_many(values, first_step, fires_at):
    assert first(SHARE, values, first_step) == fires_at


def test_too_many_skips_are_over_once_they_have_left_the_windows():
    said = verdicts(SHARE, make_points([0] * 200 + [1, 0, 1, 0, 1] + [0] * 300))
    held = [n for n, each in enumerate(said) if each.holds]
    assert (held[0], held[-1]) == (204, 249)

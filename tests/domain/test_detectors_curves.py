"""The detectors of loss and gradient norm, case by case, at the settings of the default rules."""

import math
import random

import pytest
from recorded_runs import make_points

from server.domain.default_rules import DEFAULT_RULES
from server.domain.detectors import DETECTORS, with_defaults
from server.domain.detectors.base import DetectorKind
from server.domain.points import Point
from server.domain.rules import settings_of
from trainer_agent.wire import series

NAN, INF = math.nan, math.inf
RULES = {rule.rule_id: rule for rule in DEFAULT_RULES}


def first_hold(rule_id, points, companions=(), **settings):
    """The position (from 0) of the first point at which the rule's condition holds; None where it never does."""
    rule = RULES[rule_id]
    detector, settings = DETECTORS[rule.detector], settings_of(rule) | settings
    state, beside = detector.start(), {point.step: point for point in companions}
    for at, point in enumerate(points):
        if point.step in beside:
            state = detector.observe(state, beside[point.step], settings)
        state, verdict = detector.step(state, point, settings)
        if verdict.holds:
            return at
    return None


def first_of(rule_id, values, **settings):
    return first_hold(rule_id, make_points(values), **settings)


def noisy(levels, sigma, seed=7):
    chance = random.Random(seed)
    return [level * math.exp(chance.gauss(0, sigma)) for level in levels]


CALM = noisy([2.0] * 40, 0.03)


@pytest.mark.parametrize(
    ("after", "holds_at"),
    [
        ([4.0], None),  # one batch of twice the median is an outlier
        ([4.0, 2.0, 4.0], 42),
        ([4.0, 2.0, 2.0, 4.0], None),
        ([5.0], 40),  # 2.5 times and far beyond the noise: alone
        ([2.8, 2.8, 2.8], None),  # within the ratio
        ([NAN, INF, NAN], None),
        ([0.0, 0.0, 0.0], None),
    ],
)
def test_a_loss_spikes_in_two_of_three_points_or_in_one_that_is_huge(after, holds_at):
    assert first_of("loss-spike", CALM + after) == holds_at


def test_a_loss_as_noisy_as_a_small_batch_makes_it_is_left_alone():
    alarmed = [seed for seed in range(40) if first_of("loss-spike", noisy([2.0] * 300, 0.2, seed)) is not None]
    assert len(alarmed) <= 2


@pytest.mark.parametrize(
    ("values", "holds_at"),
    [
        ([7, 12.4, 30.4, 23.8, 20.6, 13.5, 15.3, 13.1, 10.9, 8.3, 7, 6.5, 6, 5.8], None),  # climbs at once, and comes back
        ([7, 6.8, 6.5, 6.6, 20.7], 4),  # had come down before
        ([7, 6.8, 6.5, 6.6, 11.5, 12.0], 5),
        ([7, 8.2, 28.9, 25.5, 7.6, 26.0], 5),  # an overshoot that was over does not come twice
        ([0.23, 0.35, 0.32, 0.29, 0.35, 0.31], None),  # an easy first batch
    ],
)
def test_a_young_run_is_judged_by_its_first_values_once_its_overshoot_is_over(values, holds_at):
    assert first_of("loss-spike", values) == holds_at


def test_twice_above_the_first_value_of_all_counts_though_the_ratio_is_small():
    falling = [4.85, 4.62, 4.55, 4.54, 4.54, 4.53, 4.53, 4.52, 4.51, 4.51, 4.5]
    assert first_of("loss-spike", [*falling, 5.51, 4.96]) == 12
    assert first_of("loss-spike", [*falling, 4.7, 4.7]) is None


@pytest.mark.parametrize("rule_id", ["loss-spike", "loss-diverges"])
def test_an_objective_that_goes_below_zero_is_no_magnitude(rule_id):
    values = [math.sin(n) for n in range(60)] + [9.0] * 60
    assert first_of(rule_id, values) is None
    assert first_of(rule_id, [0.0] + [1e-4] * 60 + [9.0] * 60) is None  # begins at zero: an objective without a scale


def test_single_batches_after_means_of_fifty_steps_are_not_judged_by_the_noise_of_the_means():
    means = [Point(series.LOSS, 1, 0, n, 50 * n, 0.0, v) for n, v in enumerate(noisy([2.0] * 60, 0.005), 1)]
    single = [Point(series.LOSS, 1, 0, 100 + n, 3000 + n, 0.0, v) for n, v in enumerate(noisy([2.0] * 300, 0.2), 1)]
    for rule_id in ("loss-spike", "loss-diverges"):
        assert first_hold(rule_id, means + single) is None


def test_an_odd_distance_between_two_points_changes_no_pace():
    steps = [*range(50, 2000, 50), 2003, *range(2050, 3000, 50)]
    values = [2.0 + 0.01 * math.sin(n) for n in range(len(steps) - 2)] + [4.3, 4.3]
    points = [Point(series.LOSS, 1, 0, n, step, 0.0, value) for n, (step, value) in enumerate(zip(steps, values, strict=True), 1)]
    assert first_hold("loss-spike", points) == len(points) - 1


def test_a_step_down_at_an_epoch_alarms_nobody():
    values = noisy([2.0] * 200 + [1.4] * 200 + [1.0] * 200, 0.05)
    for rule_id in ("loss-spike", "loss-diverges", "loss-frozen", "loss-zero"):
        assert first_of(rule_id, values) is None


def test_a_level_that_stays_is_the_new_normal_to_the_spike_and_goes_on_for_the_divergence():
    values = CALM + noisy([4.0] * 60, 0.03)
    detector, settings = DETECTORS[DetectorKind.SPIKE], settings_of(RULES["loss-spike"])
    state, held = detector.start(), []
    for point in make_points(values):
        state, verdict = detector.step(state, point, settings)
        held.append(verdict.holds)
    assert held[42] is True
    assert held[-1] is False
    assert first_of("loss-diverges", values) == 46  # five points until the median is up, five that it stays


@pytest.mark.parametrize(
    ("values", "holds_at"),
    [
        (noisy([3.5] * 20 + [3.5 + 0.05 * n for n in range(30)], 0.005), 36),  # slowly, 1.15 times and more
        (noisy([3.5] * 4000, 0.15), None),  # the best of 4,000 noisy points is low by chance
        ([10.0] + [5.0] * 4, None),
    ],
)
def test_a_level_diverges_when_it_leaves_its_best_by_ratio_and_by_noise(values, holds_at):
    found = first_of("loss-diverges", values)
    assert found == holds_at if holds_at is None else abs(found - holds_at) <= 3


def test_a_slow_rise_under_much_noise_is_seen_by_the_slow_level():
    rising = [2.0] * 300 + [2.0 * 1.004**n for n in range(200)]
    values = noisy(rising, 0.12)
    assert 380 < first_of("loss-diverges", values) < 480


def test_a_young_run_that_gives_back_most_of_its_fall_has_relapsed():
    values = [4.82, 4.2, 3.82, 1.85, 1.32, 0.07, 2.26, 1.38, 3.02, 5.35, 3.79]  # a real one
    assert first_of("loss-diverges", [*values, 3.7]) == 11
    assert first_of("loss-diverges", values, give_back=0.0) is None
    assert first_of("loss-diverges", [4.82, 4.2, 3.82, 3.5, 3.3, 3.2, 3.9, 4.1, 4.2]) is None  # had not fallen by half


@pytest.mark.parametrize(
    ("values", "holds_at"),
    [
        ([4.2, 3.9, 3.6, 3.5] + [4.08] * 12, 13),
        ([4.2, 3.9, 3.6, 3.5] + [3.5] * 50, None),  # converged
        ([4.2, 3.9, 3.6, 3.5] + [3.6] * 50, None),  # a little above its best
        ([4.2, 3.9, 3.6, 3.5] + [4.08, 4.09] * 20, None),
        ([4.2, 3.9, 3.5] + [4.08] * 5 + [NAN] + [4.08] * 5, 13),
    ],
)
def test_a_loss_is_frozen_when_it_stands_still_where_much_is_lost(values, holds_at):
    assert first_of("loss-frozen", values) == holds_at


@pytest.mark.parametrize(
    ("losses", "norms", "holds_at"),
    [
        ([0.0] * 12, [0.0] * 12, 9),  # nothing is learnt from the first point on
        ([0.0] * 12, [NAN] * 12, 9),
        ([0.0] * 60, [0.5] * 60, None),  # rewards without a spread: zero with a gradient
        ([0.0] * 60, [], None),
        ([2.0] * 12 + [0.0, 2.0, 0.0, 2.0, 0.0], [], 16),  # means of what was left of NaN
        ([2.0] * 12 + [0.0, 2.0, 0.0], [], None),
        ([2.0, 0.5, 0.1, 0.02] * 4 + [0.0] * 12, [], None),  # a fit so good that four digits show 0
        ([5.4] * 12 + [4.7, 4.6, 4.5], [1.0] * 12 + [NAN] * 3, 14),  # dips while the gradient is NaN
        ([5.4] * 12 + [4.7, 4.6, 4.5], [1.0] * 15, None),
    ],
)
def test_a_zero_is_believed_only_where_it_can_be(losses, norms, holds_at):
    assert first_hold("loss-zero", make_points(losses), make_points(norms, series.GRAD_NORM)) == holds_at


@pytest.mark.parametrize(
    ("losses", "spread", "holds_at"),
    [
        (noisy([9.7] * 200, 0.003), 2.0, 127),
        (noisy([9.7] * 200, 0.003), 0.3, None),  # slow, with a gradient as it should be
        (noisy([9.7] * 60 + [8.0] + [9.7] * 139, 0.003), 2.0, None),  # has learnt once
        ([-v for v in noisy([9.7] * 200, 0.003)], 2.0, None),
    ],
)
def test_nothing_is_learnt_when_the_loss_never_fell_and_the_gradient_leaps(losses, spread, holds_at):
    norms = make_points(noisy([10.0] * len(losses), spread), series.GRAD_NORM)
    assert first_hold("no-learning", make_points(losses), norms) == holds_at


def test_a_plateau_asks_for_no_gradient_where_it_is_told_so():
    assert first_of("no-learning", noisy([9.7] * 200, 0.003), erratic=0.0) == 127


@pytest.mark.parametrize(
    ("values", "holds_at"),
    [
        ([1.0] * 5 + [1.3] * 5 + [1.7] * 5 + [2.2] * 5, 19),
        ([1.0] * 5 + [1.3] * 5 + [1.7] * 5 + [1.9] * 5, None),  # not twice
        ([1.0] * 5 + [1.5] * 5 + [1.4] * 5 + [2.2] * 5 + [2.5] * 5, None),  # fell between
        ([-1.0] * 40, None),
    ],
)
def test_a_ramp_is_three_rises_of_the_median_to_twice_its_value(values, holds_at):
    assert first_of("grad-norm-ramp", values) == holds_at


def test_medians_of_an_erratic_series_ramp_by_chance_and_are_left_alone():
    assert first_of("grad-norm-ramp", noisy([1.0] * 3000, 1.0)) is None


@pytest.mark.parametrize(
    ("values", "holds_at"),
    [
        ([1.0] * 50 + [INF] + [1.0] * 50, None),
        ([1.0] * 50 + [INF, 1.0, INF, 1.0, 1.0, NAN], 55),
        ([1.0] * 50 + [INF, INF] + [1.0] * 10 + [INF], None),
        ([INF] * 16 + [1.0] * 50, None),  # a loss scaler searching
        ([INF] * 40, 32),
    ],
)
def test_gradient_norms_may_be_infinite_now_and_then_and_at_the_start(values, holds_at):
    assert first_of("grad-norm-not-finite", values) == holds_at


@pytest.mark.parametrize(
    ("after", "holds_at"),
    [
        ([20.0], None),
        ([20.0, 1.0, 20.0], None),
        ([20.0, 1.0, 20.0, 1.0, 20.0], 44),
        ([2.5] * 10, None),
    ],
)
def test_a_gradient_norm_spikes_in_three_of_five_points(after, holds_at):
    assert first_of("grad-norm-spike", noisy([1.0] * 40, 0.1) + after) == holds_at


@pytest.mark.parametrize(
    ("step", "values", "holds_at"),
    [
        (1, [float(n) for n in range(50)], None),  # logged each step: only means of ten are compared, and there are five of them
        (1, [float(n) for n in range(100)], 59),
        (1, [float(n % 10) for n in range(200)], None),  # rises nine times in a row within a mean, and no mean is above another
        (50, [1, 2, 3, 4, 5, 6], 5),
        (50, [1, 2, 3, 4, 5, 5], None),
    ],
)
def test_five_rises_are_of_logged_points_or_of_means_of_ten_steps(step, values, holds_at):
    points = [Point(series.LOSS, 1, 0, n, 1000 + step * n, 0.0, float(value)) for n, value in enumerate(values, 1)]
    assert first_hold("loss-rises-5", points) == holds_at


def test_the_defaults_of_a_detector_are_within_what_it_takes():
    for kind, detector in DETECTORS.items():
        for name, value in with_defaults(kind, {}).items():
            setting = detector.settings[name]
            assert setting.minimum <= value <= setting.maximum, f"{kind} {name}"

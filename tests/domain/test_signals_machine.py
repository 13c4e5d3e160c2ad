"""What says that the machine, not the model, is in trouble: slow steps, memory that creeps, a rank that lags."""

import itertools
import math
import random

import pytest
from recorded_runs import make_points

from server.domain.detectors import DETECTORS, DetectorKind, with_defaults
from server.domain.detectors.base import RANKS
from server.domain.judging import ALL_RANKS, Judging
from server.domain.points import Point
from server.domain.rules import AlertRule
from trainer_agent.wire import series

GB = 1e9
NAN, INF = math.nan, math.inf


def verdicts(kind, values, name, **settings):
    detector = DETECTORS[kind]
    state, filled, out = detector.start(), with_defaults(kind, settings), []
    for point in make_points(values, name):
        state, verdict = detector.step(state, point, filled)
        out.append(verdict)
    return out


def held(kind, values, name, **settings):
    return [n for n, said in enumerate(verdicts(kind, values, name, **settings), 1) if said.holds]


def noisy(level, count, spread=0.05, seed=1):
    chance = random.Random(seed)
    return [level * (1 + chance.gauss(0.0, spread)) for _ in range(count)]


# --- slowdown


@pytest.mark.parametrize(
    ("values", "first"),
    [
        (noisy(0.3, 1000), None),
        (noisy(0.3, 300) + noisy(0.5, 300, seed=2), 350),  # five tens in a row
        (noisy(0.3, 300) + noisy(0.4, 300, seed=2), None),  # a third slower is not yet it
        (noisy(0.3, 300) + noisy(3.0, 40, seed=2) + noisy(0.3, 300), None),  # over too soon
        (noisy(0.3, 190) + noisy(0.6, 300, seed=2), 250),  # the past must be known first
        ([NAN, INF, 0.0, -1.0] * 200, None),
        ([30.0] * 5 + noisy(0.3, 1000), None),  # it compiled first
        (noisy(0.3, 400) + ([5.0] + [0.3] * 9) * 40, None),  # saves at every tenth step from then on
    ],
)
def test_steps_are_slow_once_fifty_in_a_row_take_half_as_long_again_as_before(values, first):
    found = held(DetectorKind.SLOWDOWN, values, series.STEP_SECONDS)
    assert (found[0] if found else None) == first


def test_evaluation_checkpoint_and_epoch_pauses_are_single_points_and_no_slowdown():
    values = noisy(0.3, 5000)
    values = [60.0 if n % 50 == 0 else 5.0 if n % 50 == 1 else value for n, value in enumerate(values, 1)]
    assert held(DetectorKind.SLOWDOWN, values, series.STEP_SECONDS) == []


def test_throughput_is_judged_downwards_and_step_time_upwards():
    faster, slower = noisy(1000.0, 300) + noisy(2000.0, 300), noisy(1000.0, 300) + noisy(500.0, 300)
    assert held(DetectorKind.SLOWDOWN, faster, series.TOKENS_PER_SECOND) == []
    assert held(DetectorKind.SLOWDOWN, slower, series.TOKENS_PER_SECOND)[0] == 350
    assert held(DetectorKind.SLOWDOWN, slower, series.STEP_SECONDS) == []


def test_a_pace_that_stays_becomes_the_usual_one_and_the_alert_ends():
    found = held(DetectorKind.SLOWDOWN, noisy(0.3, 400) + noisy(0.6, 1000, seed=2), series.STEP_SECONDS)
    assert found == list(range(found[0], found[-1] + 1))
    assert 150 < found[-1] - 400 < 320


def test_it_says_how_long_and_by_how_much():
    said = verdicts(DetectorKind.SLOWDOWN, [0.2] * 300 + [0.5] * 60, series.STEP_SECONDS)[-1]
    evidence = {"level": 0.5, "usual": 0.2, "points": 60.0}
    assert (said.limit, dict(said.evidence)) == (pytest.approx(0.3), evidence)


# --- creep


def leak(start, per_point, count=3000, spread=0.0, seed=1):
    chance = random.Random(seed)
    return [start + per_point * n + chance.gauss(0.0, spread * start) for n in range(count)]


def sawtooth(low, high, period, count=5000):
    return [low + (high - low) * (n % period) / period for n in range(count)]


@pytest.mark.parametrize(
    ("values", "creeps"),
    [
        (leak(8 * GB, 2e6), True),
        (leak(8 * GB, 2e6, spread=0.01), True),
        (leak(8 * GB, 1e5), False),  # 2 % over the window: nobody minds
        (leak(8 * GB, 0.0, spread=0.02), False),
        ([8 * GB + 20e6 * (n // 12) for n in range(3000)], True),  # an allocator grows in steps
        ([8 * GB * (1 - math.exp(-n / 120)) + 1 for n in range(5000)], False),  # warms up and is full
        (sawtooth(2 * GB, 4 * GB, 700), False),  # comes and goes with the epochs
        (sawtooth(2 * GB, 4 * GB, 97), False),
        ([4 * GB] * 2000 + [8 * GB] * 3000, False),  # one jump, then level
        ([4 * GB + 1 * GB * (n // 1000) for n in range(5000)], False),  # a jump now and then
        ([8 * GB + 2e6 * n + GB * (n // 32 % 2) for n in range(3000)], False),  # comes and goes, if ever higher
        (leak(8 * GB, -2e6), False),
        ([NAN, INF, 0.0] * 1000, False),
    ],
)
def test_memory_creeps_where_it_grows_on_and_on_and_by_much(values, creeps):
    found = held(DetectorKind.CREEP, values, series.GPU_MEMORY_BYTES)
    assert bool(found) is creeps


def test_growth_in_the_first_few_hundred_points_is_warm_up():
    values = leak(1 * GB, 10e6, 500) + leak(6 * GB, 1e5, 3000)
    assert held(DetectorKind.CREEP, values, series.HOST_MEMORY_BYTES) == []


def test_a_slow_leak_is_told_where_the_capacity_is_given_and_will_not_last():
    values = leak(70 * GB, 3e6, 4000)
    assert held(DetectorKind.CREEP, values, series.GPU_MEMORY_BYTES) == []
    found = held(DetectorKind.CREEP, values, series.GPU_MEMORY_BYTES, capacity=80 * GB)
    said = verdicts(DetectorKind.CREEP, values, series.GPU_MEMORY_BYTES, capacity=80 * GB)[found[0] - 1]
    left = dict(said.evidence)["left"]
    assert left <= 2000
    assert left == pytest.approx((80 * GB - values[found[0] - 1]) / 3e6, rel=0.05)
    assert held(DetectorKind.CREEP, values, series.GPU_MEMORY_BYTES, capacity=800 * GB) == []


def test_a_leak_that_was_stopped_is_over():
    values = leak(8 * GB, 2e6, 3000)
    found = held(DetectorKind.CREEP, values + [values[-1]] * 3000, series.GPU_MEMORY_BYTES)
    assert found[0] < 2100
    assert 3000 < found[-1] < 4600


# --- straggler


def of_ranks(seconds_of, steps=400, name=series.OWN_SECONDS):
    """The points of each rank, in its own order; `seconds_of(rank, step)` for as many ranks as it has."""
    return [
        [Point(name, 1, rank, step, step, 1e9 + step, of(step)) for step in range(1, steps + 1)]
        for rank, of in enumerate(seconds_of)
    ]


def steady(seconds, seed=0, spread=0.05):
    chance = random.Random(seed)
    return lambda step: seconds * (1 + chance.gauss(0.0, spread)) if step else 0.0


def slow_from(step_from, seconds, slow, seed=0):
    quick, lagging = steady(seconds, seed), steady(slow, seed + 100)
    return lambda step: lagging(step) if step >= step_from else quick(step)


def mixed(ranks, seed):
    """The ranks' points in one of their many orders, each rank's own kept, as they come in batches."""
    chance, left = random.Random(seed), [list(points) for points in ranks]
    while any(left):
        mine = chance.choice([points for points in left if points])
        count = chance.randint(1, 60)
        yield from mine[:count]
        del mine[:count]


RULE = AlertRule("slow", "Slow", "Slow", series.OWN_SECONDS, DetectorKind.STRAGGLER, keep_firing_for_points=3)


def judged(points, ranks):
    """What becomes of the alert, in the words that are kept of it; each rank has a judging of its own, as in the server."""
    of = {}
    for rank in range(ranks):
        of[rank] = Judging("run", "p", rank, [RULE], ranks=ranks)
        of[rank].share(of[0])
    changes = [change for point in points for change in of[point.rank].judge(point)]
    return [
        (each.outcome.after, each.key, each.point.rank, each.point.step, each.outcome.status, each.verdict) for each in changes
    ]


def test_the_slow_one_of_four_ranks_is_named_whatever_the_order_in_which_their_points_arrive():
    ranks = of_ranks([steady(0.1, 1), steady(0.1, 2), slow_from(201, 0.1, 0.25, 3), steady(0.1, 4)])
    orders = [itertools.chain(*zip(*ranks, strict=True)), *(mixed(ranks, seed) for seed in range(30))]
    told = [judged(order, 4) for order in orders]
    state, key, rank, step, _, verdict = told[0][0]
    assert all(each == told[0] for each in told)
    assert (len(told[0]), state, key, rank) == (1, "firing", ("slow", series.OWN_SECONDS, ALL_RANKS), ALL_RANKS)
    evidence = dict(verdict.evidence)
    assert (evidence["rank"], evidence["ranks"], step) == (2.0, 4.0, 259)  # the third round of slow steps: 240 .. 259
    assert verdict.value == pytest.approx(0.25, rel=0.1)
    assert verdict.limit == pytest.approx(0.15, rel=0.1)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_ranks_that_arrive_one_after_the_other_come_to_the_same(order):
    ranks = of_ranks([steady(0.1, 1), slow_from(201, 0.1, 0.3, 2), steady(0.1, 3)])
    whole = [point for rank in order for point in ranks[rank]]
    assert judged(whole, 3) == judged(itertools.chain(*zip(*ranks, strict=True)), 3)


@pytest.mark.parametrize(
    "seconds_of",
    [
        [steady(0.1, n) for n in range(8)],
        [steady(0.1, n, spread=0.5) for n in range(8)],
        [slow_from(1, 0.1, 0.13, n) if n == 3 else steady(0.1, n) for n in range(8)],  # a third slower
        [steady(1e-4, 0), steady(4e-4, 1)],  # less than 5 ms: nobody minds
        [lambda step: 5.0 if step % 50 == 0 else 0.1, steady(0.1, 1)],  # rank 0 saves now and then
        [lambda step: 0.5 if step <= 40 else 0.1, steady(0.1, 1)],  # compiles longer
        [lambda step: 0.3 if step % 120 < 40 else 0.1, steady(0.1, 1)],  # slow for two rounds, again and again
        [lambda step: NAN, steady(0.1, 1)],
        [steady(0.1, 1)],
        [slow_from(1, 0.1, 0.3, n) for n in range(4)],  # all of them
    ],
)
def test_ranks_that_are_alike_and_short_delays_are_no_straggler(seconds_of):
    assert judged(mixed(of_ranks(seconds_of), 1), len(seconds_of)) == []


def test_of_two_slow_ranks_the_slower_is_named():
    ranks = [steady(0.1, n) for n in range(6)] + [slow_from(101, 0.1, 0.3, 6), slow_from(101, 0.1, 0.4, 7)]
    told = judged(mixed(of_ranks(ranks), 3), 8)
    assert dict(told[0][-1].evidence)["rank"] == 7.0


def test_a_straggler_that_keeps_up_again_is_over():
    def lag(step):
        return 0.3 if 100 <= step < 200 else 0.1

    told = judged(mixed(of_ranks([steady(0.1, 1), lag]), 3), 2)
    assert [(each[0], each[3]) for each in told] == [("firing", 159), ("recovering", 219), ("resolved", 259)]


def test_a_rank_of_which_nothing_is_heard_yet_is_waited_for():
    ranks = of_ranks([steady(0.1, 1), slow_from(1, 0.1, 0.3, 2)])
    assert judged(mixed(ranks, 1), 3) == []


def test_without_a_word_on_how_many_ranks_there_are_those_seen_are_compared():
    ranks = of_ranks([steady(0.1, 1), slow_from(101, 0.1, 0.3, 2)])
    settings = with_defaults(DetectorKind.STRAGGLER, {}) | {RANKS: 0.0}
    detector = DETECTORS[DetectorKind.STRAGGLER]
    state, found = detector.start(), []
    for point in itertools.chain(*zip(*ranks, strict=True)):
        state, said = detector.step(state, point, settings)
        found += [said] * bool(said.holds)
    assert dict(found[0].evidence)["rank"] == 1.0

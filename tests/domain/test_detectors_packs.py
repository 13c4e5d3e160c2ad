"""The default pack as the server runs it, on the story, on the recorded runs and on healthy runs made up for the purpose."""

import math
import random
from itertools import pairwise

import pytest
from recorded_runs import points_of

from server.domain.default_rules import DEFAULT_RULES
from server.domain.judging import Judging
from server.domain.points import Point
from trainer_agent.wire import series
from trainer_agent.wire.vocabulary import AlertState, Severity

GRAD_NORMS = [(4900, 2.3), (4950, 3.1), (4980, 5.8), (5000, 12.5), (5010, 156.2), (5020, 1024.0)]
DEAD = 235
"""The step from which on the recorded run is dead."""


def paging(points):
    """By rule: the step at which it first fires, at `warning` or above. Points in the order in which an agent sends them."""
    judging, first = Judging("run", "", 0, DEFAULT_RULES), {}
    for point in points:
        for change in judging.judge(point):
            if change.outcome.after is AlertState.FIRING and change.rule.severity is not Severity.INFO:
                first.setdefault(change.rule.rule_id, point.step)
    return first


def in_order(rows):
    """Points of rows (step, {series: value})."""
    for seq, (step, values) in enumerate(rows, 1):
        for name in sorted(values):
            yield Point(name, 1, 0, seq, step, 1e9 + step, float(values[name]))


def between(marks):
    """Values at every step, on straight lines between the marks."""
    for (begin, low), (end, high) in pairwise(marks):
        yield from ((step, low + (high - low) * (step - begin) / (end - begin)) for step in range(begin, end))
    yield marks[-1]


def story(losses, noise, seed):
    chance = random.Random(seed)
    for step in range(4700, 4900):
        yield (
            step,
            {series.LOSS: 1.8 * math.exp(chance.gauss(0, noise / 4)), series.GRAD_NORM: 2.3 * math.exp(chance.gauss(0, noise))},
        )
    told = dict(losses)
    for step, norm in between(GRAD_NORMS):
        yield step, {series.GRAD_NORM: norm} | ({series.LOSS: told[step]} if step in told else {})


QUIET_LOSS = [(step, 1.8) for step in range(4900, 5000)]
RISING_LOSS = list(between([(4980, 1.8), (5000, 3.5), (5010, 15.2)]))


@pytest.mark.parametrize("losses", [[], QUIET_LOSS, RISING_LOSS], ids=["no loss", "quiet loss", "loss as told"])
@pytest.mark.parametrize("noise", [0.02, 0.1, 0.2])
def test_the_story_is_announced_by_step_5000_by_a_rule_other_than_over_10(losses, noise):
    first = paging(in_order(story(losses, noise, seed=1)))
    assert min(step for rule_id, step in first.items() if rule_id != "grad-norm-over-10") <= 5000


def recorded(run):
    loss, norm, skipped = (points_of(run, column) for column in ("loss", "grad_norm", "skipped"))
    return sorted([*loss, *norm, *skipped], key=lambda point: (point.seq, point.series))


def test_the_recorded_death_is_announced_ten_steps_before_and_more():
    first = paging(recorded("dies"))
    assert min(first.values()) <= DEAD - 10
    assert first["loss-not-finite"] == DEAD


def test_its_healthy_twin_pages_nobody():
    assert paging(recorded("healthy")) == {}


def healthy_run(seed, steps):
    """A run in fp16 that logs every step: warm-up, noise, a skip in 2,000 steps, a second epoch, evaluations between."""
    chance = random.Random(seed)
    scale, clean = 65536.0, 0
    for step in range(1, steps + 1):
        skipped = step <= 6 or chance.random() < 1 / 2000
        scale, clean = (scale / 2, 0) if skipped else (scale, clean + 1)
        if clean == 2000:
            scale, clean = scale * 2, 0
        level = (2.2 + 7.5 * math.exp(-step / 400)) * (0.85 if step > steps // 2 else 1.0)
        pause = 90.0 if step % 1000 == 0 else 0.0
        seconds = 0.4 * math.exp(chance.gauss(0, 0.05))
        yield (
            step,
            {
                series.LOSS: level * math.exp(chance.gauss(0, 0.08)),
                series.GRAD_NORM: math.inf if skipped else (0.6 + 4 * math.exp(-step / 200)) * math.exp(chance.gauss(0, 0.3)),
                series.LEARNING_RATE: 3e-4 * min(1.0, step / 500) * (1 - 0.9 * step / steps),
                series.LOSS_SCALE: scale,
                series.OVERFLOW: float(skipped),
                series.STEP_SECONDS: seconds + pause,
                series.TOKENS_PER_SECOND: 8192 / seconds,
            },
        )


@pytest.mark.parametrize(("seed", "steps"), [(1, 20_000), (2, 5_000), (3, 5_000), (4, 5_000)])
def test_healthy_steps_by_the_thousand_page_nobody(seed, steps):
    assert paging(in_order(healthy_run(seed, steps))) == {}


def test_a_small_loss_that_is_logged_rounded_pages_nobody():
    chance = random.Random(3)
    curve = [0.02 + 2.98 * math.exp(-step / 200) for step in range(3000)]
    rounded = [round(level * math.exp(chance.gauss(0, 0.2)), 2) for level in curve]
    assert not paging([Point(series.LOSS, 1, 0, n, n, 1e9 + n, value) for n, value in enumerate(rounded, 1)])

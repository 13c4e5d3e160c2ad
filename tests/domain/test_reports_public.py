"""Public reports of trainings gone wrong, rebuilt as short series: what the default rules say of each.

The rows are those of the reports that the rules were designed on; each test names its repository and number.
"""

import math
import random

import pytest

from server.domain.alerts import FIRED
from server.domain.default_rules import DEFAULT_RULES
from server.domain.judging import Judging
from server.domain.points import Point
from server.domain.wording import describe
from trainer_agent.wire import series
from trainer_agent.wire.vocabulary import AlertState, Severity

NAN = math.nan
NAMES = {
    "loss": series.LOSS,
    "norm": series.GRAD_NORM,
    "scale": series.LOSS_SCALE,
    "skip": series.OVERFLOW,
    "rate": series.LEARNING_RATE,
}


class Told:
    """What the default pack says of a series: first firing of each rule, and which are open at the end."""

    def __init__(self, rows):
        judging, self.first, self.text, self.open = Judging("run", "project", 0, DEFAULT_RULES), {}, {}, set()
        for seq, (step, values) in enumerate(rows, 1):
            for name in sorted(values, key=NAMES.get):
                self._take(judging, Point(NAMES[name], 1, 0, seq, step, 1e9 + seq, float(values[name])))

    def _take(self, judging, point):
        for change in judging.judge(point):
            rule, after = change.rule, change.outcome.after
            if after is AlertState.FIRING and rule.rule_id not in self.first:
                onset = change.outcome.status.onset_step
                self.first[rule.rule_id] = point.step
                self.text[rule.rule_id] = describe(rule, change.verdict, onset, change.point.rank)
            (self.open.add if after in FIRED else self.open.discard)(rule.rule_id)

    def at_least(self, severity):
        wanted = {Severity.CRITICAL} if severity is Severity.CRITICAL else {Severity.CRITICAL, Severity.WARNING}
        serious = {rule.rule_id for rule in DEFAULT_RULES if rule.severity in wanted}
        return {rule_id: step for rule_id, step in self.first.items() if rule_id in serious}


def healthy(step, chance, level=3.0):
    """fp16 in good order."""
    values = {"loss": level + chance.gauss(0, 0.05), "norm": 0.8 * math.exp(chance.gauss(0, 0.15)), "scale": 65536.0, "skip": 0.0}
    return step, values


def test_row_2_a_scale_that_is_used_up_is_no_update_any_more_and_its_low_loss_is_not_real():
    """huggingface/transformers 14834: after epochs the loss drops sharply, evaluation is NaN; scale 1, every step skipped."""
    chance = random.Random(2)
    rows = [healthy(step, chance) for step in range(1, 2001)]
    for step in range(2001, 4001):
        scale = 65536.0 / 2 ** min(step - 2001, 16)
        loss = 1.1 + chance.gauss(0, 0.02)  # the mean of what the trainer's filter has left
        rows.append((step, {"loss": loss, "norm": math.inf, "scale": scale, "skip": 1.0}))
    told = Told(rows)
    assert [step for step in told.at_least(Severity.WARNING).values() if step <= 2000] == []
    assert told.first["steps-skipped"] == 2004
    assert told.first["loss-scale-collapse"] == 2010, "before it has come to 1"
    assert "steps in a row were skipped" in told.text["steps-skipped"]
    assert told.text["steps-skipped"].endswith("since step 2004")
    assert {"steps-skipped", "loss-scale-collapse"} <= told.open, "for as long as nothing is learnt"


def test_row_6_a_loss_that_climbs_for_good_is_a_slow_divergence():
    """karpathy/nanoGPT 137, 524, 554: the loss falls, then climbs between 30k and 100k steps."""
    chance = random.Random(6)
    rows = []
    for step in range(0, 60_001, 100):
        fallen = 3.1 + 7.8 * math.exp(-step / 3000)
        climbed = max(0, step - 30_000) / 30_000 * 2.0
        rows.append((step, {"loss": fallen + climbed + chance.gauss(0, 0.04), "norm": 0.5 * math.exp(chance.gauss(0, 0.1))}))
    told = Told(rows)
    assert 30_000 < told.first["loss-diverges"] < 50_000
    assert [step for step in told.at_least(Severity.WARNING).values() if step <= 30_000] == []


def test_row_9_a_scale_that_walks_down_to_1_trains_nothing():
    """microsoft/DeepSpeed 697: 8, 4, ... 1 within 130 steps, and no learning."""
    chance = random.Random(9)
    rows = []
    for step in range(1, 200):
        scale = max(8.0 / 2 ** (step // 35), 1.0)
        skip = 1.0 if scale == 1.0 or step % 35 == 34 else 0.0
        rows.append((step, {"loss": 10.8 + chance.gauss(0, 0.05), "norm": 40.0, "scale": scale, "skip": skip}))
    told = Told(rows)
    assert told.first["loss-scale-collapse"] == 105, "the step at which it comes to 1"
    assert 105 < told.first["steps-skipped"] <= 109
    assert "from 8 to 1" in told.text["loss-scale-collapse"]


def test_row_13_nan_in_the_forward_pass_of_fp16_is_told_at_once_and_blames_no_batch():
    """huggingface/transformers 11076: a model trained in bf16 gives NaN in fp16 at full length."""
    chance = random.Random(13)
    rows = [healthy(step, chance) for step in range(1, 4)]
    rows += [(step, {"loss": NAN, "norm": NAN, "scale": 65536.0 / 2 ** (step - 4), "skip": 1.0}) for step in range(4, 40)]
    told = Told(rows)
    assert told.at_least(Severity.CRITICAL) == {"loss-not-finite": 4, "steps-skipped": 20}, "16 halvings are its search"
    assert told.text["loss-not-finite"] == "train/loss is NaN, since step 4"
    assert not {"loss-spike", "grad-norm-spike", "loss-diverges"} & set(told.first)


@pytest.mark.parametrize(("norm", "every"), [(0.0, 1), (NAN, 1), (0.0, 10), (NAN, 10)])
def test_row_15_a_loss_logged_as_zero_is_nothing_learnt_and_no_fine_run(norm, every):
    """huggingface/trl 6668: truncation has left no supervised token; NaN is filtered to 0.0 and the run looks fine."""
    told = Told([(step, {"loss": 0.0, "norm": norm, "rate": 2e-5}) for step in range(every, 100 * every, every)])
    assert told.first["loss-zero"] <= 20 * every
    assert "loss-zero" in told.open
    assert not {"loss-spike", "loss-diverges"} & set(told.first)


def test_row_21_early_instability_warns_long_before_the_nan():
    """lucidrains/flash-cosine-sim-attention 8: GPT-2 in fp16 is unstable from 20k on and NaN at 65k."""
    chance = random.Random(21)
    rows = []
    for step in range(0, 66_000, 50):
        _, values = healthy(step, chance, 3.0 + 7.0 * math.exp(-step / 2000))
        worse = min(1.0, max(0, step - 20_000) / 45_000)
        if step >= 20_000 and step % 2000 < 300:  # a burst each 2,000 steps, the later the harder
            values["norm"] *= 6 + 30 * worse
            values["loss"] *= 1.05 + worse
        if step >= 65_000:
            values = {"loss": NAN, "norm": NAN, "scale": 1.0, "skip": 1.0}
        rows.append((step, values))
    told = Told(rows)
    early = told.at_least(Severity.WARNING)
    assert 20_000 <= early["grad-norm-spike"] <= 25_000
    assert min(early.values()) >= 20_000
    assert told.first["loss-not-finite"] == 65_000


def test_twenty_thousand_healthy_steps_of_fp16_logged_each_step_say_nothing_at_warning(figure):
    """Noise, a skip in 2,000 with an infinite norm, a warm-up, epochs of 3,000 steps, pauses for evaluation."""
    chance, scale, rows = random.Random(25), 65536.0, []
    for step in range(1, 20_001):
        level = 3.0 + 7.0 * math.exp(-step / 800) - 0.15 * (step // 3000)
        _, values = healthy(step, chance, level)
        values["norm"] *= 1 + 4 * math.exp(-step / 60)
        values["rate"] = 6e-4 * min(step / 1000, 1.0)
        if step % 2000 == 0:
            values |= {"norm": math.inf, "skip": 1.0}
        rows.append((step, values | {"scale": scale}))
        scale = scale / 2 if step % 2000 == 0 else scale * 2 if step % 2000 == 1999 else scale
    told = Told(rows)
    found = told.at_least(Severity.WARNING)
    figure("F25", "alerts at warning in 20,000 healthy fp16 steps, whole pack", len(found), at_most=0)
    assert found == {}

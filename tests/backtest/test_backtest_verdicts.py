"""How a run came out, and what a rule's episodes on it are worth."""

import math
from dataclasses import replace
from random import Random

import pytest
from backtest_kit import NOW, rule

from server.domain.backtest_reports import Question, in_order, report
from server.domain.backtest_verdicts import Ended, LossCurve, Outcome, Verdict, death, departure, outcome, summary
from server.domain.imported_logs import read_log
from trainer_agent.wire import series
from trainer_agent.wire.vocabulary import Severity

NAN = math.nan
ABOVE = rule("above", "threshold", series.GRAD_NORM, {"above": 10.0}, keep_firing_for_points=5)


def curve(values, segment=1):
    return LossCurve(segment, list(range(1, len(values) + 1)), list(values))


@pytest.mark.parametrize(
    ("values", "is_last", "step"),
    [
        ([2.0, 1.9, 1.8], True, None),
        ([2.0, NAN, 1.8], True, None),  # a scaler skips that step
        ([2.0, NAN, math.inf, 1.8], True, None),
        ([2.0, NAN, math.inf, -math.inf, 1.8], True, 2),
        ([2.0, 1.9, NAN], True, 3),
        ([2.0, 1.9, NAN], False, None),  # the segment goes on in another
        ([NAN], True, 1),
        ([], True, None),
    ],
)
def test_a_loss_is_dead_when_it_stays_not_finite(values, is_last, step):
    assert death(curve(values), is_last=is_last) == step


INF = math.inf


@pytest.mark.parametrize(
    ("values", "norms", "step"),
    [
        ([2.0, 1.0, 0.7, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, NAN, INF, NAN], 4),
        ([2.0, 1.0, 0.7, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0], 4),
        ([2.0, 1.0, 0.7, 0.0, 0.0, 0.0], [], 4),
        ([0.0, 0.0, 0.0], [NAN, NAN, NAN], 1),
        ([0.0, 0.0, 0.0], [], None),  # a loss that is meant to be zero
        ([2.0, 1.0, 0.7, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.1, 0.1, 0.1], None),  # it has learnt all there is
        ([2.0, 1.0, 0.7, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, NAN, NAN, 0.1], None),
        ([2.0, 0.0, 0.0, 0.0, 0.7], [1.0, NAN, NAN, NAN, 1.0], None),  # it came back
        ([2.0, 1.0, 0.7, 0.8, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0, NAN, NAN], None),
    ],
)
def test_a_loss_of_zero_to_the_end_without_a_gradient_is_dead(values, norms, step):
    found = replace(curve(values), norms=dict(enumerate(norms, 1)))
    assert death(found, is_last=True) == step
    assert death(found, is_last=False) is None


def test_a_log_of_the_trainers_filter_is_dead_and_the_rule_on_zeros_sees_it():
    zero = Question((rule("zero", "zero"),), of_one_rule=True)
    told = judged([1.0] * 40 + [NAN] * 20, [2.0] * 40 + [0.0] * 20, zero)
    assert (told.outcome, told.ended_step, told.verdict) == (Outcome.DEAD, 41, Verdict.LATE)


def test_a_rule_whose_series_is_not_there_has_not_judged_and_names_what_is():
    for name in ("train/los", "trian/*"):
        told = judged([1.0] * 30, question=Question((replace(ABOVE, series=name),), of_one_rule=True))
        assert (told.outcome, told.verdict, told.row.verdict) == (Outcome.HEALTHY, Verdict.NOT_JUDGED, Verdict.NOT_JUDGED)
        assert told.problem == f"no series {name}; there are train/grad_norm, train/loss"
    assert judged([1.0] * 30, question=Question((replace(ABOVE, series="*norm"),), of_one_rule=True)).verdict is Verdict.QUIET
    assert judged([1.0] * 30, question=Question((replace(ABOVE, series="train/los"),))).verdict is Verdict.QUIET
    lost = judged([1.0] * 30, question=Question((rule("lost", "lost", "run/heartbeat"),), of_one_rule=True))
    assert (lost.verdict, lost.problem[:16]) == (Verdict.NOT_JUDGED, "rules on absence")


def noisy(levels, seed=1):
    random = Random(seed)
    return [level * (1 + 0.05 * random.gauss(0, 1)) for level in levels]


@pytest.mark.parametrize(
    ("levels", "around"),
    [
        ([3 - at / 200 for at in range(400)], None),
        ([3 - at / 200 for at in range(300)] + [2.5] * 100, 300),
        ([1.0] * 200 + [4.0] * 5 + [1.0] * 200, None),  # a spike that healed
        ([7.0] * 3 + [12.0] * 10 + [8.0 - at / 100 for at in range(300)], None),  # overshoot at the start
        ([2.0] * 10, None),  # too short to tell
        ([0.1, -0.1] * 200, None),  # no ratio means anything
    ],
)
def test_a_loss_that_leaves_its_best_level_for_good_has_diverged(levels, around):
    found = departure(curve(noisy(levels)))
    assert (found is None) == (around is None)
    assert found is None or abs(found - around) <= 25


def test_a_curve_of_a_million_points_is_looked_at_in_seconds():
    assert departure(curve([3 - at / 1_000_000 for at in range(1_000_000)])) is None


def test_the_outcome_says_what_is_stored_and_nothing_of_rules():
    calm = [curve([2.0] * 30)]
    assert outcome(Ended(finished=True), calm).outcome is Outcome.HEALTHY
    assert outcome(Ended(), calm).outcome is Outcome.UNKNOWN
    assert outcome(Ended(finished=True), []).outcome is Outcome.UNKNOWN
    assert outcome(Ended(guard_stop=(1, 25)), calm) == outcome(Ended(finished=True, guard_stop=(1, 25)), calm)
    assert (outcome(Ended(guard_stop=(1, 25)), calm).outcome, outcome(Ended(guard_stop=(1, 25)), calm).step) == (Outcome.DEAD, 25)
    left = outcome(Ended(finished=True, left=(1, 20)), [curve([2.0] * 20), curve([2.0] * 30, 2)])
    assert (left.outcome, left.segment, left.step) == (Outcome.DIVERGED, 1, 20)
    dead = outcome(Ended(finished=True), [curve([2.0, NAN, NAN, NAN]), curve([2.0] * 30, 2)])
    assert (dead.outcome, dead.segment, dead.step) == (Outcome.DEAD, 1, 2)


def judged(norms, losses=None, question=None, ended=None):
    losses = losses or [2.0] * len(norms)
    text = "step,loss,grad_norm\n" + "".join(
        f"{at},{loss},{norm}\n" for at, (loss, norm) in enumerate(zip(losses, norms, strict=True), 1)
    )
    asked = question or Question((ABOVE,), of_one_rule=True)
    return report(read_log("a", text).recording("log-1"), ended or Ended(finished=True), asked, NOW, name="a", log=1)


DEAD = [2.0] * 300 + [NAN] * 40


@pytest.mark.parametrize(
    ("high", "verdict", "lead"),
    [
        (range(280, 285), Verdict.EARLY, 21),
        (range(301, 305), Verdict.EARLY, 0),
        (range(306, 310), Verdict.LATE, -5),
        (range(320, 330), Verdict.MISSED, None),  # nobody needs it any more
        (range(50, 55), Verdict.MISSED, None),  # it was over long before
        (range(50, 330), Verdict.EARLY, 251),  # it never stopped saying so
        ((), Verdict.MISSED, None),
    ],
)
def test_a_rule_is_early_late_or_has_missed_the_end(high, verdict, lead):
    told = judged([50.0 if step in high else 1.0 for step in range(1, 341)], DEAD)
    assert (told.outcome, told.ended_step) == (Outcome.DEAD, 301)
    assert (told.verdict, told.lead_steps) == (verdict, lead)


def test_an_episode_on_a_healthy_run_is_a_false_alarm():
    assert judged([1.0] * 50).verdict is Verdict.QUIET
    assert judged([1.0] * 30 + [50.0] + [1.0] * 30).verdict is Verdict.FALSE_ALARM
    unknown = judged([1.0] * 30 + [50.0] + [1.0] * 30, ended=Ended())
    assert (unknown.verdict, unknown.episodes_total) == (Verdict.QUIET, 1)


def test_of_a_pack_only_what_pages_counts_and_of_one_rule_everything():
    norms = [1.0] * 30 + [50.0] + [1.0] * 30
    informing, trying = replace(ABOVE, severity=Severity.INFO), replace(ABOVE, trial=True)
    for each in (informing, trying):
        pack = judged(norms, question=Question((each,)))
        assert (pack.verdict, pack.counted, pack.episodes_total) == (Verdict.QUIET, 0, 1)
        assert judged(norms, question=Question((each,), of_one_rule=True)).verdict is Verdict.FALSE_ALARM


def test_the_rule_as_it_is_saved_is_judged_beside_it():
    told = judged(
        [1.0] * 30 + [15.0] + [1.0] * 30, question=Question((replace(ABOVE, settings={"above": 20.0}),), ABOVE, of_one_rule=True)
    )
    assert (told.verdict, told.verdict_before, told.episodes_before) == (Verdict.QUIET, Verdict.FALSE_ALARM, 1)
    found = summary([told.row])
    assert (found.false_alarms, found.false_alarms_before) == (0, 1)
    assert (found.episodes_per_1000, found.episodes_per_1000_before) == (0.0, 1000 / 61)


def test_episodes_beyond_the_most_are_counted_and_not_listed():
    norms = ([50.0] + [1.0] * 9) * 30
    told = judged(norms, question=Question((ABOVE,), of_one_rule=True, most_episodes=5))
    assert (len(told.episodes), told.episodes_total) == (5, 30)
    first = told.episodes[0]
    assert (first.onset_step, first.firing_step, first.resolved_step, first.closed_because) == (1, 1, 6, "recovered")


def test_the_summary_counts_what_was_caught_and_how_early():
    early = judged([1.0] * 280 + [50.0] * 60, DEAD)
    missed = judged([1.0] * 340, DEAD)
    alarm, quiet = judged([50.0] + [1.0] * 99), judged([1.0] * 100)
    found = summary([each.row for each in (early, missed, alarm, quiet)])
    assert (found.failed_runs, found.caught, found.lead_steps_median) == (2, 1, 20.0)
    assert (found.healthy_runs, found.false_alarms, found.episodes_per_1000) == (2, 1, 5.0)
    assert found.caught_before is None
    order = [each.verdict for each in in_order([quiet, alarm, missed, early])]
    assert order == [Verdict.EARLY, Verdict.MISSED, Verdict.FALSE_ALARM, Verdict.QUIET]
    assert summary([]).episodes_per_1000 is None

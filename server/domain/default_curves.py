"""The default rules about what a run's loss and gradient norm say of its training.

Their figures come from 156 public training logs of 32 repositories, labelled by hand: 44 unhealthy runs, 86 healthy ones of which
42 were drawn at random (14,381 points). `python -m benchmarks.detection` measures them again. "In time" is at most ten logged
points after the run was beyond recovery, or after the peak of a spike.
"""

from typing import Final

from trainer_agent.wire import series
from trainer_agent.wire.vocabulary import Severity

from .detectors.base import DetectorKind
from .rules import AlertRule

NOT_FINITE_RULES: Final = (
    AlertRule(
        rule_id="loss-not-finite",
        name="Loss is not finite",
        title="Loss is NaN",
        series=series.LOSS,
        detector=DetectorKind.NONFINITE,
        severity=Severity.CRITICAL,
        reason=(
            "A NaN loss is the end of a run unless a loss scaler skips the step, and the sign that is seen last. It fires "
            "at the very step, on the raw loss before any filter. It only tells: the agent's own guard stops a dead run "
            "at once, without a network, and knows whether a scaler protects the weights, which a rule cannot see. Give "
            "it an action if nobody guards the run."
        ),
    ),
)

LOSS_RULES: Final = (
    AlertRule(
        rule_id="loss-spike",
        name="Loss far above its recent past",
        title="Loss spikes",
        series=series.LOSS,
        detector=DetectorKind.SPIKE,
        settings={
            "times": 1.45,
            "spreads": 5.5,
            "history": 8,
            "window": 32,
            "need": 2,
            "of": 3,
            "alone_times": 2.25,
            "start_times": 1.01,
            "share": 0.03,
            "young_times": 1.55,
        },
        severity=Severity.WARNING,
        reason=(
            "A blow-up, or a spike that may heal: 1.45 times the median of the last 32 points and 5.5 robust spreads above it, "
            "in 2 of 3 points because a single batch may be an outlier, or in one at 2.25 times and 11 spreads. In the first 8 "
            "points 1.55 times the first values. Healthy runs of single batches cross the ratio all the time and the spreads "
            "hardly ever; both together were never crossed in 42 random healthy runs."
        ),
    ),
    AlertRule(
        rule_id="loss-diverges",
        name="Loss has left its best and stays up",
        title="Loss diverges",
        series=series.LOSS,
        detector=DetectorKind.DIVERGENCE,
        settings={"times": 1.14, "spreads": 14.5, "give_back": 0.6},
        severity=Severity.WARNING,
        reason=(
            "A rise that is too slow for a spike, or that stays: the median of 5 points 1.14 times the best one so far, and 14.5 "
            "of its own standard deviations, for 5 points. The best of thousands of noisy points is low by chance: the "
            "noisiest healthy run reached 11 of these deviations, the slowest divergence 18. A run that gives back 0.6 of its "
            "fall within its first 32 points is told of at once."
        ),
    ),
    AlertRule(
        rule_id="loss-frozen",
        name="Loss stands still above its best",
        title="Loss is frozen",
        series=series.LOSS,
        detector=DetectorKind.FROZEN,
        severity=Severity.WARNING,
        reason=(
            "Ten equal values where a quarter of the fall or more is lost: the model predicts a constant and will not come "
            "back. Three of 15 explosions ended so, each in a jump too small for a ratio. A run that has converged stands still "
            "at its best and is left alone."
        ),
    ),
    AlertRule(
        rule_id="loss-zero",
        name="Loss is zero and cannot be",
        title="Loss is zero",
        series=series.LOSS,
        detector=DetectorKind.ZERO,
        severity=Severity.WARNING,
        reason=(
            "Trainers that leave NaN out of their mean log 0.0 when there is nothing left, and a dip before: the loss seems to "
            "get better. Three zeros in ten points from far above zero, or ten in a row without a gradient. A loss that is "
            "zero with a gradient (rewards without a spread) is left alone."
        ),
    ),
    AlertRule(
        rule_id="no-learning",
        name="Loss has not moved since the start",
        title="Nothing is learnt",
        series=series.LOSS,
        detector=DetectorKind.PLATEAU,
        severity=Severity.WARNING,
        reason=(
            "After 128 points the loss has not once been 5 % below its first values, and the gradient norm leaps by orders of "
            "magnitude. Both known examples come from one project, so this is a description and not a rate; the gradient norm "
            "is asked for because a slow start looks the same without it."
        ),
    ),
)

GRADIENT_RULES: Final = (
    AlertRule(
        rule_id="grad-norm-not-finite",
        name="Gradient norm not finite again and again",
        title="Grad norm is not finite",
        series=series.GRAD_NORM,
        detector=DetectorKind.NONFINITE,
        settings={"need": 3, "of": 10, "search_steps": 32},
        severity=Severity.WARNING,
        reason=(
            "A loss scaler skips about one step in 2,000 and the norm is infinite there, which is well; 3 in 10 points are not. "
            "A scaler that halves from 2^32 needs 32 steps at the start, so until a norm was finite that long is allowed. One "
            "real run had no finite norm in 171 points under a loss that looked well."
        ),
    ),
    AlertRule(
        rule_id="grad-norm-spike",
        name="Gradient norm far above its recent past",
        title="Grad norm spikes",
        series=series.GRAD_NORM,
        detector=DetectorKind.SPIKE,
        settings={"times": 3.0, "spreads": 9.0, "history": 20, "need": 3, "of": 5},
        severity=Severity.WARNING,
        reason=(
            "The earliest sign where single steps are logged: over 3 times the median of the last 128 points and 9 robust "
            "spreads above it, in 3 of 5 points. One point alone is common in healthy runs: two random ones had bursts of 18 "
            "times their median. It sees the shock, not whether the run absorbs it: it only tells unless it is given an action."
        ),
    ),
)

PLAIN_RULES: Final = (
    AlertRule(
        rule_id="grad-norm-ramp",
        name="Gradient norm climbs",
        title="Grad norm ramps",
        series=series.GRAD_NORM,
        detector=DetectorKind.RAMP,
        severity=Severity.INFO,
        reason=(
            "Three successive rises of the median of 5 points, to twice its value and 6 of its standard deviations. Gradient "
            "norms of healthy runs climb like this too when a schedule or the data change, and every divergence in the logs was "
            "seen at least as early by another rule: it is shown, and nobody is paged until you raise its severity."
        ),
    ),
    AlertRule(
        rule_id="grad-norm-over-10",
        name="Gradient norm over 10",
        title="Grad norm over 10",
        series=series.GRAD_NORM,
        detector=DetectorKind.THRESHOLD,
        settings={"above": 10.0},
        severity=Severity.INFO,
        reason=(
            "The simple rule most people begin with. A healthy norm depends on the model, so a fixed limit cries wolf on "
            "many runs: it is shown on page and chart, and nobody is paged until you raise its severity."
        ),
    ),
    AlertRule(
        rule_id="loss-rises-5",
        name="Loss rises 5 times in a row",
        title="Loss rises",
        series=series.LOSS,
        detector=DetectorKind.CONSECUTIVE_RISE,
        settings={"rises": 5, "mean_of": 10},
        severity=Severity.INFO,
        reason=(
            "Simple to say, and noise does it too. It reads logged points where a run logs coarsely, and means of 10 steps where "
            "it logs every one. It is shown, and nobody is paged until you raise its severity."
        ),
    ),
)

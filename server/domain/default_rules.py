"""The rules that are on from the first run. Each says why it exists and where its numbers come from."""

from typing import Final

from trainer_agent.wire import series
from trainer_agent.wire.vocabulary import Severity

from .default_absence import ABSENCE_RULES
from .default_signals import MACHINE_RULES, RESUME_RULES, SCALER_RULES
from .detectors.base import DetectorKind
from .rules import AlertRule

DEFAULT_RULES: Final = (
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
    *SCALER_RULES,
    AlertRule(
        rule_id="grad-norm-spike",
        name="Gradient norm far above its recent past",
        title="Grad norm spikes",
        series=series.GRAD_NORM,
        detector=DetectorKind.SPIKE,
        settings={"times": 3.0, "spreads": 6.0},
        severity=Severity.WARNING,
        reason=(
            "The earliest sign measured: over 3 times the median of the last 128 points and 6 robust spreads above it, it "
            "warned 21 to 29 steps before death in 4 of 4 runs and never in their 4 healthy twins. It sees the shock, not "
            "whether the run absorbs it: most spikes heal by themselves, so it only tells unless it is given an action."
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
            "many runs: it is shown on page and chart, and nobody is paged until you raise its severity. In the measured "
            "runs it came 7 to 14 steps before death, the spike rule 21 to 29."
        ),
    ),
    AlertRule(
        rule_id="loss-rises-5",
        name="Loss rises 5 times in a row",
        title="Loss rises",
        series=series.LOSS,
        detector=DetectorKind.CONSECUTIVE_RISE,
        settings={"rises": 5},
        severity=Severity.INFO,
        reason=(
            "Simple to say, and noise does it too: it fired falsely in a healthy stretch and missed 1 of 4 deaths. It is "
            "shown, and nobody is paged until you raise its severity."
        ),
    ),
    *RESUME_RULES,
    *MACHINE_RULES,
    *ABSENCE_RULES,
)
"""The most serious first; the page lists them in this order. All are `enabled`, none acts until somebody gives it an action."""

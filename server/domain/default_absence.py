"""The default rules about absence: a run that is not heard of, one that makes no step, and one that has ended."""

from typing import Final

from trainer_agent.wire.vocabulary import Severity

from .detectors.absence import END, HEARTBEAT, STEP
from .detectors.base import DetectorKind
from .rules import AlertRule

ABSENCE_RULES: Final = (
    AlertRule(
        rule_id="run-lost",
        name="Run not heard of",
        title="Run lost",
        series=HEARTBEAT,
        detector=DetectorKind.LOST,
        keep_firing_for_points=0,
        severity=Severity.CRITICAL,
        reason=(
            "A heartbeat comes every 10 s; six missed in a row are no hiccup. The process is gone, stopped, or cut off: what it "
            "does meanwhile is not known. By the server's own clock, and never in the first minute after a start or a pause of "
            "the server itself."
        ),
    ),
    AlertRule(
        rule_id="run-stalled",
        name="Run heard of, and no new step",
        title="No new step",
        series=STEP,
        detector=DetectorKind.STALLED,
        keep_firing_for_points=0,
        severity=Severity.WARNING,
        reason=(
            "A collective that never ends, a data loader that waits for ever: the process lives and trains nothing. The limit "
            "follows the run, 10 times the median of its last 31 gaps between steps and never under 120 s; starting, "
            "evaluating, saving and rolling back have limits of their own, and a run that waits by order never stalls."
        ),
    ),
    AlertRule(
        rule_id="run-ended",
        name="Training ended by itself",
        title="Run ended",
        series=END,
        detector=DetectorKind.ENDED,
        keep_firing_for_points=0,
        severity=Severity.INFO,
        reason=(
            "So that an end stands beside what fired before it. It is information: that a run failed, was stopped or came to "
            "its end is a message of its own already."
        ),
    ),
)
"""The gravest first."""

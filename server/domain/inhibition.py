"""Which alert makes another one not worth a message of its own: the second only follows from the first.

inhibitor                     keeps quiet, on the same run
----------------------------  ------------------------------------------
lost, ended                   stalled
nonfinite, on a loss          spike, ramp, divergence, plateau

It is of messages only: the alert itself is stored, shown, judged by and acted on. An inhibitor counts while it is open and one
that people hear of; when it is over first, what is still firing is told. No rule inhibits itself, and nothing the call for a
person, which stands on the figures of its cause.
"""

from collections.abc import Iterable
from typing import Final

from .alerts import Alert
from .countdowns import BREAKER_RULE_ID

INHIBITS: Final[dict[str, frozenset[str]]] = {
    "lost": frozenset({"stalled"}),
    "ended": frozenset({"stalled"}),
    "nonfinite": frozenset({"spike", "ramp", "divergence", "plateau"}),
}
"""By the detectors of the two rules. No detector is on both sides, so there is no cycle."""


def inhibited(alert: Alert, others: Iterable[Alert]) -> bool:
    """Whether one of `others`, alerts of the same run that people hear of, makes `alert` not worth a message."""
    return any(_inhibits(other, alert) for other in others)


def _inhibits(other: Alert, alert: Alert) -> bool:
    if alert.rule_id == BREAKER_RULE_ID or not other.is_open or other.rule_id == alert.rule_id:
        return False
    if alert.detector not in INHIBITS.get(other.detector, ()):
        return False
    return other.detector != "nonfinite" or is_loss(other.series)


def is_loss(series: str) -> bool:
    """Whether a series is a loss: `train/loss`, `eval/loss`, `eval/books/loss`, `train/lm_loss`; not `amp/loss_scale`."""
    last = series.rsplit("/", 1)[-1]
    return last == "loss" or last.endswith("_loss")

"""What a sentence about an alert is made of, taken from what is stored with it."""

from collections.abc import Mapping
from dataclasses import dataclass

from server.domain.alerts import Alert


@dataclass(frozen=True, slots=True)
class Facts:
    """Series, value, limit, the detector's figures, and since when. `rank` is 0 for the first and -1 for all of them."""

    series: str
    value: float
    limit: float | None
    evidence: Mapping[str, float]
    onset_step: int
    rank: int = 0

    def has(self, *names: str) -> bool:
        """Whether the detector gave these figures."""
        return all(name in self.evidence for name in names)


def facts_of(alert: Alert) -> Facts:
    """The facts of a stored alert."""
    return Facts(alert.series, alert.value, alert.limit, alert.evidence, alert.onset_step, alert.rank)

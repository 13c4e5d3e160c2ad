"""Silences: somebody does not want to hear of something for a while, and says why.

A silence stops messages. It changes no state, ends nothing, and never keeps an automatic action from being taken: for that
there is the hold of a run. It always ends, by itself or by hand; what still fires then is told once.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from .alerts import Alert

LONGEST = timedelta(days=30)
MAX_REASON = 2_000


@dataclass(frozen=True, slots=True)
class Silence:
    """What is not to be heard of: the alerts for which all that is given holds. At least one of the three is given."""

    silence_id: str
    run_id: str | None
    project: str | None
    rule_id: str | None
    reason: str
    author: str
    starts_at: datetime
    ends_at: datetime
    ended_at: datetime | None = None
    """When it ended, by hand or because its time was up."""
    ended_by: str = ""

    def is_active(self, now: datetime) -> bool:
        """Whether it still holds."""
        return self.ended_at is None and self.starts_at <= now < self.ends_at

    def covers_run(self, run_id: str, project: str) -> bool:
        """Whether it speaks of alerts of this run, or of some of them."""
        return self.run_id in (None, run_id) and self.project in (None, project)

    def covers(self, alert: Alert, project: str) -> bool:
        """Whether it speaks of this alert, of a run in `project`."""
        return self.covers_run(alert.run_id, project) and self.rule_id in (None, alert.rule_id)


def problems(run_id: str | None, project: str | None, rule_id: str | None, hours: float, reason: str) -> dict[str, str]:
    """What keeps a silence from being made, by field; empty when nothing does."""
    wrong = {}
    if run_id is None and project is None and rule_id is None:
        wrong["run_id"] = "name a run, a project or a rule: a silence of everything would hide everything"
    if not (math.isfinite(hours) and 0 < hours <= LONGEST / timedelta(hours=1)):
        wrong["hours"] = f"must be above 0 and at most {LONGEST / timedelta(hours=1):g} (30 days)"
    if not reason.strip():
        wrong["reason"] = "say why, for those who wonder why they heard nothing"
    elif len(reason) > MAX_REASON:
        wrong["reason"] = f"is longer than {MAX_REASON} characters"
    return wrong


def silenced_until(silences: Iterable[Silence], alert: Alert, project: str, now: datetime) -> datetime | None:
    """When the last silence that covers the alert now will end; None where none does."""
    return max((each.ends_at for each in silences if each.is_active(now) and each.covers(alert, project)), default=None)

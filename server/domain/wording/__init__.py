"""What people read, in English and in Simplified Chinese: of an alert the sentence, what was done and what to do; and of events.

words       how words with places are kept and filled
sentences   one sentence for each detector; `tests/incidents` fails for a detector that has none
deeds       what was done
advice      what to do next
messages    what a webhook is told of an incident
event_words what it is told of all else
clauses     reasons that are stored in English alone
calls       why a person is called

All are made of what is stored with the alert, so a message, the page and the API say the same at any later time.
"""

from server.domain.alerts import Alert
from server.domain.countdowns import BREAKER_RULE_ID
from server.domain.detectors.base import Verdict
from server.domain.rules import AlertRule

from .calls import called, called_in_chinese
from .facts import Facts, facts_of
from .numbers import number
from .sentences import sentence
from .words import LANGUAGES

__all__ = ["LANGUAGES", "Facts", "called", "describe", "number", "sentence", "texts"]


def describe(rule: AlertRule, verdict: Verdict, onset_step: int, rank: int = 0, series: str | None = None) -> str:
    """The English sentence, which is stored. `series`: the one that was judged, where the rule names a pattern."""
    facts = Facts(series or rule.series, verdict.value, verdict.limit, dict(verdict.evidence), onset_step, rank)
    return sentence(rule.detector.value, facts)


def texts(alert: Alert) -> dict[str, str]:
    """What the alert says, by language. The English one is the stored one."""
    facts = facts_of(alert)
    said = sentence(alert.detector, facts, "zh")
    if alert.rule_id == BREAKER_RULE_ID:
        said = f"{called_in_chinese(alert.text, sentence(alert.detector, facts))}{said}"
    return {"en": alert.text, "zh": said}

"""What people read, in English and in Simplified Chinese: of an alert the sentence, what was done and what to do; and of events.

words       how words with places are kept and filled
sentences   one sentence for each detector; `tests/incidents` fails for a detector that has none
deeds       what was done
advice      what to do next
messages    what a webhook is told of an incident
event_words what it is told of all else
clauses     reasons that are stored in English alone

All are made of what is stored with the alert, so a message, the page and the API say the same at any later time.
"""

import re
from typing import Final

from server.domain.alerts import Alert
from server.domain.countdowns import BREAKER_RULE_ID
from server.domain.detectors.base import Verdict
from server.domain.rules import AlertRule

from .clauses import in_chinese
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
    said = sentence(alert.detector, facts_of(alert), "zh")
    return {"en": alert.text, "zh": f"{_called(alert.text)}{said}" if alert.rule_id == BREAKER_RULE_ID else said}


def called(kind: str, because: str, seconds: float | None) -> str:
    """Why people are called, in English: a rule would have acted and must not. `seconds`: until the run is stopped instead."""
    follows = "" if seconds is None else f" The run is stopped in {seconds:g} s unless somebody says no."
    return f"No automatic {kind}: {because}.{follows}"


_CALLED: Final = re.compile(r"No automatic \w+: (.+?)\.(?: The run is stopped in (\S+) s unless somebody says no\.)? ", re.DOTALL)


def _called(text: str) -> str:
    """The same in Chinese, out of the text that begins with it."""
    found = _CALLED.match(text)
    because, seconds = ("", None) if found is None else (f"{in_chinese(found[1])}。", found[2])
    stopped = "" if seconds is None else f"{seconds} 秒后停止训练，除非有人取消。"
    return f"自动处置已停止，需要人来处理。{because}{stopped}"

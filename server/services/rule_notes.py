"""What is noted of a rule itself: that it has failed, that its series does not come, that its pattern matches too much.

Each is said once: of a failure by whichever run came first, of the others once a run and version of the rule.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from server.domain.default_rules import DEFAULT_RULES
from server.domain.events import Event, EventType
from server.domain.judging import Failure, Judging
from server.domain.rule_notes import RULE_NOTES, RuleNote
from server.domain.rules import MAX_SERIES, SEEN_BY_STEPS, AlertRule
from server.domain.wording.event_words import told
from server.store import rules as store
from server.store import standing as standings
from server.store.rules import StoredState
from trainer_agent.wire.vocabulary import Severity

from .recording import record

_DEFAULT_SERIES = {rule.rule_id: rule.series for rule in DEFAULT_RULES}


def failed(connection: Connection, run_id: str, failure: Failure, now: datetime) -> None:
    """Have a rule judged no more, on no run, until somebody changes it, and tell of it."""
    rule, point = failure.rule, failure.point
    where = {"run_id": run_id, "series": point.series, "step": point.step}
    if not store.fail(connection, rule.rule_id, rule.version, {"at": now.isoformat(), "text": failure.text, **where}):
        return
    said = {
        "rule_id": rule.rule_id,
        "rule_name": rule.name,
        "series": point.series,
        "severity": Severity.WARNING,
        **told(EventType.RULE_FAILED, rule=rule.name, reason=failure.text),
    }
    record(connection, Event(EventType.RULE_FAILED, now, run_id, point.step, point.segment, said))


class RuleNotes:
    """The notes on one run: see `domain/rule_notes.py`. Rank 0 speaks for all."""

    def __init__(self, connection: Connection, run_id: str, judging: Judging) -> None:
        self._connection, self._run_id, self._judging = connection, run_id, judging
        may_note = self._candidates() or any(rule.is_pattern for rule in judging.rules)
        self._known = {
            note: {each.rule_id: each.rule_version for each in store.read_states(connection, run_id, note)}
            for note in (RULE_NOTES if may_note else ())
        }
        self.due_after = math.inf
        """The step after which a series that has not come is missed."""
        if self._not_noted(RuleNote.NEVER_SEEN, self._candidates()):
            first = min(standings.read_from_steps(connection, run_id).values(), default=0)
            self.due_after = first + SEEN_BY_STEPS

    def _candidates(self) -> list[AlertRule]:
        """The rules whose series a person has written: a default one names what only some trainings log."""
        return [rule for rule in self._judging.rules if not rule.is_pattern and rule.series != _DEFAULT_SERIES.get(rule.rule_id)]

    def _not_noted(self, note: RuleNote, rules: Iterable[AlertRule]) -> list[AlertRule]:
        known = self._known.get(note, {})
        return [rule for rule in rules if known.get(rule.rule_id) != rule.version]

    def look_for_unseen(self, now: datetime, segment: int) -> None:
        """Note the rules whose series has not come in all the steps so far; once a batch."""
        step, self.due_after = int(self.due_after), math.inf
        unnoted, watching = self._not_noted(RuleNote.NEVER_SEEN, self._candidates()), self._at_posts()
        missing = [rule for rule in unnoted if rule.rule_id not in watching]
        seen = store.seen_series(self._connection, self._run_id, {rule.series for rule in missing}) if missing else frozenset()
        for rule in missing:
            if rule.series not in seen:
                text = f"The rule {rule.name} watches {rule.series}, which this run has not logged in its first {step} steps"
                self._note(RuleNote.NEVER_SEEN, rule, text, Event(EventType.RULE_NOTED, now, self._run_id, step, segment))

    def settle(self, now: datetime) -> None:
        """Take back what is so no more, and note the patterns that match too much."""
        come = self._known.get(RuleNote.NEVER_SEEN, {}).keys() & self._at_posts()
        if come:
            store.forget_states(self._connection, self._run_id, come, RuleNote.NEVER_SEEN)
        for rule in self._not_noted(RuleNote.TOO_MANY_SERIES, self._judging.crowded.values()):
            text = f"The rule {rule.name} matches more than {MAX_SERIES} series of this run; only the first ones are judged"
            self._note(RuleNote.TOO_MANY_SERIES, rule, text, Event(EventType.RULE_NOTED, now, self._run_id))

    def _at_posts(self) -> set[str]:
        return {post.rule.rule_id for post in self._judging.posts}

    def _note(self, note: RuleNote, rule: AlertRule, text: str, event: Event) -> None:
        stored = StoredState(rule.rule_id, rule.series, note, rule.version, 0, {})
        store.save_states(self._connection, self._run_id, [stored])
        data = {"rule_id": rule.rule_id, "rule_name": rule.name, "series": rule.series, "what": note.name.lower(), "text": text}
        record(self._connection, replace(event, data=data))

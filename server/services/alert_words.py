"""What people read of an alert beside its row: its sentence in both languages, what was done, and what to do next.

Reads only, so it may run on a reading connection.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from sqlalchemy import Connection

from server.domain import holds, wording
from server.domain.alerts import Alert
from server.domain.commands import ACTIVE
from server.domain.countdowns import CountdownState
from server.domain.events import EventType
from server.domain.holds import Hold
from server.domain.rules import Action, ActionKind
from server.domain.wording import deeds
from server.domain.wording.advice import Situation, advice
from server.domain.wording.clauses import clause
from server.domain.wording.deeds import Done, deed_of
from server.domain.wording.event_words import ENDS
from server.domain.wording.words import Both
from server.store import alerts, commands, countdowns, events, rules, samples
from server.store import runs as run_store
from server.store import standing as standings
from server.store.runs import Run
from trainer_agent.wire.vocabulary import AlertState, CommandKind, EndReason, RunState

from . import checkpoints

_BY_GUARD, _ = ENDS[EndReason.STOPPED_BY_GUARD]


@dataclass(frozen=True, slots=True)
class InWords:
    """An alert in words, each in English and Simplified Chinese."""

    texts: Both
    done: Both
    following: Both


def clause_of(connection: Connection, run_id: str, text: str) -> Both:
    """What the trainer said, in both languages. A rule's command has the sentence of its alert as reason, which so comes back."""
    alert = next((each for each in alerts.read_alerts(connection, run_id) if each.text == text), None)
    if alert is None:
        return clause(text)
    return text, wording.texts(alert)["zh"]


class Teller:
    """Puts the alerts of one run into words. What it needs of the run is read when it is first needed.

    Thread: that of its connection.
    """

    def __init__(self, connection: Connection, run_id: str, now: datetime) -> None:
        self._connection, self._run_id, self._now = connection, run_id, now

    def in_words(self, alert: Alert) -> InWords:
        """The alert in words."""
        texts = wording.texts(alert)
        return InWords((texts["en"], texts["zh"]), self.done(alert), self.following(alert))

    def done(self, alert: Alert) -> Both:
        """What was done about it."""
        deed = deed_of(alert, self._done, self._now, self._hold_on(alert))
        return deeds.in_words(deed)

    def following(self, alert: Alert) -> Both:
        """What to do next."""
        held = self._hold_on(alert) is not None
        return advice(alert, replace(self._situation, is_held=held, forbids_rollback=self._forbids(alert)))

    def _hold_on(self, alert: Alert) -> Hold | None:
        """The hold that keeps the alert's rule from acting now. What had its countdown gets no other when the hold is over."""
        hold = None if self._run is None else holds.in_force(self._run.hold, self._now)
        if hold is None or alert.state is not AlertState.FIRING or self._had_countdown(alert):
            return None
        action = self._action(alert)
        return hold if action is not None and action.kind is not ActionKind.NOTIFY else None

    def _had_countdown(self, alert: Alert) -> bool:
        return any(each.alert_id == alert.alert_id for each in self._done.countdowns)

    def _forbids(self, alert: Alert) -> bool:
        """Whether the alert's rule asks for a rollback that the run's policy does not allow."""
        if self._run is None or self._run.automatic_rollback or not alert.is_open:
            return False
        action = self._action(alert)
        return action is not None and action.kind is ActionKind.ROLLBACK

    def _action(self, alert: Alert) -> Action | None:
        """What the alert's rule does and means; None of a rule on trial, off or gone, and of a dry run."""
        rule = None if alert.trial else rules.read_rule(self._connection, alert.rule_id)
        return rule.action if rule is not None and rule.enabled and not rule.action.dry_run else None

    @cached_property
    def _run(self) -> Run | None:
        return run_store.get(self._connection, self._run_id)

    @cached_property
    def _done(self) -> Done:
        from_steps: Mapping[int, int] = standings.read_from_steps(self._connection, self._run_id)
        made = countdowns.read_countdowns(self._connection, self._run_id)
        given = commands.read_commands(self._connection, self._run_id)
        causes = alerts.by_id(self._connection, self._run_id, {each.alert_id for each in made})
        return Done(made, given, from_steps, self._stopped_by_guard(), causes)

    def _stopped_by_guard(self) -> bool:
        if self._run is None or self._run.state is not RunState.STOPPED:
            return False
        ends = events.newest(self._connection, self._run_id, (EventType.RUN_STOPPED,), limit=1)
        return any(str(each.event.data.get("text", "")).lower().startswith(_BY_GUARD) for each in ends)

    @cached_property
    def _situation(self) -> Situation:
        run = self._run
        target = checkpoints.propose(self._connection, self._run_id).choice.target
        counting = next((each for each in self._done.countdowns if each.state is CountdownState.COUNTING), None)
        return Situation(
            state=RunState.CREATED if run is None else run.state,
            target_step=None if target is None else target.step,
            can_roll_back=run is not None and CommandKind.ROLLBACK in run.capabilities,
            has_samples=samples.has_any(self._connection, self._run_id),
            is_counting=counting is not None and not counting.action.dry_run,
            is_dry_run=counting is not None and counting.action.dry_run,
            is_commanded=any(each.state in ACTIVE for each in self._done.commands),
        )

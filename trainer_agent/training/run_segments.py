"""The segments of a run as this process opens them: their number, their cause, what is in force, and who is told.

    begins     the run starts: told at `forward_seen`, and until then understood; or it goes on in this process: told at once
    arrives    a rollback has led here: told at once

Told are the server and the ledger, which checks a resume. (`segments` are files of the spool.)
"""

import time
from collections.abc import Callable
from dataclasses import replace

from trainer_agent.checkpoints.rollback import Target
from trainer_agent.checkpoints.saves import Saves
from trainer_agent.commands.agreement import Agreement
from trainer_agent.commands.in_force import InForce
from trainer_agent.commands.journal import Opened, Point
from trainer_agent.commands.way_back import lead_of, with_payload
from trainer_agent.guest.voice import Voice
from trainer_agent.identity import Identity
from trainer_agent.ledger.ledger import Ledger
from trainer_agent.measuring.probes import Precision
from trainer_agent.wire import crash
from trainer_agent.wire.messages import Scalar, SegmentStarted
from trainer_agent.wire.vocabulary import DataMode, SegmentCause

Attributes = dict[str, Scalar]


class RunSegments:
    """Thread: training."""

    def __init__(
        self,
        identity: Identity,
        agreement: Agreement,
        in_force: InForce,
        saves: Saves,
        ledger: Ledger,
        *,
        leads: bool,
        tell: Callable[[SegmentStarted], None],
    ) -> None:
        self.number = 0
        """Of the one under way; 0 before this process has begun one."""
        self.data_modes: tuple[tuple[DataMode, ...], str] | None = None
        """What a rollback can do with the data of the loop under way, and why no more; None: what the run start said."""
        self._identity, self._agreement, self._in_force = identity, agreement, in_force
        self._saves, self._ledger, self._leads, self._tell_server = saves, ledger, leads, tell
        self._untold: SegmentStarted | None = None

    def begins(self, step: int, attributes: Attributes) -> None:
        """The loop begins after `step`, and no rollback has led there: the run begins, or goes on in this process."""
        if self.number == 0 and not self._identity.is_restart:
            self._untold = self._next(step, SegmentCause.START, attributes)
        else:
            parent = self._saves.rotation.parent = self._saves.catalogue.path_of_step(step).name
            self._tell(self._next(step, SegmentCause.RESTART, attributes), parent)

    def forward_seen(self, precision: Precision | None) -> None:
        """A forward pass is done, and showed what it computes in; None where that could not be seen."""
        if self._untold is not None:
            started, self._untold = self._untold, None
            if precision is not None:
                started.attributes.update(precision.attributes())
            self._tell(started)

    def arrives(self, target: Target, step: int, attributes: Attributes) -> None:
        """A rollback has loaded its target."""
        payload, command_id = target.payload, target.command_id
        parent = self.number or self._in_force.parent_of(payload.new_segment)
        self.number = self._identity.reserve_segment(payload.new_segment)
        self._saves.rotation.parent = payload.checkpoint_id
        overrides = with_payload(self._in_force.overrides, payload)
        point = Point(self.number, step, payload.checkpoint_id)
        self._in_force.open(Opened(point, overrides, lead_of(payload, target.left_step)))
        crash.reach("rollback.opened")
        started = self._started(step, SegmentCause.ROLLBACK, parent, attributes)
        self._tell(replace(started, command_id=command_id, checkpoint_id=payload.checkpoint_id), payload.checkpoint_id)
        if self._leads:
            Voice().once("rolled back", f"rolled back by command from step {target.left_step} to {step}; data: {payload.data}")

    def _next(self, step: int, cause: SegmentCause, attributes: Attributes) -> SegmentStarted:
        parent = self._identity.last_segment or None
        self.number = self._agreement.next_segment(self._identity, step)
        self._in_force.open(Opened(Point(self.number, step)))
        return self._started(step, cause, parent, attributes)

    def _started(self, step: int, cause: SegmentCause, parent: int | None, attributes: Attributes) -> SegmentStarted:
        in_force = self._in_force.attributes()
        return SegmentStarted(self.number, step, cause, time.time(), parent, attributes=attributes | in_force)

    def _tell(self, started: SegmentStarted, checkpoint_id: str | None = None) -> None:
        """`checkpoint_id`: what it goes on from."""
        if self.data_modes is not None:
            modes, because = self.data_modes
            started = replace(started, data_modes=modes, data_modes_because=because)
        self._tell_server(started)
        facts = self._saves.catalogue.facts(checkpoint_id) if checkpoint_id is not None else None
        then = "" if facts is None else facts.vocabulary
        self._ledger.segment_begins(started, (then, self._saves.vocabulary), is_checked=self._leads)

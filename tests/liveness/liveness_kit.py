"""A run as the services hear it, on a clock that the test moves: steps at a pace, heartbeats, the worker's rounds."""

from dataclasses import replace

from judging_kit import OWNER, Trainer, data_of

from server.services import ingest, liveness, runs
from server.store import alerts as alerts_store
from trainer_agent.wire.messages import Heartbeat
from trainer_agent.wire.vocabulary import Phase

LOST, STALLED, ENDED = "run-lost", "run-stalled", "run-ended"


class Life:
    """One process: what it says, and what its own clock says when it says it."""

    def __init__(self, connection, clock, run_id="run", shift=0.0, **of_run):
        self.connection, self.clock, self.shift = connection, clock, shift
        self.trainer = Trainer(connection, clock, run_id=run_id, **of_run).start().send()
        self.run_id, self.step = run_id, 0

    def steps(self, count=1, **values):
        """That many steps, in one batch."""
        for _ in range(count):
            self.step += 1
            self.trainer.log(self.step, **({"loss": 1.0} | values))
        self._shifted()
        return self

    def _shifted(self):
        """Send what waits, with the times that this process would write down."""
        first, last = self.trainer.sent + 1, len(self.trainer.records)
        batch, at = self.trainer.batch(first, last), self.clock().timestamp() + self.shift
        columns = tuple(replace(each, time=tuple(at for _ in each.time)) for each in batch.columns)
        ingest.take_batch(self.connection, replace(batch, columns=columns, sent_at=at), OWNER, self.clock())
        self.trainer.sent = last

    def beat(self, phase=Phase.TRAINING, step=None, waiting=0):
        at = self.clock().timestamp() + self.shift
        told = self.step if step is None else step
        beat = Heartbeat(self.run_id, self.trainer.incarnation, 0, at, phase, told, self.trainer.segment, {}, waiting)
        runs.take_heartbeat(self.connection, beat, OWNER, self.clock())
        return self

    def lasts(self, seconds, phase=Phase.TRAINING, every=10, step_every=None, steps_a_batch=1):
        """Time passes: heartbeats, the worker's rounds, and steps where `step_every` says how often they come."""
        begun, steps_made = self.clock(), 0
        while (passed := (self.clock() - begun).total_seconds()) < seconds:
            if step_every is not None and passed >= steps_made * step_every:
                self.steps(steps_a_batch)
                steps_made += 1
            self.beat(phase)
            self.clock.advance(every)
            rounds(self.connection, self.clock())
        return self


def rounds(connection, now):
    """What the worker does each time."""
    return runs.mark_overdue(connection, now), liveness.look_due(connection, now)


def open_of(connection, run_id="run"):
    """The open alerts by rule."""
    return {each.rule_id: each for each in alerts_store.open_alerts(connection, run_id)}


def told_of(connection, run_id="run"):
    """Rules whose alerts fired, oldest first."""
    return [each["rule_id"] for each in data_of(connection, "alert.firing", run_id)]

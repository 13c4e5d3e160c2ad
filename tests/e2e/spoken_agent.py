"""An agent that speaks the wire by hand: what the page orders is read as it arrives, and answered when the test says so."""

import time
import uuid
from dataclasses import dataclass, field

import httpx2
from e2e_harness import Site, poll

from trainer_agent.wire import codec, samples
from trainer_agent.wire.commands import Command
from trainer_agent.wire.messages import (
    Batch,
    CheckpointFile,
    CheckpointSaved,
    Column,
    Heartbeat,
    Numbered,
    Record,
    Reply,
    Report,
    RunStart,
    SegmentStarted,
    StepSamples,
)
from trainer_agent.wire.vocabulary import CheckpointState, CommandKind, CommandState, DataMode, Phase, SegmentCause


@dataclass
class SpokenAgent:
    """One process of one run. It has begun its first segment and stands at step 0."""

    site: Site
    run_id: str
    data_modes: tuple[DataMode, ...] = tuple(DataMode)
    data_modes_because: str = ""
    attributes: dict = field(default_factory=dict)
    project: str = "e2e"
    incarnation: str = field(default_factory=lambda: f"life-{uuid.uuid4().hex[:8]}")
    segment: int = 1
    step: int = 0
    seq: int = 0
    phase: Phase = Phase.TRAINING

    def __post_init__(self):
        start = RunStart(
            self.run_id,
            self.incarnation,
            self.project,
            self.run_id,
            total_steps=1000,
            capabilities=tuple(CommandKind),
            data_modes=self.data_modes,
            data_modes_because=self.data_modes_because,
            attributes=self.attributes,
        )
        self._post("runs", start)
        self.tell(SegmentStarted(1, 0, SegmentCause.START, time.time()))

    def _post(self, route: str, message: object) -> Reply:
        headers = {"Authorization": f"Bearer {self.site.agent_token}", "Content-Type": "application/json"}
        address = f"{self.site.url}/api/agent/{route}"
        answer = httpx2.post(address, content=codec.encode(message), headers=headers, trust_env=False, timeout=20)
        assert answer.status_code == 200, answer.text
        return codec.decode(Reply, answer.content)

    def tell(self, *records: Record) -> Reply:
        """Records, and what the server answers."""
        first = self.seq + 1
        self.seq += len(records)
        numbered = tuple(Numbered(first + place, record) for place, record in enumerate(records))
        return self._post("batches", Batch(self.run_id, self.incarnation, 0, first, self.seq, time.time(), records=numbered))

    def walk(self, step: int, loss: float = 2.0) -> None:
        """Steps up to `step`, each with its loss and gradient norm."""
        steps = tuple(range(self.step + 1, step + 1))
        for series in ("train/loss", "train/grad_norm"):
            first, self.seq = self.seq + 1, self.seq + len(steps)
            seqs, values = tuple(range(first, self.seq + 1)), (loss,) * len(steps)
            column = Column(series, self.segment, seqs, steps, (time.time(),) * len(steps), values)
            batch = Batch(self.run_id, self.incarnation, 0, first, self.seq, time.time(), columns=(column,))
            self._post("batches", batch)
        self.step = step
        self.beat()

    def save(self, checkpoint_id: str) -> None:
        """A checkpoint of this step, fit to go back to."""
        files = (CheckpointFile("model.safetensors", 1, "0" * 64),)
        parts = ("model", "optimizer", "scheduler", "scaler", "rng", "position")
        facts = {"files": files, "parts": parts, "nonfinite_weights": 0, "nonfinite_optimizer": 0}
        state = CheckpointState.COMPLETE
        self.tell(CheckpointSaved(checkpoint_id, self.segment, self.step, time.time(), state, **facts))

    def sampled(self, rows: dict[int, tuple[tuple[int, ...], tuple[str, ...]]]) -> None:
        """What went into some steps: samples, and the document of each."""
        block = samples.encode([samples.StepRow(step, *taken) for step, taken in sorted(rows.items())])
        body = samples.to_text(block)
        self.tell(StepSamples(self.segment, min(rows), max(rows), time.time(), body))

    def beat(self) -> Reply:
        """One heartbeat."""
        beat = Heartbeat(self.run_id, self.incarnation, 0, time.time(), self.phase, self.step, self.segment)
        return self._post("heartbeats", beat)

    def await_command(self, kind: CommandKind) -> Command:
        """The command as it arrives."""
        return poll(f"the command {kind}", lambda: next((c for c in self.beat().commands if c.kind is kind), None))

    def report(self, command: Command, *states: CommandState, reason: str = "") -> None:
        """What became of it."""
        self.tell(*(Report(command.command_id, state, time.time(), self.step, reason) for state in states))

    def obey(self, kind: CommandKind) -> Command:
        """Takes a command and reports that it is done."""
        command = self.await_command(kind)
        self.report(command, CommandState.DELIVERED, CommandState.RUNNING, CommandState.SUCCEEDED)
        return command

    def begin_segment(self, segment: int, from_step: int, cause: SegmentCause, **more: object) -> None:
        """The steps go on from `from_step` in a new segment."""
        self.segment, self.step = segment, from_step
        self.tell(SegmentStarted(segment, from_step, cause, time.time(), **more))

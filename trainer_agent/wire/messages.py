"""What travels between trainer agent and server.

An agent's life (an *incarnation*) is a list of records numbered by `seq` = 1, 2, 3 ... without holes. A record is either one
`log()` call (points) or one message of the union `Record`. A `Batch` carries the records `first_seq` .. `last_seq`; points
travel in columns, because most of what is sent is the same few series over and over.

Times are seconds since the epoch by the agent's clock, for display only. Order comes from `seq`.
"""

from dataclasses import dataclass, field

from .commands import Command
from .vocabulary import (
    PROTOCOL,
    CheckpointState,
    CommandKind,
    CommandState,
    DataMode,
    EndReason,
    Phase,
    SegmentCause,
)

MAX_BATCH_POINTS = 5_000
MAX_BATCH_BYTES = 1 << 20
"""Limits of one batch, as encoded. The agent cuts before them; the server answers 413 above them."""

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class RunStart:
    """Announces an incarnation of a run. Sent before anything else, and again with the same ids until it is answered."""

    run_id: str
    incarnation: str
    project: str
    name: str
    rank: int = 0
    world_size: int = 1
    host: str = ""
    pid: int = 0
    total_steps: int | None = None
    integration: str = "loop"
    capabilities: tuple[CommandKind, ...] = ()
    """The commands this integration can obey; a button for any other is grey."""
    incapable_because: str = ""
    """Why the missing capabilities are missing, in words for the page."""
    data_modes: tuple[DataMode, ...] = (DataMode.REPLAY, DataMode.SKIP)
    """What a rollback of this run can do with its data."""
    data_modes_because: str = ""
    """Why the missing modes are missing, in words for the page."""
    automatic_rollback: bool = False
    """Whether the script's policy lets a rule roll this run back."""
    attributes: dict[str, Scalar] = field(default_factory=dict)
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True)
class SegmentStarted:
    """The steps go on from `from_step` in a new segment. Points of it have steps > `from_step`."""

    segment: int
    from_step: int
    cause: SegmentCause
    time: float
    parent: int | None = None
    command_id: str | None = None
    checkpoint_id: str | None = None
    attributes: dict[str, Scalar] = field(default_factory=dict)
    """What is different from now on: data mode, skipped window, max_grad_norm."""
    data_modes: tuple[DataMode, ...] | None = None
    """What a rollback can do with the data from now on, where only the loop that has begun tells; None: as the run start said."""
    data_modes_because: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """One file of a checkpoint, relative to its directory."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """The facts of one checkpoint as the agent found them. The verdict is the server's.

    `state` is what the agent can tell by itself: complete or corrupt (or deleted, when it is gone). `nonfinite_weights` and
    `nonfinite_optimizer` count elements; None says that the part was not checked. `sick_because` names the run's own signals
    at save time, empty when there were none.
    """

    checkpoint_id: str
    segment: int
    step: int
    time: float
    state: CheckpointState
    directory: str = ""
    """For people only, never opened by the server."""
    size_bytes: int = 0
    files: tuple[CheckpointFile, ...] = ()
    parts: tuple[str, ...] = ()
    """Of model, optimizer, scheduler, scaler, rng, position: those present."""
    nonfinite_weights: int | None = None
    nonfinite_optimizer: int | None = None
    sick_because: str = ""
    problem: str = ""
    save_seconds: float | None = None
    world_size: int = 1
    versions: dict[str, str] = field(default_factory=dict)
    """Of python, torch, transformers and this agent, by name."""
    signals: dict[str, float] = field(default_factory=dict)
    """The newest value of each standard series at the save, the loss scale among them."""
    vocabulary: str = ""
    """What the token ids mean: size and a digest of the tokenizer, where the integration knows it."""


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a command: delivered, running, then succeeded, failed or rejected, each with its reason."""

    command_id: str
    state: CommandState
    time: float
    step: int | None = None
    reason: str = ""
    checkpoint_id: str | None = None
    weights_sha256: str | None = None
    """Digest of the restored weights after a rollback."""


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The last word of a run that could still speak."""

    reason: EndReason
    time: float
    step: int | None = None
    detail: str = ""
    """Type of the exception, or the reason of the guard. Never a stack with user data."""


@dataclass(frozen=True, slots=True)
class Unable:
    """From now on this incarnation obeys no command, as when its ranks cannot be told together any more."""

    reason: str
    time: float
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """Stands in the place of records that were lost on the agent's side. Takes up as many numbers as it counts."""

    count: int
    time: float
    reason: str


@dataclass(frozen=True, slots=True)
class SaveFailed:
    """A checkpoint was due and could not be saved; the training went on, and all older ones are kept."""

    step: int
    time: float
    reason: str


@dataclass(frozen=True, slots=True)
class StepSamples:
    """Which samples (and documents) went into the steps `first_step` .. `last_step` of this rank; see `wire/samples.py`."""

    segment: int
    first_step: int
    last_step: int
    time: float
    body: str


@dataclass(frozen=True, slots=True)
class ResumeChecked:
    """What the first steps of a segment look like beside the stored curve of the one it comes from.

    `findings` are clauses such as "scaler not restored"; empty when nothing was found. `steps` were compared.
    """

    segment: int
    from_step: int
    steps: int
    time: float
    findings: tuple[str, ...] = ()


Record = SegmentStarted | CheckpointSaved | Report | RunEnded | Unable | Dropped | SaveFailed | StepSamples | ResumeChecked


@dataclass(frozen=True, slots=True)
class Column:
    """Points of one series in one segment, oldest first. All lists have length N; shape (N,) each."""

    series: str
    segment: int
    seq: tuple[int, ...]
    step: tuple[int, ...]
    time: tuple[float, ...]
    value: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Numbered:
    """A record with its number."""

    seq: int
    record: Record


@dataclass(frozen=True, slots=True)
class Batch:
    """Records `first_seq` .. `last_seq` of one incarnation on one rank. The same records may come again, cut otherwise."""

    run_id: str
    incarnation: str
    rank: int
    first_seq: int
    last_seq: int
    sent_at: float
    columns: tuple[Column, ...] = ()
    records: tuple[Numbered, ...] = ()
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Says "alive", what the process does, and the newest values, which are shown but not judged."""

    run_id: str
    incarnation: str
    rank: int
    sent_at: float
    phase: Phase
    step: int | None = None
    segment: int = 1
    latest: dict[str, float] = field(default_factory=dict)
    waiting_records: int = 0
    dropped_records: int = 0
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True)
class Verdict:
    """The server's verdict on a checkpoint, carried back so that the agent can act without the server."""

    checkpoint_id: str
    state: CheckpointState
    reason: str = ""
    pinned: bool = False
    """A person wants it kept."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a run start, a batch, a heartbeat or a long-poll."""

    next_seq: int
    """The number the server expects next from this incarnation and rank; everything below it is durable."""
    commands: tuple[Command, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    page_url: str = ""

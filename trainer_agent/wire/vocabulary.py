"""The enumerations both sides speak.

Every value is the word a person reads (STYLE: one word, one meaning), so a value may be printed as it is.
"""

from enum import StrEnum

PROTOCOL = 1
"""Version of the messages. A server takes its own version and the two before it; unknown fields are ignored both ways."""


class RunState(StrEnum):
    """Where a run stands. `lost` is a belief of the server, not an end: a run that is heard from again is running."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    LOST = "lost"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"


class Phase(StrEnum):
    """What the training process is doing now; sent with each heartbeat so that silence of steps has a name."""

    STARTING = "starting"
    TRAINING = "training"
    EVALUATING = "evaluating"
    SAVING = "saving"
    ROLLING_BACK = "rolling_back"
    HOLDING = "holding"
    """The run is dead and waits at a step boundary for a person or a rule to decide (policy `on_dead="hold"`)."""
    PAUSED = "paused"
    """A person has paused the training; it waits at a step boundary for a resume, a stop or a rollback."""
    ENDING = "ending"


class SegmentCause(StrEnum):
    """Why the steps start again."""

    START = "start"
    RESTART = "restart"
    ROLLBACK = "rollback"


class EndReason(StrEnum):
    """How a run ended, in the agent's own words."""

    FINISHED = "finished"
    STOPPED_BY_COMMAND = "stopped_by_command"
    STOPPED_BY_GUARD = "stopped_by_guard"
    FAILED = "failed"


KILLED = "killed"
"""Detail of the end of a process that could not speak any more, in the words of whoever found what it left."""


class CommandKind(StrEnum):
    """What a run can be told to do."""

    STOP = "stop"
    ROLLBACK = "rollback"
    SAVE = "save"
    """Save a checkpoint at the next step boundary."""
    PAUSE = "pause"
    RESUME = "resume"
    """Go on after a pause."""
    SET_LEARNING_RATE_FACTOR = "set_learning_rate_factor"
    """The schedule's learning rate times a factor from now on."""
    SET_MAX_GRAD_NORM = "set_max_grad_norm"
    """Clip the gradients at a norm from now on."""


class CommandState(StrEnum):
    """The life of a command; the machine is drawn in `server/domain/commands.py`."""

    QUEUED = "queued"
    DELIVERED = "delivered"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNCONFIRMED = "unconfirmed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"


class DataMode(StrEnum):
    """What a rollback does with the data between its target and the step it left."""

    REPLAY = "replay"
    """The same batches again."""
    SKIP = "skip"
    """Pass over the batches of the window."""
    EXCLUDE = "exclude"
    """Leave named samples, or all samples of named documents, out of their batches; every other batch stays as it was."""


class CheckpointState(StrEnum):
    """The verdict on a checkpoint. Only `sound` ones may be rolled back to."""

    WRITING = "writing"
    COMPLETE = "complete"
    SOUND = "sound"
    UNSOUND = "unsound"
    CORRUPT = "corrupt"
    DELETED = "deleted"


class Severity(StrEnum):
    """How loud an alert is: `info` is shown only, `warning` and above go out to people."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class AlertState(StrEnum):
    """The life of an alert; the machine is drawn in `server/domain/alerts.py`."""

    PENDING = "pending"
    FIRING = "firing"
    RECOVERING = "recovering"
    RESOLVED = "resolved"

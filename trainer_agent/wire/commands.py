"""A command and what it carries. Limits travel as remaining seconds, so that no two wall clocks are ever compared."""

from dataclasses import dataclass

from .vocabulary import CommandKind, DataMode


@dataclass(frozen=True, slots=True)
class RollbackPayload:
    """Where to go back to, and what is different afterwards.

    `checkpoint_id` is an id out of the agent's own manifests, never a path. `new_segment` is fixed when the command is made,
    so doing the rollback twice opens one segment. `skip_from_step` .. `skip_to_step` (inclusive, optimizer steps of the
    segment that is left) is the window whose batches `data = skip` passes over; without an end it reaches to the step at
    which the run is left.
    """

    checkpoint_id: str
    target_step: int
    new_segment: int
    data: DataMode = DataMode.REPLAY
    skip_from_step: int | None = None
    skip_to_step: int | None = None
    exclude_samples: tuple[int, ...] = ()
    """Of `data = exclude`: sample ids, which are places in the data set."""
    exclude_documents: tuple[str, ...] = ()
    """Of `data = exclude`: ids of documents, all samples of which are left out, also those not seen yet."""
    max_grad_norm: float | None = None
    """None leaves clipping as it is."""
    learning_rate_factor: float | None = None
    """On the schedule's own rate, in place of an earlier factor; None leaves it as it is."""
    first_sign_step: int | None = None
    """Onset of the earliest trouble that was open when the command was made; None where there was none."""


@dataclass(frozen=True, slots=True)
class Command:
    """An order to the training, made for one incarnation and one segment. The agent refuses it for any other."""

    command_id: str
    kind: CommandKind
    incarnation: str
    segment: int
    deliver_within_seconds: float
    execute_within_seconds: float
    reason: str = ""
    issued_by: str = ""
    rollback: RollbackPayload | None = None
    value: float | None = None
    """Of the kinds that set something: the factor, or the norm."""

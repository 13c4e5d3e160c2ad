"""What a use case answers when it cannot do what was asked.

    ServiceError
    ├── NotFound        404  also for what belongs to somebody else: nobody learns that it exists
    ├── OutOfOrder      409  a batch begins past the next expected number
    ├── Refused         409  a command that may not be made now
    ├── Conflict        409  what is there has moved past the point where this can be done
    ├── Stale           412  the page that asked shows an older segment, or an earlier process
    └── Invalid         422  what was sent cannot be taken, now or later

`detail` says what is wrong, `fix` what to do next; the api makes a problem document of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from server.domain.admission import Refusal
from server.domain.commands import IssuedCommand
from trainer_agent.wire.vocabulary import RunState


@dataclass(frozen=True, slots=True)
class Now:
    """Where a run stands, for somebody who saw it elsewhere."""

    state: RunState
    segment: int
    incarnation: str
    step: int | None
    command: IssuedCommand | None


class ServiceError(Exception):
    """The request could not be carried out."""

    def __init__(self, detail: str = "", fix: str = "") -> None:
        self.detail = detail or (type(self).__doc__ or "").strip()
        self.fix = fix
        super().__init__(self.detail)


class NotFound(ServiceError):  # noqa: N818  named for what happened, as the api's problem types are
    """There is no such thing here."""


class OutOfOrder(ServiceError):  # noqa: N818
    """The batch begins past the record that is expected next."""

    def __init__(self, next_seq: int) -> None:
        super().__init__(f"the batch begins past record {next_seq}, which is expected next", f"send again from record {next_seq}")
        self.next_seq = next_seq


class Refused(ServiceError):  # noqa: N818
    """The command may not be made now."""

    def __init__(self, refusal: Refusal, detail: str = "", fix: str = "", active_command: str | None = None) -> None:
        super().__init__(detail or refusal.value, fix)
        self.refusal = refusal
        self.active_command = active_command


class Conflict(ServiceError):  # noqa: N818
    """It is too late for that."""


class Stale(ServiceError):  # noqa: N818
    """The run has moved on since the page was drawn."""

    def __init__(self, now: Now) -> None:
        step = "" if now.step is None else f" at step {now.step}"
        said = f"the run is {now.state} in segment {now.segment}{step} by now, or in another process than you saw"
        super().__init__(said, "look at the run as it is now and decide again")
        self.now = now

    @property
    def segment(self) -> int:
        """The segment it is in."""
        return self.now.segment


class Invalid(ServiceError):  # noqa: N818
    """What was sent cannot be taken. `errors` are the wrong fields and what is wrong with each, where that is known."""

    def __init__(self, detail: str = "", fix: str = "", errors: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(detail, fix)
        self.errors = tuple(errors)

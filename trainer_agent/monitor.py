"""Monitor: what the integrations talk to. Signatures are final; the machinery behind them follows."""

import secrets
from collections.abc import Mapping
from pathlib import Path

from .config import Config
from .wire.commands import Command
from .wire.messages import Record, RunStart, Verdict
from .wire.vocabulary import EndReason, Phase


def new_incarnation() -> str:
    """A random id for one life of one trainer process."""
    return secrets.token_hex(16)


class Monitor:
    """Takes what a training run says, and gives it the commands that came for it. Never raises, never waits for a network.

    `directory` is `<output_dir>/.lossguard`; `start.incarnation` is made with `new_incarnation()`.
    """

    def __init__(self, start: RunStart, config: Config, directory: Path) -> None:
        self.start = start
        self.segment = 1

    def begin(self) -> None:
        """Starts the background threads and returns at once."""
        raise NotImplementedError

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Takes the numbers of one step. Appends to a ring, no more. Thread: training."""
        raise NotImplementedError

    def record(self, record: Record) -> None:
        """Takes a record in its place between the points. Never dropped. Thread: any."""
        raise NotImplementedError

    def set_phase(self, phase: Phase) -> None:
        """Says what the process does now; rides in the heartbeats."""
        raise NotImplementedError

    def take_command(self) -> Command | None:
        """The next command for this incarnation and segment, once. Never blocks."""
        raise NotImplementedError

    def wait_for_command(self, timeout_seconds: float) -> Command | None:
        """The next command, waited for."""
        raise NotImplementedError

    def verdicts(self) -> Mapping[str, Verdict]:
        """The server's verdicts so far, by checkpoint id."""
        raise NotImplementedError

    def flush(self, timeout_seconds: float) -> bool:
        """Whether all that was taken before is durable at the server (without one: on disk) within the limit."""
        raise NotImplementedError

    def end(self, reason: EndReason, step: int | None, detail: str = "", timeout_seconds: float = 5.0) -> None:
        """Records `RunEnded`, sends what is left within the limit, stops the threads."""
        raise NotImplementedError

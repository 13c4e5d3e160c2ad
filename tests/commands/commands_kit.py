"""What the tests of commands share: the tape of `training_kit`, and short ways to say a training."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))

from training_kit import At, Book, HalfTrainer, Rows, Tape, tape, trainer, until, weights

from trainer_agent.wire.vocabulary import CommandKind, CommandState, Phase

__all__ = [
    "At",
    "Book",
    "HalfTrainer",
    "Paused",
    "Rows",
    "Tape",
    "at_end",
    "ordered",
    "said",
    "tape",
    "trainer",
    "until",
    "weights",
]

DONE = [CommandState.RUNNING, CommandState.SUCCEEDED]


def said(taped: Tape, name: str = "c1") -> list[CommandState]:
    """What was reported of a command, without its delivery."""
    told = [report.state for report in taped.reports if report.command_id == name]
    return [state for state in told if state is not CommandState.DELIVERED]


def at_end(taped: Tape, name: str = "c1"):
    """The last report on a command."""
    return [report for report in taped.reports if report.command_id == name][-1]


def ordered(taped: Tape, step: int, kind: CommandKind, name: str = "c1", value: float | None = None) -> At:
    """A command that comes at the beginning of a step, and is done at its end."""
    return At(step, lambda **_: taped.command(kind, name, value))


class Paused:
    """Pauses a training at the end of a step. While it stands still the orders come, each once the one before is answered."""

    def __init__(self, taped: Tape, step: int, *orders: Callable[[], None]) -> None:
        self.taped, self.orders, self.problem = taped, orders, ""
        self.at = At(step, self.begin)

    def begin(self, **_) -> None:
        self.taped.command(CommandKind.PAUSE, "pause")
        threading.Thread(target=self.watched, daemon=True).start()

    def watched(self) -> None:
        try:
            until(lambda: Phase.PAUSED in self.taped.phases)
            for order in self.orders:
                known = len(self.answered())
                order()
                until(lambda known=known: len(self.answered()) > known)
        except AssertionError as error:
            self.problem = f"in the pause: {error}"
            self.taped.stop(name="rescue")

    def answered(self):
        ends = (CommandState.SUCCEEDED, CommandState.FAILED, CommandState.REJECTED)
        return [report for report in self.taped.reports if report.state in ends]

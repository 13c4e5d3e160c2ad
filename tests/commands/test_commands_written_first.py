"""What the server is told of a command, and what lies in the journal at that moment: it is what the next process finds."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trainer_agent.checkpoints.rollback import Refused, Target
from trainer_agent.commands.control import Control
from trainer_agent.commands.journal import Journal, JournalState, Overrides
from trainer_agent.policy import Policy
from trainer_agent.wire.commands import Command, RollbackPayload
from trainer_agent.wire.messages import Record, Report
from trainer_agent.wire.vocabulary import CommandKind, CommandState, Phase

VALUES = {CommandKind.SET_LEARNING_RATE_FACTOR: 0.5, CommandKind.SET_MAX_GRAD_NORM: 1.0}


def command(kind: CommandKind) -> Command:
    payload = RollbackPayload("checkpoint-2", 2, 2) if kind is CommandKind.ROLLBACK else None
    return Command("c1", kind, "i", 1, 600.0, 600.0, rollback=payload, value=VALUES.get(kind))


class Server:
    """Notes what it is told, each with the journal as it lies on the disk then."""

    def __init__(self, folder: Path, told: Command) -> None:
        self.folder, self.told, self.found = folder, [told], {}

    def record(self, record: Record) -> None:
        assert isinstance(record, Report)
        self.found.setdefault(record.state, Journal.open(self.folder, "run").state)

    def take_command(self) -> Command | None:
        return self.told.pop() if self.told else None

    def wait_for_command(self, timeout_seconds: float) -> Command | None:
        return command(CommandKind.STOP)

    def set_phase(self, phase: Phase) -> None: ...


def at_boundary(
    folder: Path, kind: CommandKind, check: Callable[[Target], None] = lambda _: None
) -> dict[CommandState, JournalState]:
    told = command(kind)
    server = Server(folder, told)
    target = Target("c1", told.rollback, None, folder, 7)  # type: ignore[arg-type]
    ways = {"find": lambda *_: target, "check": check, "idle": lambda: None}
    control = Control(server, Policy(), tuple(CommandKind), journal=Journal.open(folder, "run"), **ways)
    control.at_boundary(7, None)
    return server.found


@pytest.mark.parametrize("kind", [kind for kind in CommandKind if kind is not CommandKind.RESUME])
def test_what_was_said_to_be_begun_is_in_the_journal(tmp_path, kind):
    begun = at_boundary(tmp_path, kind)[CommandState.RUNNING].intent
    assert begun is not None
    assert begun.command.kind is kind


@pytest.mark.parametrize(("kind", "held"), list(VALUES.items()))
def test_what_was_said_to_hold_from_now_on_does_so_in_the_next_process(tmp_path, kind, held):
    state = at_boundary(tmp_path, kind)[CommandState.SUCCEEDED]
    factor, norm = (held, None) if kind is CommandKind.SET_LEARNING_RATE_FACTOR else (None, held)
    assert state.overrides == Overrides(factor, norm)
    assert (state.intent, state.result and state.result.state) == (None, CommandState.SUCCEEDED)


def test_what_was_said_to_have_failed_is_not_done_by_the_next_process(tmp_path):
    def refused(_: Target) -> None:
        raise Refused("a file of it has changed")

    state = at_boundary(tmp_path, CommandKind.ROLLBACK, refused)[CommandState.FAILED]
    assert (state.intent, state.result and state.result.state) == (None, CommandState.FAILED)

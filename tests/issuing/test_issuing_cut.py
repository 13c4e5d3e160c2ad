"""F46: the line is cut for half an hour, on a virtual clock, with a command in each state; then it is healed."""

from collections import Counter

import pytest
import sqlalchemy as sa
from judging_kit import OWNER, Trainer

from server.services import commands, reports, runs
from server.services.commands import NewCommand
from server.store import commands as store
from server.store import points as points_store
from server.store import runs as run_store
from server.store.tables import incarnations
from trainer_agent.wire.messages import Heartbeat
from trainer_agent.wire.vocabulary import CommandKind, CommandState, Phase, RunState

S = CommandState
CUT_SECONDS = 1800
ENDS = {
    # state at the cut: kind, what the trainer does meanwhile, what the command is in the end, what is said of it
    ("queued", "stop"): (CommandKind.STOP, (), S.EXPIRED, "did not fetch it in time"),
    ("delivered", "save"): (CommandKind.SAVE, (S.RUNNING, S.SUCCEEDED), S.EXPIRED, "too late: the trainer had it already"),
    ("delivered, not begun", "save"): (CommandKind.SAVE, (S.REJECTED,), S.EXPIRED, "did not say in time that it began"),
    ("running", "save"): (CommandKind.SAVE, (S.SUCCEEDED,), S.SUCCEEDED, ""),
    ("running", "rollback"): (CommandKind.ROLLBACK, (S.SUCCEEDED,), S.SUCCEEDED, ""),
    ("running, fails", "rollback"): (CommandKind.ROLLBACK, (S.FAILED,), S.FAILED, ""),
}


@pytest.mark.parametrize("case", list(ENDS), ids="-".join)
def test_f46_after_half_an_hour_without_a_line_the_same_process_goes_on_and_nothing_is_lost_or_open(
    connection, clock, case, backend, figure
):
    before, (kind, meanwhile, end, said) = case[0], ENDS[case]
    trainer = Trainer(connection, clock).start().log(1, loss=1.0).save(1).send()
    command = commands.issue(connection, NewCommand("run", kind, "key", "ann"), clock()).command
    if before != "queued":
        trainer.report(command.command_id, S.DELIVERED).send()
    if before.startswith("running"):
        trainer.report(command.command_id, S.RUNNING).send()
    offline(connection, trainer, clock, command, meanwhile)
    assert run_store.get(connection, "run").state is RunState.LOST
    trainer.send()
    runs.take_heartbeat(connection, Heartbeat("run", "life-1", 0, 0.0, Phase.TRAINING, 40), OWNER, clock())
    ended = store.read_command(connection, "run", command.command_id)
    assert (ended.state, said in ended.outcome) == (end, True), ended.outcome
    traces = points_store.read_points(connection, "run", "train/loss")
    stored = Counter(int(step) for trace in traces for step in trace.step)
    wrong = sum(stored[step] != 1 for step in range(1, 31)) + len(store.in_line(connection, ["run"]))
    figure("F46", f"points lost or doubled, commands left open ({' '.join(case)}; {backend})", wrong, at_most=0)
    lives = connection.execute(sa.select(incarnations.c.incarnation).where(incarnations.c.run_id == "run")).scalars().all()
    assert lives == ["life-1"], "one attempt"
    assert run_store.get(connection, "run").state is RunState.RUNNING
    assert trainer.take(1, 1).commands == ()


def offline(connection, trainer, clock, command, meanwhile) -> None:
    """Half an hour of which the server hears nothing: it ends what is overdue, the trainer trains and does what it has."""
    for minute in range(CUT_SECONDS // 60):
        clock.advance(60)
        runs.mark_overdue(connection, clock())
        reports.expire_due(connection, clock())
        if minute == 1 and command.rollback is not None and S.SUCCEEDED in meanwhile:
            trainer.open_segment(command.rollback.new_segment, 1, command_id=command.command_id)
        if minute == 1:
            for word in meanwhile:
                trainer.report(command.command_id, word)
        if minute:
            trainer.log(minute + 1, loss=1.0)

"""People, a trainer, a server and a clock, in any order: the life of commands as a Hypothesis state machine.

The services and the database are the real ones; only the trainer is a model (`issuing_agent`).
"""

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from issuing_agent import ModelAgent

from server.domain.commands import Hand
from server.services import commands, reports, runs
from server.services.commands import NewCommand
from server.services.errors import Conflict, Refused, Stale
from server.store import commands as store
from server.store import runs as run_store
from server.store.database import Database
from trainer_agent.wire.vocabulary import CommandKind, CommandState, DataMode

S = CommandState
UNBEGUN = {S.CANCELLED, S.EXPIRED, S.SUPERSEDED}
ENDS = UNBEGUN | {S.SUCCEEDED, S.FAILED, S.REJECTED, S.UNCONFIRMED}
ARROWS = {
    None: {S.QUEUED},
    S.QUEUED: {S.DELIVERED, S.RUNNING, S.SUCCEEDED, S.FAILED, S.REJECTED} | UNBEGUN,
    S.DELIVERED: {S.RUNNING, S.SUCCEEDED, S.FAILED, S.REJECTED} | UNBEGUN,
    S.RUNNING: {S.SUCCEEDED, S.FAILED, S.UNCONFIRMED},
    S.UNCONFIRMED: {S.SUCCEEDED, S.FAILED},
}
"""Written out here once more: the code's own table is what is tested."""
KINDS = st.sampled_from([*CommandKind, CommandKind.STOP, CommandKind.ROLLBACK, CommandKind.ROLLBACK])
MOSTLY = st.sampled_from([True, True, True, False])
HOW = ["whole", "whole", "begun", "begun", "fails", "killed before", "killed after"]
PEOPLE = st.sampled_from(["ann", "bob"])
NUMBERS = itertools.count(1)


class Server:
    """The database and its clock; `reopen` is a server that is started again."""

    def __init__(self, url: str) -> None:
        self.url, self.now = url, datetime(2026, 3, 1, tzinfo=UTC)
        self.open()
        self.database.migrate()

    def open(self) -> None:
        self.database = Database.open(self.url)
        if self.url.startswith("sqlite"):  # what is tested here is no power cut
            sa.event.listen(self.database.write_engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous = OFF"))

    def submit(self, unit):
        """As the writer would, one at a time, without the way to its thread and back."""
        with self.database.write_engine.begin() as connection:
            connection.info.clear()
            return unit(connection)

    def reopen(self) -> None:
        self.database.close()
        self.open()
        self.submit(lambda connection: runs.give_grace(connection, self.now))

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.submit(self._duties)

    def _duties(self, connection) -> None:
        runs.mark_overdue(connection, self.now)
        reports.expire_due(connection, self.now)


def machine(server: Server, counts) -> Callable[[], RuleBasedStateMachine]:
    """A machine over this server; `counts` sums up what happened in all sequences."""

    class Commands(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.run_id = f"run-{next(NUMBERS)}"
            self.agent = ModelAgent(self.run_id, server.submit, lambda: server.now)
            self.looked: dict[str, dict] = {}
            self.asked: list[tuple[NewCommand, str]] = []

        @initialize()
        def begin(self) -> None:
            counts["sequences"] += 1
            self.agent.start()
            self.agent.begin_loop()
            self.agent.send_all()
            for who in ("ann", "bob"):
                self.look(who)

        # --- people

        def look(self, who: str) -> None:
            with server.database.reading() as connection:
                run = run_store.get(connection, self.run_id)
                life = run_store.newest_incarnation(connection, self.run_id)
            self.looked[who] = {"seen_segment": run.segment, "seen_incarnation": life}

        @rule(who=PEOPLE, kind=KINDS, looks=MOSTLY, data=st.sampled_from([None, None, DataMode.REPLAY]))
        def click(self, who: str, kind: CommandKind, looks: bool, data: DataMode | None) -> None:
            """One of all buttons. `looks`: at the run as it is, not as it was."""
            if looks:
                self.look(who)
            of_kind = {"data": data} if kind is CommandKind.ROLLBACK else {}
            of_kind |= {"value": 0.5} if kind.startswith("set_") else {}
            key = f"{self.run_id}-{len(self.asked)}"
            self._issue(NewCommand(self.run_id, kind, key, who, reason="r", **self.looked[who], **of_kind))

        @rule(who=PEOPLE, kind=st.sampled_from([CommandKind.STOP, CommandKind.ROLLBACK]))
        def click_the_large_buttons(self, who: str, kind: CommandKind) -> None:
            self.click(who, kind, looks=True, data=None)

        def _issue(self, new: NewCommand) -> None:
            try:
                issued = server.submit(lambda connection: commands.issue(connection, new, server.now))
            except (Refused, Stale) as refused:
                counts[type(refused).__name__] += 1
                return
            self.asked.append((new, issued.command.command_id))
            counts["made" if issued.created else "found"] += 1
            counts["behind"] += issued.created and issued.command.behind is not None

        @precondition(lambda self: self.asked)
        @rule(pick=st.integers(0, 30))
        def send_a_click_again(self, pick: int) -> None:
            """A reload, a proxy, an answer that was lost."""
            new, command_id = self.asked[pick % len(self.asked)]
            issued = server.submit(lambda connection: commands.issue(connection, new, server.now))
            assert (issued.command.command_id, issued.created) == (command_id, False)

        @precondition(lambda self: self.asked)
        @rule(who=PEOPLE, pick=st.integers(0, 3))
        def cancel(self, who: str, pick: int) -> None:
            _, command_id = self.asked[-1 - pick % len(self.asked)]
            try:
                ended = server.submit(
                    lambda connection: commands.cancel(connection, self.run_id, command_id, Hand(who, "here"), server.now)
                )
            except Conflict:
                counts["too late to cancel"] += 1
            else:
                assert ended.state is S.CANCELLED

        # --- the trainer

        @precondition(lambda self: not self.agent.is_alive)
        @rule(begins=MOSTLY)
        def start(self, begins: bool) -> None:
            self.agent.start()
            if begins:
                self.begin_loop()

        @precondition(lambda self: self.agent.is_alive and not self.agent.in_loop)
        @rule(beats=st.booleans())
        def begin_loop(self, beats: bool = True) -> None:
            if beats:
                self.agent.beat()
            self.agent.begin_loop()

        @precondition(lambda self: self.agent.is_alive)
        @rule(lost=st.integers(0, 2), starts=MOSTLY)
        def kill(self, lost: int, starts: bool = False) -> None:
            counts["kills"] += 1
            self.agent.kill(lost)
            if starts:
                self.start(begins=True)

        @rule(which=st.integers(0, 3), count=st.integers(1, 4))
        def send(self, which: int, count: int) -> None:
            self.agent.send(which, count)

        @rule(beats=st.booleans())
        def send_all(self, beats: bool) -> None:
            self.agent.send_all()
            if beats and self.agent.is_alive:
                self.agent.beat()

        @precondition(lambda self: self.agent.is_alive and self.agent.in_loop and self.agent.in_hand is None)
        @rule(how=st.sampled_from(HOW), sends=st.booleans())
        def obey(self, how: str, sends: bool) -> None:
            """The next command, at a step boundary, from its intent to its result or to a kill."""
            self.agent.beat()
            self.agent.begin_command()
            if self.agent.in_hand is None:
                return
            counts["obeyed"] += 1
            if sends:
                self.agent.send_all()
            if how in ("whole", "killed after"):
                self.agent.do_command()
            if how.startswith("killed"):
                self.kill(1)
            elif how != "begun":
                self.agent.end_command(fails=how == "fails")

        @precondition(lambda self: self.agent.in_hand is not None)
        @rule(fails=st.booleans())
        def end_command(self, fails: bool) -> None:
            if not fails:
                self.agent.do_command()
            self.agent.end_command(fails=fails)

        # --- the server and the clock

        @rule(seconds=st.sampled_from([0.0, 1.0, 12.0, 70.0, 700.0, 2000.0]))
        def pass_time(self, seconds: float) -> None:
            """No time at all is the server that is started again."""
            if seconds:
                server.pass_time(seconds)
            else:
                server.reopen()

        # --- what must hold

        @invariant()
        def commands_keep_their_promises(self) -> None:
            with server.database.reading() as connection:
                known = store.read_commands(connection, self.run_id)
                histories = store.read_histories(connection, [self.run_id])
            for each in known:
                check_history(each, histories[each.command_id])
            in_line = [each for each in known if each.state not in ENDS]
            assert len([each for each in in_line if each.behind is None]) <= 1, "two active"
            assert len([each for each in in_line if each.behind is not None]) <= 1, "two waiting"
            disk = self.agent.disk
            assert not disk.wrongly_taken
            assert all(count == 1 for count in disk.effects.values()), "done twice"
            assert all(len(opened) <= 1 for opened in disk.opened.values()), "two segments of one rollback"

        def teardown(self) -> None:
            """Everything is told in the end, and by then nothing is open and nobody reads of a deed that it was none."""
            if self.agent.disk.spools:
                if not self.agent.is_alive:  # what it noted down before it died is told by the next one, and by nobody else
                    self.agent.start()
                if self.agent.in_loop is False:
                    self.agent.begin_loop()
                self.agent.send_all()
            for _ in range(3):  # a stop that waited has its own time from its turn on
                server.pass_time(3600)
            self.commands_keep_their_promises()
            with server.database.reading() as connection:
                for each in store.read_commands(connection, self.run_id):
                    check_end(each, self.agent.disk)

    return Commands


def check_history(command, history) -> None:
    """That each line goes on from the one before it by an arrow, and says by whom."""
    assert [each.before for each in history] == [None, *[each.state for each in history[:-1]]]
    assert all(each.state in ARROWS.get(each.before, set()) for each in history), [each.state for each in history]
    assert history[-1].state is command.state
    assert len([each for each in history if each.state in ENDS - {S.UNCONFIRMED}]) <= 1, "two ends"
    assert all(each.by for each in history)


def check_end(command, disk) -> None:
    was_done = bool(disk.effects[command.command_id] or disk.opened[command.command_id])
    assert command.state in ENDS, "left open"
    assert command.state is not S.SUCCEEDED or was_done, "succeeded without a deed"
    assert command.state is not S.REJECTED or not was_done
    if was_done and command.state in UNBEGUN:
        assert "too late" in command.outcome, f"{command.state}, and was done"

"""Two server processes over one PostgreSQL: what one is about to commit, the other waits for before it decides."""

import threading
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
import sqlalchemy as sa
from judging_kit import Trainer, alerts_of, use_default_rules
from test_judging_countdowns import ROLLBACK, in_trouble

from server.domain.alerts import CloseReason
from server.domain.commands import Hand
from server.services import commands, countdowns, rules
from server.services.commands import NewCommand
from server.services.errors import Conflict, Stale
from server.store import commands as commands_store
from server.store import countdowns as store
from server.store import rules as rules_store
from server.store import runs as run_store
from server.store.database import Database
from trainer_agent.wire.vocabulary import AlertState, CommandKind


@pytest.fixture
def servers(new_database_url):
    url = new_database_url("postgresql")
    opened = [Database.open(url), Database.open(url)]
    opened[0].migrate()
    yield opened
    for server in opened:
        server.close()


@contextmanager
def uncommitted(server, act):
    """What `act` does on one server, committed only at the end of the block."""
    done, leave = threading.Event(), threading.Event()

    def unit(connection):
        act(connection)
        done.set()
        assert leave.wait(30)

    thread = threading.Thread(target=server.writer.submit, args=(unit,))
    thread.start()
    assert done.wait(30)
    try:
        yield
    finally:
        leave.set()
        thread.join(30)


class Meanwhile:
    """A unit of work on another server, and what came of it."""

    def __init__(self, server, act):
        self.result = self.error = None
        self._server, self._act = server, act
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            self.result = self._server.writer.submit(self._act)
        except Exception as error:
            self.error = error

    def end(self):
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self

    def is_held_up(self, seconds=0.3):
        self._thread.join(seconds)
        return self._thread.is_alive()


def read(server, act):
    with server.reading() as connection:
        return act(connection)


def test_a_countdown_that_is_being_cancelled_elsewhere_gives_no_command(servers, clock):
    servers[0].writer.submit(lambda connection: in_trouble(connection, clock))
    due_at = clock.advance(30)
    with uncommitted(servers[0], lambda connection: countdowns.cancel(connection, "run", Hand("ann"), due_at)):
        due = Meanwhile(servers[1], lambda connection: countdowns.run_due(connection, due_at))
        due.is_held_up()
    assert due.end().result == 0
    assert read(servers[0], lambda connection: commands_store.read_commands(connection, "run")) == ()


def test_who_cancels_a_countdown_while_its_command_is_given_is_told_that_it_is_too_late(servers, clock):
    servers[0].writer.submit(lambda connection: in_trouble(connection, clock))
    due_at = clock.advance(30)
    with uncommitted(servers[0], lambda connection: countdowns.run_due(connection, due_at)):
        cancelled = Meanwhile(servers[1], lambda connection: countdowns.cancel(connection, "run", Hand("ann"), due_at))
        cancelled.is_held_up()
    assert isinstance(cancelled.end().error, Conflict)
    (command,) = read(servers[0], lambda connection: commands_store.read_commands(connection, "run"))
    assert command.issued_by == "rule:high"


def test_a_countdown_is_carried_out_once(servers, clock):
    servers[0].writer.submit(lambda connection: in_trouble(connection, clock))
    due_at = clock.advance(30)
    both = [Meanwhile(server, lambda connection: countdowns.run_due(connection, due_at)) for server in servers]
    assert sum(each.end().result for each in both) == 1


def test_a_command_waits_for_the_segment_that_is_being_taken(servers, clock):
    servers[0].writer.submit(lambda connection: Trainer(connection, clock).start().log(1, loss=1.0).send())

    def restart(connection):
        Trainer(connection, clock, incarnation="life-2", segment=2).start(from_step=1).send()

    stop = NewCommand("run", CommandKind.STOP, "key", "ann", seen_segment=1)
    with uncommitted(servers[0], restart):
        issued = Meanwhile(servers[1], partial(commands.issue, new=stop, now=clock()))
        assert issued.is_held_up()
    assert isinstance(issued.end().error, Stale)


def test_no_alert_of_a_rule_stays_open_that_is_changed_while_it_fires(servers, clock):
    rule = replace(ROLLBACK, action=replace(ROLLBACK.action, countdown_seconds=60))
    trainers = []

    def prepare(connection):
        rules_store.add_missing(connection, [rule])
        trainers.append(Trainer(connection, clock).start().log(1, loss=1.0).send())

    def fire(connection):
        trainers[0].connection = connection
        trainers[0].log(2, loss=20.0).send()

    servers[0].writer.submit(prepare)
    with uncommitted(servers[0], fire):
        change = {"settings": {"above": 50.0}}
        changed = Meanwhile(servers[1], lambda connection: rules.change(connection, "high", change, "ann", clock()))
        changed.is_held_up()
    assert changed.end().error is None
    alert = read(servers[0], alerts_of)["high"]
    assert (alert.state, alert.closed_because) == (AlertState.RESOLVED, CloseReason.RULE_CHANGED)
    assert read(servers[0], lambda connection: store.active_countdown(connection, "run")) is None


def test_two_servers_that_start_together_put_the_default_rules_in_place_once(servers):
    with uncommitted(servers[0], use_default_rules):
        second = Meanwhile(servers[1], use_default_rules)
        second.is_held_up()
    assert second.end().error is None
    with servers[0].reading() as connection:
        count = connection.execute(sa.text("select count(*), count(distinct rule_id) from rules")).one()
    assert count[0] == count[1] > 0


def test_two_servers_that_wait_for_each_other_both_do_what_they_were_asked(servers, clock):
    for run_id in "ab":
        servers[0].writer.submit(lambda connection, run_id=run_id: Trainer(connection, clock, run_id=run_id).start().send())
    has_one = threading.Barrier(2)
    attempts = []

    def locks(first, second):
        def unit(connection):
            attempts.append(first)
            run_store.lock(connection, first)
            if attempts.count(first) == 1:
                has_one.wait(30)
            run_store.lock(connection, second)
            return second

        return unit

    one, other = Meanwhile(servers[0], locks("a", "b")), Meanwhile(servers[1], locks("b", "a"))
    one.end()
    other.end()
    assert (one.error, one.result) == (None, "b")
    assert (other.error, other.result) == (None, "a")
    assert len(attempts) >= 3  # more where the one tried again meets the other once more

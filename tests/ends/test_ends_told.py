"""What the server makes of the end of a process that a later one found in its folder."""

import pytest

from server.domain.events import EventType
from server.domain.runs import ENDED, NO_WORD, RunInput, RunStatus, step
from server.services import ingest, runs
from server.store import events as event_store
from server.store import runs as store
from trainer_agent.wire.messages import Batch, Column, Numbered, RunEnded, RunStart
from trainer_agent.wire.vocabulary import EndReason, RunState

KILLED = RunEnded(EndReason.FAILED, 0.0, 40, "killed")


def start(connection, now, incarnation):
    return runs.start_run(connection, RunStart("r", incarnation, "p", "n"), "t", now)


def take(connection, now, incarnation, record, seq=1):
    return ingest.take_batch(
        connection, Batch("r", incarnation, 0, seq, seq, 0.0, records=(Numbered(seq, record),)), "t", now
    ).next_seq


def told(connection):
    return [each.event for each in reversed(event_store.newest(connection, "r"))]


def test_a_run_that_was_lost_and_has_no_new_process_becomes_failed_by_being_killed(connection, now, clock):
    start(connection, now, "a")
    runs.mark_overdue(connection, clock.advance(61))
    take(connection, clock.advance(60), "a", KILLED)
    run = store.get(connection, "r")
    assert (run.state, run.state_reason, run.deadline_at) == (RunState.FAILED, "killed", None)
    assert [event.type for event in told(connection)] == [EventType.RUN_STARTED, EventType.RUN_LOST, EventType.RUN_FAILED]
    assert told(connection)[-1].data["text"] == "Failed: killed"


def test_while_a_new_process_runs_the_end_of_the_one_before_is_told_and_changes_nothing(connection, now, clock):
    start(connection, now, "a")
    runs.mark_overdue(connection, clock.advance(61))
    start(connection, clock(), "b")
    before = store.get(connection, "r")
    take(connection, clock.advance(30), "a", KILLED)
    after = store.get(connection, "r")
    assert (after.state, after.state_reason, after.step, after.deadline_at, after.heard_at) == (
        RunState.RUNNING,
        "",
        before.step,
        before.deadline_at,
        before.heard_at,
    )
    event = told(connection)[-1]
    assert (event.type, event.step) == (EventType.RUN_INCARNATION_ENDED, 40)
    assert event.data["text"] == "An earlier process of this run ended at step 40: failed: killed"
    assert (event.data["reason"], event.data["incarnation"]) == ("killed", "a")


@pytest.mark.parametrize("newer", [False, True])
def test_the_first_word_on_how_a_process_ended_stands(connection, now, newer):
    """Its folder may have been found half emptied by a process that could not see that word any more."""
    start(connection, now, "a")
    assert take(connection, now, "a", RunEnded(EndReason.FINISHED, 0.0, 50)) == 2
    if newer:
        start(connection, now, "b")
    before = told(connection)
    assert take(connection, now, "a", KILLED, 2) == 3
    assert told(connection) == before
    assert store.get(connection, "r").state is (RunState.RUNNING if newer else RunState.FINISHED)


def test_what_an_earlier_process_left_is_judged_before_its_end_is_told_once(connection, now):
    start(connection, now, "a")
    start(connection, now, "b")
    column = Column("train/loss", 1, (1, 2), (1, 2), (0.0, 0.0), (1.0, 2.0))
    batch = Batch("r", "a", 0, 1, 3, 0.0, columns=(column,), records=(Numbered(3, KILLED),))
    for _ in range(2):
        assert ingest.take_batch(connection, batch, "t", now).next_seq == 4
    assert [event.type for event in told(connection)].count(EventType.RUN_INCARNATION_ENDED) == 1


@pytest.mark.parametrize("state", list(RunState))
@pytest.mark.parametrize("what", sorted(NO_WORD))
def test_what_is_no_word_of_the_run_never_gives_it_more_time(state, what, now):
    status = RunStatus(state, None if state in ENDED else now)
    after = step(status, RunInput(what), now.replace(year=2030)).status
    assert after.deadline_at in (None, now)
    assert what is RunInput.SILENT or after == (status if state is not RunState.LOST else RunStatus(state))

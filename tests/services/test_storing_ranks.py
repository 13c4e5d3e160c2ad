"""What ranks may say, and what a run that can no longer be told is shown as."""

import pytest
from judging_kit import use_default_rules

from server.domain.events import EventType
from server.services import ingest, runs
from server.store import events as event_store
from server.store import runs as run_store
from trainer_agent.wire.codec import check_batch, decode, encode
from trainer_agent.wire.messages import Batch, EndReason, Numbered, RunEnded, RunStart, SegmentStarted, Unable
from trainer_agent.wire.vocabulary import CommandKind, DataMode, RunState, SegmentCause


@pytest.fixture
def begun(connection, now):
    use_default_rules(connection)
    for incarnation, rank in (("i", 0), ("j", 1)):
        obeys = (CommandKind.STOP, CommandKind.ROLLBACK)
        runs.start_run(connection, RunStart("r", incarnation, "p", "n", rank=rank, world_size=2, capabilities=obeys), "t", now)
    return connection


def say(connection, now, record, *, rank=0, incarnation="i"):
    sent = Batch("r", incarnation, rank, 1, 1, 0.0, (), (Numbered(1, record),))
    check_batch(sent)
    return ingest.take_batch(connection, decode(Batch, encode(sent)), "t", now)


def told(connection, kind):
    return [each.event.data for each in event_store.newest(connection, "r", {kind})]


def test_a_run_that_can_no_longer_be_told_loses_its_buttons_and_says_why(begun, now):
    say(begun, now, Unable("the ranks cannot agree any more: rank 1 is gone", 0.0, 7))
    run = run_store.get(begun, "r")
    assert run.capabilities == ()
    assert run.incapable_because == "the ranks cannot agree any more: rank 1 is gone"
    assert run.state is RunState.RUNNING
    (event,) = told(begun, EventType.RUN_UNABLE)
    assert "rank 1 is gone" in event["text"]


def test_another_rank_cannot_take_the_buttons_away(begun, now):
    say(begun, now, Unable("I am not asked", 0.0), rank=1, incarnation="j")
    assert run_store.get(begun, "r").capabilities == (CommandKind.STOP, CommandKind.ROLLBACK)


def test_an_older_process_of_rank_0_cannot_take_them_away_either(begun, now, clock):
    runs.start_run(begun, RunStart("r", "later", "p", "n", capabilities=(CommandKind.STOP,)), "t", clock.advance(5))
    say(begun, clock.advance(5), Unable("long ago", 0.0))
    assert run_store.get(begun, "r").capabilities == (CommandKind.STOP,)


def test_that_a_rank_failed_is_told_with_its_rank_and_does_not_end_the_run(begun, now):
    say(begun, now, RunEnded(EndReason.FAILED, 0.0, 3, "OutOfMemoryError"), rank=1, incarnation="j")
    assert run_store.get(begun, "r").state is RunState.RUNNING
    (event,) = told(begun, EventType.RUN_RANK_FAILED)
    assert (event["rank"], event["text"]) == (1, "Rank 1 failed: OutOfMemoryError")


def test_that_another_rank_is_through_is_no_news(begun, now):
    say(begun, now, RunEnded(EndReason.FINISHED, 0.0, 3), rank=1, incarnation="j")
    assert run_store.get(begun, "r").state is RunState.RUNNING
    assert told(begun, EventType.RUN_RANK_FAILED) == []


@pytest.mark.parametrize("rank_starts_first", [True, False])
def test_what_an_earlier_process_of_a_rank_left_is_told_where_that_process_was(begun, clock, rank_starts_first):
    """All ranks were killed and started again, and the new ones find what the old ones could not say any more."""
    say(begun, clock.advance(1), SegmentStarted(1, 0, SegmentCause.START, 0.0))
    lives = [("i2", 0), ("j2", 1)]
    for incarnation, rank in reversed(lives) if rank_starts_first else lives:
        start = RunStart("r", incarnation, "p", "n", rank=rank, world_size=2)
        runs.start_run(begun, start, "t", clock.advance(1))
    say(begun, clock.advance(1), SegmentStarted(2, 4, SegmentCause.RESTART, 0.0), incarnation="i2")
    say(begun, clock.advance(1), RunEnded(EndReason.FAILED, 0.0, 7, "killed"), rank=1, incarnation="j")
    say(begun, clock.advance(1), RunEnded(EndReason.FAILED, 0.0, 5, "ValueError"), rank=1, incarnation="j2")
    newer, older = (row.event for row in event_store.newest(begun, "r", {EventType.RUN_RANK_FAILED}))
    assert (older.segment, older.step, older.data["text"]) == (1, 7, "An earlier process of rank 1 failed: killed")
    assert (newer.segment, newer.data["text"]) == (2, "Rank 1 failed: ValueError")


def test_what_a_rollback_can_do_with_the_data_is_told_when_the_loop_begins(begun, now):
    """A hand-written loop says only then where its batches come from; another rank is not asked, nor an older segment."""
    can = (DataMode.REPLAY, DataMode.SKIP)
    said = SegmentStarted(2, 4, SegmentCause.RESTART, 0.0, data_modes=can, data_modes_because="drawn at random")
    say(begun, now, said)
    run = run_store.get(begun, "r")
    assert (run.data_modes, run.data_modes_because) == (can, "drawn at random")
    say(begun, now, SegmentStarted(2, 4, SegmentCause.RESTART, 0.0, data_modes=()), rank=1, incarnation="j")
    assert run_store.get(begun, "r").data_modes == can

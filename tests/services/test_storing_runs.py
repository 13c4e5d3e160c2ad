"""A run's life: who may speak for it, what a restart does, and when it counts as lost."""

import json
import math
from dataclasses import replace

import pytest
import sqlalchemy as sa

from server.domain.events import EventType
from server.domain.runs import LOST_AFTER
from server.services import ingest, runs
from server.services.errors import Invalid, NotFound
from server.store import events as event_store
from server.store import runs as store
from server.store.tables import incarnations, point_batches
from server.store.tables import runs as runs_table
from trainer_agent.wire.messages import Batch, Column, Heartbeat, Numbered, RunEnded, RunStart, SegmentStarted
from trainer_agent.wire.vocabulary import CommandKind, EndReason, Phase, RunState, SegmentCause

START = RunStart(
    "r",
    "i1",
    "project",
    "name",
    host="box",
    total_steps=100,
    integration="hf",
    capabilities=(CommandKind.STOP,),
    attributes={"lr": 0.5, "clip": math.inf, "note": None},
)
BEAT = Heartbeat("r", "i1", 0, 0.0, Phase.TRAINING, step=7, latest={"train/loss": math.nan, "train/grad_norm": 2.5})


def start(connection, now, owner="t", **changes):
    return runs.start_run(connection, replace(START, **changes), owner, now)


def end(connection, now, reason, incarnation="i1", detail=""):
    record = Numbered(1, RunEnded(reason, 0.0, 9, detail))
    return ingest.take_batch(connection, Batch("r", incarnation, 0, 1, 1, 0.0, records=(record,)), "t", now)


def told(connection):
    return [each.event.type for each in reversed(event_store.newest(connection, "r"))]


def test_a_start_makes_a_running_run_of_what_it_says(connection, now):
    reply = start(connection, now)
    run = store.get(connection, "r")
    assert (reply.next_seq, reply.commands) == (1, ())
    assert (run.state, run.deadline_at, run.phase, run.revision) == (RunState.RUNNING, now + LOST_AFTER, Phase.STARTING, 1)
    assert (run.owner_token_id, run.host, run.total_steps, run.capabilities) == ("t", "box", 100, (CommandKind.STOP,))
    assert run.attributes == {"lr": 0.5, "clip": "Infinity", "note": None}
    assert told(connection) == [EventType.RUN_STARTED]


def test_the_newest_values_of_steps_that_a_rollback_left_behind_are_not_shown_any_more(connection, now):
    start(connection, now)
    runs.take_heartbeat(connection, replace(BEAT, step=233, segment=1), "t", now)
    assert store.get(connection, "r").latest["train/grad_norm"] == {"value": 2.5, "step": 233, "segment": 1}
    segment = Numbered(1, SegmentStarted(2, 200, SegmentCause.ROLLBACK, 0.0, parent=1))
    ingest.take_batch(connection, Batch("r", "i1", 0, 1, 1, 0.0, records=(segment,)), "t", now)
    assert store.get(connection, "r").latest == {}
    runs.take_heartbeat(connection, replace(BEAT, step=234, segment=1), "t", now)  # it was on its way
    assert store.get(connection, "r").latest == {}
    runs.take_heartbeat(connection, replace(BEAT, step=203, segment=2), "t", now)
    assert store.get(connection, "r").latest["train/grad_norm"]["step"] == 203


def test_the_same_start_again_changes_nothing(connection, now, clock):
    start(connection, now)
    before = store.get(connection, "r")
    start(connection, clock.advance(5))
    assert store.get(connection, "r") == before
    assert told(connection) == [EventType.RUN_STARTED]


def test_a_new_incarnation_reopens_an_ended_and_a_lost_run(connection, now, clock):
    start(connection, now)
    end(connection, now, EndReason.FAILED, detail="OutOfMemoryError")
    failed = store.get(connection, "r")
    assert (failed.state, failed.state_reason, failed.ended_at, failed.phase) == (
        RunState.FAILED,
        "OutOfMemoryError",
        now,
        None,
    )
    start(connection, now, incarnation="i2", host="other")
    again = store.get(connection, "r")
    assert (again.state, again.ended_at, again.state_reason, again.host) == (RunState.RUNNING, None, "", "other")
    assert runs.mark_overdue(connection, clock.advance(61)) == 1
    start(connection, clock(), incarnation="i3")
    assert store.get(connection, "r").state is RunState.RUNNING
    started = EventType.RUN_STARTED
    assert told(connection) == [started, EventType.RUN_FAILED, started, EventType.RUN_LOST, started]


def test_another_tokens_run_is_not_there(connection, now):
    start(connection, now)
    batch = Batch("r", "i1", 0, 1, 1, 0.0, columns=(Column("a/b", 1, (1,), (1,), (0.0,), (0.0,)),))
    for attempt in (
        lambda: start(connection, now, owner="thief", incarnation="i2"),
        lambda: runs.take_heartbeat(connection, BEAT, "thief", now),
        lambda: ingest.take_batch(connection, batch, "thief", now),
        lambda: runs.reply_for(connection, "r", "i1", rank=0, owner_token_id="thief", now=now),
    ):
        with pytest.raises(NotFound, match="no run r of this token"):
            attempt()
    for table, count in ((incarnations, 1), (point_batches, 0)):
        assert connection.execute(sa.select(sa.func.count()).select_from(table)).scalar() == count


def test_an_unknown_incarnation_is_told_to_start_first(connection, now):
    start(connection, now)
    for attempt in (
        lambda: runs.take_heartbeat(connection, replace(BEAT, incarnation="x"), "t", now),
        lambda: runs.take_heartbeat(connection, replace(BEAT, rank=1), "t", now),
        lambda: runs.reply_for(connection, "r", "x", rank=0, owner_token_id="t", now=now),
    ):
        with pytest.raises(NotFound) as error:
            attempt()
        assert error.value.fix == "send RunStart for this incarnation and rank first"


@pytest.mark.parametrize(
    "changes",
    [
        {"run_id": "r" * 65},
        {"incarnation": ""},
        {"project": "p" * 257},
        {"name": ""},
        {"integration": "i" * 33},
        {"rank": 2**31},
        {"world_size": 2**40},
    ],
)
def test_a_start_that_cannot_be_stored_is_refused_and_leaves_nothing(connection, now, changes):
    with pytest.raises(Invalid, match=next(iter(changes))):
        start(connection, now, **changes)
    assert connection.execute(sa.select(sa.func.count()).select_from(runs_table)).scalar() == 0


def test_a_long_host_name_and_other_letters_are_no_reason_to_refuse(connection, now):
    start(connection, now, name="\u8bad\u7ec3 \U0001f642", host="h" * 5000)
    assert (store.get(connection, "r").name, len(store.get(connection, "r").host)) == ("\u8bad\u7ec3 \U0001f642", 256)


def test_a_heartbeat_shows_the_newest_values_and_moves_the_deadline(connection, now, clock):
    start(connection, now)
    runs.take_heartbeat(connection, BEAT, "t", clock.advance(30))
    run = store.get(connection, "r")
    assert (run.phase, run.heard_at, run.deadline_at) == (Phase.TRAINING, clock(), clock() + LOST_AFTER)
    assert run.latest == {
        "train/loss": {"value": "NaN", "step": 7, "segment": 1},
        "train/grad_norm": {"value": 2.5, "step": 7, "segment": 1},
    }
    assert json.dumps(run.latest, allow_nan=False)
    assert run.step is None, "shown, not judged"


def test_a_heartbeat_shows_only_names_that_keep_the_grammar(connection, now):
    start(connection, now)
    runs.take_heartbeat(connection, replace(BEAT, latest={"<b>": 1.0, "a/b": 2.0}), "t", now)
    assert list(store.get(connection, "r").latest) == ["a/b"]


def test_silence_makes_a_run_lost_and_a_word_brings_it_back(connection, now, clock):
    start(connection, now)
    assert runs.mark_overdue(connection, clock.advance(60)) == 0
    assert runs.mark_overdue(connection, clock.advance(1)) == 1
    assert runs.mark_overdue(connection, clock.advance(100)) == 0
    lost = store.get(connection, "r")
    assert (lost.state, lost.deadline_at, lost.heard_at) == (RunState.LOST, None, now)
    assert lost.state_reason == "no word since 2026-03-01 12:00:00 UTC"
    runs.take_heartbeat(connection, BEAT, "t", clock())
    found = store.get(connection, "r")
    assert (found.state, found.state_reason) == (RunState.RUNNING, "")
    assert told(connection) == [EventType.RUN_STARTED, EventType.RUN_LOST, EventType.RUN_FOUND]


def test_after_a_start_of_the_server_every_live_run_gets_a_full_limit(connection, now, clock):
    start(connection, now)
    runs.give_grace(connection, clock.advance(3600))
    assert runs.mark_overdue(connection, clock.advance(59)) == 0
    assert runs.mark_overdue(connection, clock.advance(2)) == 1


def test_an_older_incarnation_neither_keeps_the_run_alive_nor_ends_it(connection, now, clock):
    start(connection, now)
    start(connection, now, incarnation="i2")
    runs.take_heartbeat(connection, replace(BEAT, phase=Phase.ENDING), "t", clock.advance(50))
    run = store.get(connection, "r")
    assert (run.phase, run.deadline_at, run.latest) == (Phase.STARTING, now + LOST_AFTER, {})
    end(connection, clock(), EndReason.FAILED)
    assert store.get(connection, "r").state is RunState.RUNNING
    assert runs.mark_overdue(connection, clock.advance(11)) == 1
    runs.take_heartbeat(connection, BEAT, "t", clock())
    assert store.get(connection, "r").state is RunState.LOST


def test_another_rank_does_not_keep_the_run_alive(connection, now, clock):
    start(connection, now)
    start(connection, now, incarnation="j", rank=1)
    reply = runs.take_heartbeat(connection, replace(BEAT, incarnation="j", rank=1), "t", clock.advance(61))
    assert (reply.next_seq, reply.commands, reply.verdicts) == (1, (), ())
    assert runs.mark_overdue(connection, clock()) == 1


def test_another_rank_may_start_before_rank_0(connection, now):
    start(connection, now, incarnation="j", rank=1)
    assert store.get(connection, "r").state is RunState.CREATED
    start(connection, now)
    assert store.get(connection, "r").state is RunState.RUNNING
    assert told(connection) == [EventType.RUN_STARTED]


def test_a_word_after_the_end_does_not_reopen_the_run(connection, now, clock):
    start(connection, now)
    end(connection, now, EndReason.STOPPED_BY_GUARD, detail="loss is NaN")
    runs.take_heartbeat(connection, BEAT, "t", clock.advance(5))
    run = store.get(connection, "r")
    assert (run.state, run.state_reason, run.phase, run.deadline_at) == (RunState.STOPPED, "loss is NaN", None, None)
    assert runs.mark_overdue(connection, clock.advance(1000)) == 0
    assert told(connection) == [EventType.RUN_STARTED, EventType.RUN_STOPPED]


def test_running_runs_are_listed_first_then_the_newest_heard(connection, now, clock):
    for name in "abc":
        start(connection, clock.advance(1), run_id=name)
    connection.execute(sa.update(runs_table).where(runs_table.c.run_id == "c").values(state="finished"))
    assert [run.run_id for run in store.list_all(connection)] == ["b", "a", "c"]

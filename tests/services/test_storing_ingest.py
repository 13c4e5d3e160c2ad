"""A batch is taken in order, once, whole or not at all."""

import math
from dataclasses import replace

import pytest
from judging_kit import use_default_rules

from server.domain import points as domain
from server.domain.events import EventType
from server.services import ingest, runs
from server.services.errors import Invalid, OutOfOrder
from server.store import events as event_store
from server.store import points, segments, summaries
from server.store import runs as run_store
from trainer_agent.wire.codec import check_batch, decode, encode
from trainer_agent.wire.messages import (
    Batch,
    CheckpointSaved,
    Column,
    Dropped,
    EndReason,
    Numbered,
    RunEnded,
    RunStart,
    SegmentStarted,
)
from trainer_agent.wire.vocabulary import CheckpointState, RunState, SegmentCause

LOSS = "train/loss"


@pytest.fixture
def begun(connection, now):
    use_default_rules(connection)
    for incarnation, rank in (("i", 0), ("j", 1)):
        runs.start_run(connection, RunStart("r", incarnation, "p", "n", rank=rank, world_size=2), "t", now)
    return connection


def losses(first, values, segment=1, first_step=None):
    steps = tuple(range(first_step or first, (first_step or first) + len(values)))
    return Column(LOSS, segment, tuple(range(first, first + len(values))), steps, (0.0,) * len(values), tuple(values))


def batch(first, last, *columns, records=(), **changes):
    made = replace(Batch("r", "i", 0, first, last, 0.0, tuple(columns), tuple(records)), **changes)
    check_batch(made)
    return made


def segment(number, from_step, cause=SegmentCause.START):
    return SegmentStarted(number, from_step, cause, 0.0)


def stored(connection, **asked):
    traces = points.read_points(connection, "r", LOSS, **asked)
    return [(int(step), value) for trace in traces for step, value in zip(trace.step, trace.value, strict=True)]


def told(connection, kind):
    return [each.event.data for each in event_store.newest(connection, "r", {kind})]


def test_one_nan_among_good_ones_is_stored_bit_exact(begun, now):
    sent = batch(1, 3, losses(1, [1.5, math.nan, 2.5]))
    assert ingest.take_batch(begun, decode(Batch, encode(sent)), "t", now).next_seq == 4
    (trace,) = points.read_points(begun, "r", LOSS)
    assert trace.value.tobytes() == b"\0\0\0\0\0\0\xf8\x3f\0\0\0\0\0\0\xf8\x7f\0\0\0\0\0\0\x04\x40"
    (summary,) = summaries.read_summaries(begun, ["r"])["r"]
    assert (summary.count, summary.nonfinite_count, summary.first_nonfinite_step) == (3, 1, 2)
    assert run_store.get(begun, "r").step == 3


def test_a_batch_past_the_expected_record_is_refused_with_its_number_and_stores_nothing(begun, now):
    ingest.take_batch(begun, batch(1, 2, losses(1, [1.0, 2.0])), "t", now)
    before = run_store.get(begun, "r")
    with pytest.raises(OutOfOrder) as error:
        ingest.take_batch(begun, batch(4, 5, losses(4, [4.0, 5.0])), "t", now)
    assert error.value.next_seq == 3
    assert stored(begun) == [(1, 1.0), (2, 2.0)]
    assert run_store.get(begun, "r") == before


def test_an_old_batch_is_answered_and_changes_nothing(begun, now, clock):
    sent = batch(1, 2, losses(1, [1.0, 2.0]))
    ingest.take_batch(begun, sent, "t", now)
    before = run_store.get(begun, "r")
    assert ingest.take_batch(begun, sent, "t", clock.advance(30)).next_seq == 3
    assert run_store.get(begun, "r") == before


def test_of_an_overlap_only_the_new_part_is_taken(begun, now):
    ingest.take_batch(begun, batch(1, 3, losses(1, [1.0, 2.0, 3.0])), "t", now)
    ingest.take_batch(begun, batch(2, 5, losses(2, [-2.0, -3.0, 4.0, 5.0])), "t", now)
    assert stored(begun) == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, 5.0)]


def test_a_span_of_dropped_records_is_cut_where_it_was_counted_before(begun, now):
    def lost(first, count):
        return Numbered(first, Dropped(count, 0.0, "the spool was full"))

    ingest.take_batch(begun, batch(1, 4, records=[lost(1, 4)]), "t", now)
    reply = ingest.take_batch(begun, batch(2, 11, losses(11, [1.0]), records=[lost(2, 9)]), "t", now)
    assert reply.next_seq == 12
    assert run_store.get(begun, "r").dropped_records == 10
    texts = [data["text"] for data in told(begun, EventType.RUN_RECORDS_DROPPED)]
    assert texts == [
        "6 records of rank 0 were lost before they were sent: the spool was full",
        "4 records of rank 0 were lost before they were sent: the spool was full",
    ]


def test_a_rollback_opens_a_segment_and_supersedes_what_it_went_back_over(begun, now):
    ingest.take_batch(
        begun,
        batch(
            1,
            9,
            losses(2, [1.0, 2.0, 3.0, 4.0], first_step=1),
            losses(7, [30.0, 40.0, 50.0], segment=2, first_step=3),
            records=[Numbered(1, segment(1, 0)), Numbered(6, segment(2, 2, SegmentCause.ROLLBACK))],
        ),
        "t",
        now,
    )
    run = run_store.get(begun, "r")
    assert (run.segment, run.step) == (2, 5)
    shape = [(trace.segment, trace.superseded, trace.step.tolist()) for trace in points.read_points(begun, "r", LOSS)]
    assert shape == [(1, True, [3, 4]), (1, False, [1, 2]), (2, False, [3, 4, 5])]
    opened = [(each.segment, each.from_step, each.last_step) for each in segments.read_segments(begun, "r")]
    assert opened == [(1, 0, 4), (2, 2, 5)]
    assert told(begun, EventType.RUN_SEGMENT_STARTED)[0]["text"] == "Segment 2 goes on from step 2 (rollback)"


def test_a_segment_of_another_incarnation_is_refused_and_nothing_of_the_batch_stays(database, now):
    take = database.writer.submit
    for incarnation in ("i", "i2"):
        take(lambda c, name=incarnation: runs.start_run(c, RunStart("r", name, "p", "n"), "t", now))
    take(lambda c: ingest.take_batch(c, batch(1, 1, records=[Numbered(1, segment(1, 0))]), "t", now))
    second = batch(1, 2, losses(1, [1.0]), records=[Numbered(2, segment(1, 0))], incarnation="i2")
    with pytest.raises(Invalid, match="segment 1 was announced by another incarnation"):
        take(lambda c: ingest.take_batch(c, second, "t", now))
    with database.reading() as connection:
        assert stored(connection) == []
        assert run_store.get_incarnation(connection, "r", "i2", 0).next_seq == 1


def test_a_late_segment_of_an_older_incarnation_is_written_down_and_changes_nothing_else(begun, now):
    ingest.take_batch(begun, batch(1, 3, losses(2, [1.0, 2.0], first_step=1), records=[Numbered(1, segment(1, 0))]), "t", now)
    runs.start_run(begun, RunStart("r", "i2", "p", "n"), "t", now)
    newest = batch(1, 2, losses(2, [9.0], segment=3, first_step=2), records=[Numbered(1, segment(3, 1))], incarnation="i2")
    ingest.take_batch(begun, newest, "t", now)
    late = batch(4, 5, losses(5, [7.0], segment=2, first_step=1), records=[Numbered(4, segment(2, 0))])
    ingest.take_batch(begun, late, "t", now)
    run = run_store.get(begun, "r")
    assert (run.segment, run.step) == (3, 2)
    assert [each.segment for each in segments.read_segments(begun, "r")] == [1, 2, 3]
    assert next(each for each in summaries.read_summaries(begun, ["r"])["r"] if each.series == LOSS).last_value == 9.0


def test_only_rank_0_speaks_for_segments_and_ends(begun, now):
    records = [Numbered(1, segment(1, 0)), Numbered(3, RunEnded(EndReason.FINISHED, 0.0))]
    reply = ingest.take_batch(begun, batch(1, 3, losses(2, [1.0]), records=records, rank=1, incarnation="j"), "t", now)
    run = run_store.get(begun, "r")
    assert (reply.next_seq, run.state, run.step) == (4, RunState.RUNNING, None)
    assert segments.read_segments(begun, "r") == []
    assert stored(begun, rank=1) == [(2, 1.0)]


def test_late_points_after_the_end_are_stored_and_change_nothing_else(begun, now):
    ended = [Numbered(2, RunEnded(EndReason.STOPPED_BY_COMMAND, 0.0, 1))]
    ingest.take_batch(begun, batch(1, 2, losses(1, [1.0]), records=ended), "t", now)
    ingest.take_batch(begun, batch(3, 3, losses(3, [math.nan])), "t", now)
    run = run_store.get(begun, "r")
    assert (run.state, run.state_reason, run.ended_at) == (RunState.STOPPED, "stopped by command", now)
    assert len(stored(begun)) == 2
    assert told(begun, EventType.ALERT_FIRING) == []


@pytest.mark.parametrize(
    "record",
    [
        segment(2**31, 0),
        replace(segment(2, 0), parent=2**40),
        replace(segment(2, 0), command_id="c" * 65),
        replace(segment(2, 0), checkpoint_id="c" * 257),
        CheckpointSaved("c" * 257, 1, 1, 0.0, CheckpointState.COMPLETE),
        CheckpointSaved("c", 2**31, 1, 0.0, CheckpointState.COMPLETE),
    ],
)
def test_what_is_too_large_to_store_is_refused(begun, now, record):
    with pytest.raises(Invalid):
        ingest.take_batch(begun, batch(1, 2, losses(1, [1.0]), records=[Numbered(2, record)]), "t", now)
    assert stored(begun) == []


def test_the_largest_numbers_the_wire_allows_are_stored(begun, now):
    largest = 2**53 - 1
    column = Column(LOSS, 2**31 - 1, (1,), (largest,), (math.inf,), (-0.0,))
    ingest.take_batch(begun, batch(1, 1, column), "t", now)
    (trace,) = points.read_points(begun, "r", LOSS)
    assert (trace.step[0], trace.segment, math.copysign(1, trace.value[0])) == (largest, 2**31 - 1, -1.0)


def test_a_batch_is_read_in_the_order_in_which_it_happened():
    other = Column("a/b", 1, (2, 5), (2, 5), (0.0, 0.0), (0.0, 0.0))
    records = [Numbered(3, segment(2, 0)), Numbered(4, segment(3, 0)), Numbered(6, segment(4, 0))]
    sent = batch(1, 6, losses(1, [1.0, 2.0]), other, records=records)
    seen = []
    for entry in domain.in_order(sent):
        points_of = domain.points_of(entry, 0) if isinstance(entry, tuple) else ()
        seen.append([(point.seq, point.series) for point in points_of] or entry.seq)
    assert seen == [[(1, LOSS), (2, "a/b"), (2, LOSS)], 3, 4, [(5, "a/b")], 6]

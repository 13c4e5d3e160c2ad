"""Points go in by batches and come out as curves, every bit of them, whatever was sealed in between."""

import math
import struct

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from server.domain.reduction import Sparkline
from server.store import packing, points, segments, summaries
from server.store import runs as run_store
from server.store.kept_points import kept_points
from server.store.runs import Incarnation
from server.store.tables import point_batches, point_chunks
from trainer_agent.wire.messages import Column, SegmentStarted
from trainer_agent.wire.vocabulary import SegmentCause

LOSS = "train/loss"


def column(steps, values, first_seq=None, series=LOSS, segment=1):
    seq = tuple(range(first_seq or steps[0], (first_seq or steps[0]) + len(steps)))
    return Column(series, segment, seq, tuple(steps), tuple(float(step) for step in steps), tuple(values))


def store(connection, *columns, rank=0, incarnation="i"):
    points.store_points(connection, "r", rank, incarnation, columns)


def open_segment(connection, segment, from_step, now):
    started = SegmentStarted(segment, from_step, SegmentCause.ROLLBACK, 0.0)
    segments.insert(connection, "r", "i", started, now)


def curve(traces):
    return [
        (trace.segment, trace.rank, trace.superseded, step, value)
        for trace in traces
        for step, value in zip(trace.step.tolist(), trace.value.tolist(), strict=True)
    ]


def test_every_bit_of_a_value_is_kept_a_nans_payload_too(connection):
    bits = [0x7FF8000000000001, 0xFFF8DEADBEEF0001, 0x7FF0000000000000, 0xFFF0000000000000, 0x8000000000000000, 1]
    values = [struct.unpack("<d", struct.pack("<Q", each))[0] for each in bits]
    store(connection, column([1, 2, 3, 4, 5, 6], values))
    points.seal(connection, "r", 0)
    (trace,) = points.read_points(connection, "r", LOSS)
    assert np.ascontiguousarray(trace.value).view(np.uint64).tolist() == bits


def test_what_is_read_is_the_same_before_and_after_sealing(connection):
    store(connection, column([1, 2, 3], [1.0, math.nan, 3.0]), column([2], [7.0], series="eval/loss"))
    before = [points.read_points(connection, "r", name) for name in (LOSS, "eval/loss")]
    points.seal(connection, "r", 0)
    points.seal(connection, "r", 0)
    after = [points.read_points(connection, "r", name) for name in (LOSS, "eval/loss")]
    assert str(curve(before[0]) + curve(before[1])) == str(curve(after[0]) + curve(after[1]))
    assert connection.execute(sa.select(sa.func.count()).select_from(point_batches)).scalar() == 0


def test_the_tail_is_sealed_by_steps_and_by_rows_and_small_chunks_grow(connection):
    count = sa.select(sa.func.count()).select_from
    sizes = sa.select(point_chunks.c.count).where(point_chunks.c.series == LOSS).order_by(point_chunks.c.first_seq)
    store(connection, column(range(1, 1024), [1.0] * 1023))
    assert connection.execute(count(point_chunks)).scalar() == 0
    store(connection, column([1024], [1.0]))
    assert (connection.execute(count(point_batches)).scalar(), connection.execute(sizes).scalars().all()) == (0, [1024])
    for step in range(1025, 1025 + 300):
        store(connection, column([step], [1.0]))
    assert (connection.execute(count(point_batches)).scalar(), connection.execute(sizes).scalars().all()) == (44, [1024, 256])
    store(connection, column(range(2000, 7000), [1.0] * 5000))
    assert connection.execute(sizes).scalars().all() == [1024, 2650, 2650]
    (trace,) = points.read_points(connection, "r", LOSS)
    assert trace.step.tolist() == [*range(1, 1325), *range(2000, 7000)]


def test_chunks_know_their_finite_extremes(connection):
    store(connection, column([3, 1, 2], [math.inf, 5.0, math.nan], first_seq=1), column([1], [math.nan], series="a/b"))
    points.seal(connection, "r", 0)
    c = point_chunks.c
    rows = connection.execute(sa.select(c.first_step, c.last_step, c.count, c.nonfinite_count, c.min, c.max).order_by(c.series))
    assert [tuple(row) for row in rows] == [(1, 1, 1, 1, None, None), (1, 3, 3, 2, 5.0, 5.0)]


def test_the_higher_seq_wins_a_step(connection):
    store(connection, column([5, 6, 5], [1.0, 2.0, 9.0], first_seq=1))
    store(connection, column([6], [8.0], first_seq=4))
    assert curve(points.read_points(connection, "r", LOSS)) == [(1, 0, False, 5, 9.0), (1, 0, False, 6, 8.0)]


def test_the_incarnation_that_started_later_wins_a_step_of_one_segment(connection, now):
    for name in ("z-first", "a-second"):
        run_store.add_incarnation(connection, Incarnation("r", name, 1, 1, "", 0, now, now))
    store(connection, column([5], [1.0], first_seq=70), rank=1, incarnation="z-first")
    store(connection, column([5], [2.0], first_seq=3), rank=1, incarnation="a-second")
    assert curve(points.read_points(connection, "r", LOSS)) == [(1, 1, False, 5, 2.0)]


def test_what_a_later_segment_went_back_over_is_superseded(connection, now):
    open_segment(connection, 1, 0, now)
    open_segment(connection, 2, 4, now)
    open_segment(connection, 3, 2, now)
    store(connection, column(range(1, 7), [1.0] * 6))
    store(connection, column([5, 6, 7], [2.0] * 3, first_seq=7, segment=2))
    store(connection, column([3, 4], [3.0] * 2, first_seq=10, segment=3))
    traces = points.read_points(connection, "r", LOSS)
    shape = [(trace.segment, trace.superseded, trace.step.tolist()) for trace in traces]
    assert shape == [(1, True, [3, 4, 5, 6]), (2, True, [5, 6, 7]), (1, False, [1, 2]), (3, False, [3, 4])]


def test_a_range_is_cut_at_both_ends_and_a_rank_chosen(connection):
    store(connection, column(range(1, 101), [float(step) for step in range(1, 101)]))
    store(connection, column([50], [0.5]), rank=3, incarnation="j")
    points.seal(connection, "r", 0)
    assert [p[1:] for p in curve(points.read_points(connection, "r", LOSS, rank=0, from_step=50, to_step=51))] == [
        (0, False, 50, 50.0),
        (0, False, 51, 51.0),
    ]
    assert [p[3:] for p in curve(points.read_points(connection, "r", LOSS, rank=3))] == [(50, 0.5)]
    assert points.read_points(connection, "r", LOSS, from_step=200) == ()
    assert points.read_points(connection, "r", "no/series") == ()


def test_a_segment_leaves_standing_what_it_and_those_before_it_went_on_from(connection, now):
    open_segment(connection, 1, 0, now)
    open_segment(connection, 2, 40, now)
    open_segment(connection, 3, 60, now)
    store(connection, column(range(1, 101), [1.0] * 100))
    store(connection, column(range(41, 91), [2.0] * 50, first_seq=101, segment=2))
    store(connection, column(range(61, 71), [3.0] * 10, first_seq=151, segment=3))

    def kept(**asked):
        found = kept_points(connection, "r", [LOSS], rank=0, **asked)
        return [(point.step, point.value) for point in found]

    assert kept(before_segment=3, up_to_step=60, limit=25) == [
        *((step, 1.0) for step in range(36, 41)),
        *((step, 2.0) for step in range(41, 61)),
    ]
    assert kept(before_segment=2, up_to_step=40, limit=3) == [(38, 1.0), (39, 1.0), (40, 1.0)]
    assert len(kept(before_segment=3, up_to_step=60, limit=10_000)) == 60
    assert kept(before_segment=1, up_to_step=60, limit=5) == []


def test_a_sparse_series_is_looked_for_further_back(connection):
    store(connection, column(range(500, 10_001, 500), [1.0] * 20))
    found = kept_points(connection, "r", [LOSS], rank=0, before_segment=2, up_to_step=10_000, limit=15)
    assert [point.step for point in found] == list(range(3000, 10_001, 500))


def test_summaries_count_everything_and_keep_only_finite_extremes(connection):
    store(connection, column([1, 2, 3], [5.0, math.nan, 2.0]))
    store(connection, column([4, 5], [math.inf, -1.0]), column([4], [math.nan], series="a/b"))
    store(connection, column([9], [100.0]), rank=1, incarnation="j")
    store(connection, column([30], [100.0], series="b/c"), rank=2)
    store(connection, column([20], [100.0], series="b/c"), rank=1)
    store(connection, column([40], [100.0], series="b/c"), rank=2)
    bad, other, loss = summaries.read_summaries(connection, ["r"])["r"]
    assert (loss.count, loss.nonfinite_count, loss.first_nonfinite_step) == (6, 2, 2)
    assert (loss.minimum, loss.maximum, loss.last_step, loss.last_value) == (-1.0, 100.0, 5, -1.0)
    assert (bad.minimum, bad.maximum, bad.nonfinite_count, bad.first_nonfinite_step) == (None, None, 1, 4)
    assert math.isnan(bad.last_value)
    assert other.last_step == 20, "the lowest rank that has the series"


def test_the_sparkline_of_a_long_run_is_short_and_ends_at_the_newest_value(connection):
    for first in range(1, 1001, 7):
        steps = range(first, min(first + 7, 1001))
        store(connection, column(steps, [float(step) for step in steps]))
    line = summaries.read_sparklines(connection, ["r", "other"])["r"]
    assert 30 <= len(line) <= 60
    assert (line[0], line[-1]) == (1.0, 1000.0)
    assert list(line) == sorted(line)
    store(connection, column([501, 502], [0.25, 0.5], first_seq=1001, segment=2))
    line = summaries.read_sparklines(connection, ["r"])["r"]
    assert line[-1] == 0.5
    assert max(line) <= 500


@given(st.lists(st.lists(st.floats(width=64), min_size=1, max_size=5), min_size=1, max_size=4))
def test_packing_keeps_every_series(parts):
    blocks = [(f"g/s{i}", packing.block_of(column(range(1, len(p) + 1), p))) for i, p in enumerate(parts)]
    unpacked = packing.unpack_batch(packing.pack_batch(blocks))
    assert [(name, block.tobytes()) for name, block in unpacked] == [(name, block.tobytes()) for name, block in blocks]


@pytest.mark.parametrize("line", [Sparkline(), Sparkline(4, 9, (1.0, 5.0), (math.inf, -0.0))])
def test_packing_keeps_a_sparkline(line):
    assert packing.unpack_sparkline(packing.pack_sparkline(line)) == line

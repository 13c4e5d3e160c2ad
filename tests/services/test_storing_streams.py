"""However a stream is cut, doubled, held back or sent again, the same is stored, judged and told."""

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from judging_kit import use_default_rules

from server.services import ingest, runs
from server.services.errors import OutOfOrder
from server.store import points, summaries
from server.store.tables import metadata
from trainer_agent.wire.codec import check_batch, decode, encode
from trainer_agent.wire.messages import (
    Batch,
    CheckpointSaved,
    Column,
    Dropped,
    Numbered,
    RunEnded,
    RunStart,
    SegmentStarted,
)
from trainer_agent.wire.vocabulary import CheckpointState, EndReason, SegmentCause

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NAMES = ("train/loss", "train/grad_norm", "amp/loss_scale", "amp/overflow", "eval/loss")
HEALTHY = {"train/loss": 2.0, "train/grad_norm": 1.0, "amp/loss_scale": 65536.0, "amp/overflow": 0.0, "eval/loss": 2.5}
ODD = (float("nan"), float("inf"), float("-inf"), 0.0, 1.0, 50.0, 1e30)


@dataclass
class Life:
    """One incarnation and its entries: what was logged in one call, or a record, each with its first number."""

    incarnation: str
    rank: int
    entries: list = field(default_factory=list)
    next_seq: int = 1

    def add(self, entry, span=1):
        self.entries.append((self.next_seq, self.next_seq + span - 1, entry))
        self.next_seq += span


@dataclass(frozen=True)
class Logged:
    segment: int
    step: int
    values: dict


def life_of(random, incarnation, rank, segment, step, cause):
    """A stretch of training with odd values in it, rollbacks, checkpoints, losses of records and perhaps an end."""
    life = Life(incarnation, rank)
    life.add(SegmentStarted(segment, step, cause, 0.0))
    trouble = random.random() * 0.4
    for _ in range(random.randint(1, 30)):
        event = random.random()
        if event < 0.06 and step > 1:
            step = random.randrange(step)
            segment += 1
            life.add(SegmentStarted(segment, step, SegmentCause.ROLLBACK, 0.0, parent=segment - 1))
        elif event < 0.1:
            lost = random.randint(1, 5)
            life.add(Dropped(lost, 0.0, "the spool was full"), span=lost)
            step += lost
        elif event < 0.16:
            life.add(CheckpointSaved(f"c-{segment}-{step}", segment, step, 0.0, CheckpointState.COMPLETE))
        else:
            step += random.random() < 0.9
            names = random.sample(NAMES, random.randint(1, len(NAMES)))
            values = {name: random.choice(ODD) if random.random() < trouble else HEALTHY[name] for name in names}
            life.add(Logged(segment, step, values))
    if random.random() < 0.3:
        life.add(RunEnded(random.choice(list(EndReason)), 0.0, step))
    return life, segment, step


def lives_of(random):
    segment, step, lives = 1, 0, []
    for number in range(random.randint(1, 2)):
        cause = SegmentCause.RESTART if number else SegmentCause.START
        other, _, _ = life_of(random, f"j{number}", 1, segment, step, cause)
        life, reached, step = life_of(random, f"i{number}", 0, segment, step, cause)
        lives += [life, other]
        segment = reached + 1
    return lives


def batch_of(random, life, entries):
    """One batch of consecutive entries, its columns in any order."""
    columns, records = {}, []
    for first, _, entry in entries:
        if isinstance(entry, Logged):
            for name, value in entry.values.items():
                columns.setdefault((name, entry.segment), []).append((first, entry.step, float(first), value))
        else:
            records.append(Numbered(first, entry))
    made = [Column(*key, *(tuple(each) for each in zip(*rows, strict=True))) for key, rows in columns.items()]
    random.shuffle(made)
    batch = Batch("r", life.incarnation, life.rank, entries[0][0], entries[-1][1], 0.0, tuple(made), tuple(records))
    batch = decode(Batch, encode(batch))
    check_batch(batch)
    return batch


def deliver_cleanly(connection, random, lives):
    for life in lives:
        begin(connection, life)
        ingest.take_batch(connection, batch_of(random, life, life.entries), "t", NOW)


def deliver_badly(connection, random, lives):
    """Any stretch of the life at any time: too early, again, cut anew. Every second one begins where it must."""
    for life in lives:
        begin(connection, life)
        begin(connection, life)
        expected, sent = 0, 0
        while expected < len(life.entries):
            first = expected if sent % 2 else random.randrange(len(life.entries))
            last = min(len(life.entries), first + random.randint(1, 12))
            batch = batch_of(random, life, life.entries[first:last])
            if first > expected:
                with pytest.raises(OutOfOrder) as error:
                    ingest.take_batch(connection, batch, "t", NOW)
                assert error.value.next_seq == life.entries[expected][0]
            else:
                expected = max(expected, last)
                reply = ingest.take_batch(connection, batch, "t", NOW)
                assert reply.next_seq == life.entries[expected - 1][1] + 1
            sent += 1


def begin(connection, life):
    runs.start_run(connection, RunStart("r", life.incarnation, "p", "n", rank=life.rank, world_size=2), "t", NOW)


LAYOUT = {"point_batches", "point_chunks", "rule_snapshots"}
"""How points lie in rows and where snapshots are taken depend on the cuts; what is read back and where a rewind ends do not."""
BY_CUTS = {("runs", "revision"), ("runs", "pace"), ("incidents", "version")}
"""A revision counts changes, and there is one for each batch; a version counts writes, and an incident is looked at at the end of
each batch; the pace is of when steps came here."""


def end_state(connection):
    """Everything stored, as text, since NaN equals nothing."""
    state = {}
    for table in metadata.sorted_tables:
        if table.name not in LAYOUT:
            columns = [column for column in table.columns if (table.name, column.name) not in BY_CUTS]
            state[table.name] = sorted(str(tuple(row)) for row in connection.execute(sa.select(*columns)))
    in_order = connection.execute(sa.text("SELECT type, step, segment, data FROM events ORDER BY event_id"))
    state["events"] = [str(tuple(each)) for each in in_order]
    for name in NAMES:
        state[name] = [
            (trace.segment, trace.rank, trace.superseded, trace.seq.tobytes(), trace.step.tobytes(), trace.value.tobytes())
            for trace in points.read_points(connection, "r", name)
        ]
    state["sparkline"] = str(summaries.read_sparklines(connection, ["r"]))
    return state


def result_of(database, deliver, seed, lives):
    with database.write_engine.connect() as connection, connection.begin() as transaction:
        use_default_rules(connection)
        deliver(connection, Random(seed), lives)
        state = end_state(connection)
        transaction.rollback()
    return state


def check(database, seed, cuts):
    lives = lives_of(Random(seed))
    clean = result_of(database, deliver_cleanly, 0, lives)
    bad = result_of(database, deliver_badly, cuts, lives)
    for name, part in clean.items():
        assert bad[name] == part, name


LONG = bool(os.environ.get("LOSSGUARD_SOAK"))
# No shrinking: an example is a seed, and a smaller seed is not a smaller stream.
MANY = {
    "deadline": None,
    "phases": [Phase.generate],
    "suppress_health_check": [HealthCheck.function_scoped_fixture],
    "derandomize": True,
}


@pytest.mark.parametrize("backend", ["sqlite"])
@settings(max_examples=25 if LONG else 12, **MANY)
@given(seed=st.integers(0, 2**32), cuts=st.integers(0, 2**32))
def test_a_mangled_stream_ends_in_the_same_state_on_sqlite(database, seed, cuts):
    check(database, seed, cuts)


@pytest.mark.parametrize("backend", ["postgresql"])
@settings(max_examples=5 if LONG else 3, **MANY)
@given(seed=st.integers(0, 2**32), cuts=st.integers(0, 2**32))
def test_a_mangled_stream_ends_in_the_same_state_on_postgresql(database, seed, cuts):
    check(database, seed, cuts)


def test_a_long_stream_that_is_sealed_on_the_way_reads_the_same(database):
    """Long enough to be sealed several times, in the one case by steps and in the other by rows."""
    values = [float("nan") if step % 97 == 0 else 1.0 + step % 7 for step in range(1, 3001)]
    life = Life("i0", 0)
    life.add(SegmentStarted(1, 0, SegmentCause.START, 0.0))
    for step, value in enumerate(values, 1):
        life.add(Logged(1, step, {"eval/loss": value}))

    def in_large_batches(connection, random, lives):
        begin(connection, lives[0])
        for first in range(0, len(life.entries), 2000):
            ingest.take_batch(connection, batch_of(random, life, life.entries[first : first + 2000]), "t", NOW)

    def in_small_batches(connection, random, lives):
        begin(connection, lives[0])
        for first in range(0, len(life.entries), 20):
            ingest.take_batch(connection, batch_of(random, life, life.entries[first : first + 20]), "t", NOW)

    large = result_of(database, in_large_batches, 0, [life])
    assert large == result_of(database, in_small_batches, 0, [life])
    ((_, _, _, seq, _, _),) = large["eval/loss"]
    assert len(seq) == 3000 * 8

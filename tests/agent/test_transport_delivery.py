"""Delivery and Writer, one request at a time against a scripted transport: no thread, no sleep."""

import errno
import math
from pathlib import Path

import numpy as np
import pytest

from trainer_agent.guest.voice import Voice
from trainer_agent.recording.entries import Points, dropped
from trainer_agent.recording.ring import Ring
from trainer_agent.recording.spool import HOT_ENTRIES, Spool
from trainer_agent.recording.writer import Writer
from trainer_agent.sending import backoff
from trainer_agent.sending.delivery import AT_ONCE, NOTHING, Delivery, Stage
from trainer_agent.sending.transport import Answer, Meaning
from trainer_agent.wire import codec
from trainer_agent.wire.messages import Dropped, Numbered, Reply, Report, RunStart, SegmentStarted
from trainer_agent.wire.vocabulary import CommandState, SegmentCause

START = RunStart("run", "inc", "p", "n")


class Scripted:
    """Answers from a list while it lasts, then behaves; keeps what it was sent."""

    def __init__(self, *answers) -> None:
        self.answers = list(answers)
        self.next_seq = 1
        self.sent: list = []
        self.taken: list = []

    def announce(self, start):
        self.sent.append(start)
        return self.answers.pop(0) if self.answers else Answer(Meaning.TAKEN, Reply(self.next_seq))

    def send(self, batch):
        codec.check_batch(batch)
        self.sent.append(batch)
        answer = self.answers.pop(0) if self.answers else None
        if callable(answer):
            answer = answer(batch)
        if answer is None:
            self.taken.append(batch)
            self.next_seq = max(self.next_seq, batch.last_seq + 1)
            answer = Answer(Meaning.TAKEN, Reply(self.next_seq))
        return answer


@pytest.fixture
def said():
    return []


@pytest.fixture
def make(tmp_path, said):
    def make(transport, entries: int = 10):
        spool = Spool.create(tmp_path / "spool" / "inc", START)
        spool.write([Points(seq, 1.0, 1, seq, ("train/loss",), (float(seq),)) for seq in range(1, entries + 1)])
        return Delivery(spool, transport, Voice(said.append), jitter=lambda: 0.5)

    return make


def run(delivery: Delivery, most: int = 200) -> int:
    for count in range(most):
        if delivery.is_done:
            return count
        delivery.attempt()
    raise AssertionError("never done")


def test_the_start_goes_first_and_then_all_that_waits(make):
    transport = Scripted()
    delivery = make(transport)
    assert delivery.attempt() == AT_ONCE
    assert delivery.attempt() == AT_ONCE
    assert delivery.attempt() == NOTHING
    assert [type(message).__name__ for message in transport.sent] == ["RunStart", "Batch"]
    assert delivery.spool.waiting == 0


def test_out_of_order_is_sent_again_from_where_the_server_is(make):
    transport = Scripted(Answer(Meaning.TAKEN, Reply(5)), Answer(Meaning.OUT_OF_ORDER, next_seq=3))
    delivery = make(transport)
    run(delivery)
    assert [batch.first_seq for batch in transport.sent[1:]] == [5, 3]
    (column,) = transport.taken[-1].columns
    assert column.seq == tuple(range(3, 11)), "what was acknowledged and is still on disk goes again"


def test_a_server_that_never_comes_forward_is_backed_off_from(make):
    transport = Scripted(*[Answer(Meaning.TAKEN, Reply(1))] * 9)
    delivery = make(transport)
    pauses = [delivery.attempt() for _ in range(9)]
    assert pauses == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 52.5, 52.5]


def test_a_server_that_claims_more_than_there_is_gets_no_further_than_the_end(make):
    delivery = make(Scripted(Answer(Meaning.TAKEN, Reply(2**53 - 1))))
    delivery.attempt()
    assert delivery.spool.next_seq == 11
    assert delivery.is_done


@pytest.mark.parametrize("bad", [1, 2, 77, 999, 1000])
def test_one_bad_record_is_found_set_aside_and_counted_and_the_rest_is_stored(make, bad, said):
    transport = Scripted()

    def judge(batch):
        transport.answers.append(judge)
        seqs = {seq for column in batch.columns for seq in column.seq}
        return Answer(Meaning.REFUSED_CONTENT, detail="422 no") if bad in seqs else None

    delivery = make(transport, entries=1000)
    transport.answers = [Answer(Meaning.TAKEN, Reply(1)), judge]
    requests = run(delivery)
    stored = {seq for batch in transport.taken for column in batch.columns for seq in column.seq}
    assert stored == set(range(1, 1001)) - {bad}
    assert [record.seq for batch in transport.taken for record in batch.records] == [bad]
    assert requests <= 2 + 2 * (math.ceil(math.log2(1000)) + 2)
    assert delivery.spool.dropped == 1
    assert f'"seq": {bad}' in (delivery.spool.directory / "quarantine.jsonl").read_text()
    assert len(said) == 1


def test_too_large_is_halved_and_a_single_one_set_aside(make):
    transport = Scripted()

    def judge(batch):
        transport.answers.append(judge)
        seqs = {seq for column in batch.columns for seq in column.seq}
        return Answer(Meaning.TOO_LARGE, detail="413") if len(seqs) > 3 or 7 in seqs else None

    delivery = make(transport, entries=20)
    transport.answers = [Answer(Meaning.TAKEN, Reply(1)), judge]
    run(delivery)
    assert {seq for batch in transport.taken for column in batch.columns for seq in column.seq} == set(range(1, 21)) - {7}


def test_a_server_that_refuses_even_the_drop_is_backed_off_from(make):
    delivery = make(Scripted(Answer(Meaning.TAKEN, Reply(1)), *[Answer(Meaning.REFUSED_CONTENT)] * 50), entries=2)
    pauses = [delivery.attempt() for _ in range(12)]
    assert delivery.spool.dropped == 1
    assert sum(pauses[-2:]) >= 2.0


def test_an_unknown_incarnation_is_announced_again(make):
    transport = Scripted(Answer(Meaning.TAKEN, Reply(1)), Answer(Meaning.GONE))
    run(make(transport))
    assert [type(message).__name__ for message in transport.sent] == ["RunStart", "Batch", "RunStart", "Batch"]


def test_a_deleted_run_is_left_alone_after_two_requests_and_said_once(make, said):
    transport = Scripted(Answer(Meaning.TAKEN, Reply(1)), *[Answer(Meaning.GONE)] * 50)
    delivery = make(transport)
    assert [delivery.attempt() for _ in range(6)] == [0.0, 0.0, NOTHING, NOTHING, NOTHING, NOTHING]
    assert delivery.stage is Stage.GONE
    assert len(transport.sent) == 3
    assert len(said) == 1


def test_a_refused_token_is_tried_seldom_and_said_once(make, said):
    delivery = make(Scripted(*[Answer(Meaning.NOT_ALLOWED, detail="401")] * 20))
    pauses = [delivery.attempt() for _ in range(20)]
    assert all(backoff.CRAWL_SECONDS <= pause <= 1.1 * backoff.CRAWL_SECONDS for pause in pauses)
    assert len(said) == 1


def test_what_cannot_be_read_for_want_of_file_handles_waits_and_is_not_counted_as_lost(make, said, monkeypatch):
    transport, points = Scripted(), 3 * HOT_ENTRIES
    delivery = make(transport, points)
    delivery.attempt()
    with monkeypatch.context() as without_handles:
        without_handles.setattr(Path, "read_bytes", too_many_open_files)
        assert 0 < delivery.attempt() < NOTHING
        assert len(transport.sent) == 1  # the start
    run(delivery)
    stored = [seq for batch in transport.taken for column in batch.columns for seq in column.seq]
    assert stored == list(range(1, points + 1))
    assert sum("Too many open files" in line for line in said) == 1


def too_many_open_files(path):
    raise OSError(errno.EMFILE, "Too many open files", str(path))


def test_a_start_that_is_refused_is_said_once_and_tried_seldom(make, said):
    delivery = make(Scripted(*[Answer(Meaning.REFUSED_CONTENT, detail="422 name is empty")] * 5))
    assert all(delivery.attempt() >= backoff.CRAWL_SECONDS for _ in range(5))
    assert [("name is empty" in line) for line in said] == [True]


def test_retry_after_is_obeyed(make):
    delivery = make(Scripted(Answer(Meaning.BUSY, retry_after=20.0)))
    assert delivery.attempt() == 20.5


def test_a_long_outage_is_said_once_and_its_end_once(make, said):
    delivery = make(Scripted(*[Answer(Meaning.UNREACHABLE, detail="refused")] * 50))
    run(delivery)
    assert ["away" in said[0], "back" in said[1], len(said)] == [True, True, 2]


def test_a_batch_never_exceeds_the_contract(make):
    transport = Scripted()
    delivery = make(transport, entries=12_000)
    run(delivery)
    assert sum(len(column.seq) for batch in transport.taken for column in batch.columns) == 12_000


class Numpyish(float):
    pass


def entries_of(tmp_path, said, *raw):
    ring, spool = Ring(), Spool(tmp_path / "spool" / "inc", START)
    writer = Writer(ring, spool, Voice(said.append), lambda: None)
    for item in raw:
        if isinstance(item, tuple):
            ring.append_points((ring.next_ticket(), 1.0, 1, *item))
        else:
            ring.add(item)
    writer._round()
    writer._round()
    return writer, list(spool.entries(1))


def test_values_that_are_no_numbers_are_dropped_counted_and_said_once(tmp_path, said):
    class Tensor:
        def __float__(self):
            raise AssertionError("asked, which could wait for a GPU")

    values = {"train/a": "1.0", "train/b": None, "train/c": Tensor(), "train/d": 10**400, "train/e": [1.0], "train/f": 10**5000}
    good = {"train/g": True, "train/h": np.float16(2.5), "train/i": np.int64(3), "train/j": Numpyish("nan"), "train/k": 7}
    writer, (entry,) = entries_of(tmp_path, said, (5, {**values, **good}))
    assert dict(zip(entry.names, entry.values, strict=True)) == pytest.approx(
        {"train/g": 1.0, "train/h": 2.5, "train/i": 3.0, "train/j": math.nan, "train/k": 7.0}, nan_ok=True
    )
    assert writer.unusable == 6
    assert len(said) == 1


@pytest.mark.parametrize(
    "name", ["Loss", "loss", "", "a/" + "x" * 200, "train/loss\n", "train/\ud800", 5, None, "../x y"], ids=repr
)
def test_a_bad_series_name_is_dropped_and_said_once(tmp_path, said, name):
    writer, (entry,) = entries_of(tmp_path, said, (1, {name: 1.0, "train/loss": math.nan}))
    assert entry.names == ("train/loss",)
    assert (writer.unusable, len(said)) == (1, 1)


@pytest.mark.parametrize("step", [-1, 2**53, 10**5000, 1.0, math.nan, "1", None, True], ids=range(8))
def test_a_step_that_is_none_becomes_a_counted_drop(tmp_path, said, step):
    writer, (entry,) = entries_of(tmp_path, said, (step, {"train/loss": 1.0}))
    assert entry.record.count == writer.dropped == 1


def test_numbers_have_no_hole_whatever_is_dropped_between(tmp_path, said):
    record = SegmentStarted(1, 0, SegmentCause.START, 1.0)
    _, found = entries_of(
        tmp_path, said, (1, {"train/loss": 1.0}), (2, {}), (3, None), record, object(), (4, {"train/loss": 2.0})
    )
    assert [entry.seq for entry in found] == [1, 2, 3, 4, 5, 6]
    assert [isinstance(entry, Numbered) and isinstance(entry.record, Dropped) for entry in found] == [
        False,
        True,
        True,
        False,
        True,
        False,
    ]


def test_a_text_that_json_cannot_carry_is_cleaned_not_lost(tmp_path, said):
    _, (entry,) = entries_of(tmp_path, said, Report("c", CommandState.FAILED, math.nan, reason="a\x00b\ud800c" + "x" * 100_000))
    assert entry.record.reason.startswith("a b?c")
    assert len(entry.record.reason) <= 65_536


def test_a_drop_in_the_spool_can_be_cut_by_the_server(make):
    delivery = make(Scripted(Answer(Meaning.TAKEN, Reply(13))))
    delivery.spool.write([dropped(11, 15, 1.0, "full")])
    run(delivery)
    assert delivery.spool.waiting == 0

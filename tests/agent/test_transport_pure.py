"""Ring, entries, batcher, backoff, inbox and the reading of answers: no thread, no file, no network."""

import json
import math
import threading
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_agent.recording import entries
from trainer_agent.recording.entries import Points, last_seq
from trainer_agent.recording.ring import Lost, Ring
from trainer_agent.recording.salvage import scan
from trainer_agent.sending import backoff, batcher, inbox
from trainer_agent.sending.transport import MAX_ANSWER_BYTES, Meaning, judge
from trainer_agent.wire import codec
from trainer_agent.wire.commands import Command, RollbackPayload
from trainer_agent.wire.messages import Batch, Dropped, Numbered, Report, RunEnded, Verdict
from trainer_agent.wire.vocabulary import CheckpointState, CommandKind, CommandState, EndReason

ENVELOPE = Batch("run", "inc", 0, 1, 1, 1.0)


def points(seq: int, *values: float, segment: int = 1) -> Points:
    return Points(seq, 1767225600.0 + seq, segment, seq, tuple(f"train/s{i}" for i in range(len(values))), values)


def report(seq: int, reason: str = "") -> Numbered:
    return Numbered(seq, Report(f"cmd-{seq}", CommandState.RUNNING, 1.0, reason=reason))


class TestRing:
    def put(self, ring: Ring, value: object) -> None:
        ring.append_points((ring.next_ticket(), 0.0, 1, 1, value))

    def drained(self, ring: Ring) -> list:
        out = [*ring.drain(), *ring.drain(is_last=True)]
        return [entry if isinstance(entry, Lost) else entry[-1] for entry in out]

    def test_points_and_records_come_out_in_the_order_they_went_in(self):
        ring = Ring()
        self.put(ring, "a")
        ring.add("record")
        self.put(ring, "b")
        assert self.drained(ring) == ["a", "record", "b"]

    def test_a_full_ring_loses_its_oldest_points_and_counts_them_where_they_were(self):
        ring = Ring(capacity=2)
        for value in "abc":
            self.put(ring, value)
        ring.add("record")
        for value in "de":
            self.put(ring, value)
        assert self.drained(ring) == [Lost(3), "record", "d", "e"]

    def test_an_entry_still_under_way_on_another_thread_is_waited_for(self):
        ring = Ring()
        late = ring.next_ticket()
        self.put(ring, "b")
        assert ring.drain() == []
        ring.append_points((late, 0.0, 1, 1, "a"))
        assert self.drained(ring) == ["a", "b"]

    def test_an_entry_that_never_comes_is_waited_for_a_moment_only(self):
        """As where an interrupt came between the ticket and the append."""
        ring = Ring()
        ring.next_ticket()
        self.put(ring, "b")
        deadline, out = time.monotonic() + 20, []
        while not out and time.monotonic() < deadline:
            out = ring.drain()
        assert out == [Lost(1), (1, 0.0, 1, 1, "b")]

    def test_nothing_is_lost_or_doubled_among_many_threads(self):
        ring = Ring(capacity=100_000)
        out: list = []
        done = threading.Event()

        def drain() -> None:
            while not done.is_set():
                out.extend(ring.drain())
            out.extend(ring.drain(is_last=True))

        drainer = threading.Thread(target=drain)
        drainer.start()
        writers = [threading.Thread(target=lambda: [self.put(ring, i) for i in range(5000)]) for _ in range(4)]
        for thread in writers:
            thread.start()
        for thread in writers:
            thread.join()
        done.set()
        drainer.join()
        assert not any(isinstance(entry, Lost) for entry in out)
        assert sorted(entry[0] for entry in out) == list(range(20_000))


FLOATS = st.floats(allow_nan=True, allow_infinity=True)


class TestEntries:
    @given(st.lists(FLOATS, min_size=1, max_size=9), st.integers(1, 2**53 - 1), st.integers(0, 2**53 - 1))
    def test_points_keep_every_bit_in_their_frame(self, values, seq, step):
        entry = Points(seq, 1.5, 3, step, tuple(f"train/s{i}" for i in range(len(values))), tuple(values))
        data = entries.MAGIC + entries.frame(entry)
        place = entries.frame_at(data, len(entries.MAGIC))
        assert entries.is_sound(data, place)
        assert entries.frame(entries.read(data, place)) == entries.frame(entry)

    def test_records_come_back_out_of_their_frame(self):
        data = entries.MAGIC + entries.frame(report(7, "why\nnot")) + entries.frame(entries.dropped(8, 12, 1.0, "full"))
        found = [entries.read(data, place) for place in scan(data, 7)]
        assert found == [report(7, "why\nnot"), Numbered(8, Dropped(5, 1.0, "full"))]

    def test_a_frame_cut_anywhere_is_not_a_frame(self):
        data = entries.MAGIC + entries.frame(points(1, 1.0))
        assert all(entries.frame_at(data[:length], len(entries.MAGIC)) is None for length in range(len(data)))

    def test_a_changed_bit_is_found_by_the_checksum(self):
        data = entries.MAGIC + entries.frame(points(1, 1.0))
        for position in range(len(entries.MAGIC) + 8, len(data)):
            changed = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
            place = entries.frame_at(changed, len(entries.MAGIC))
            assert not entries.is_sound(changed, place)

    def test_missing_numbers_become_counted_drops(self):
        found = list(entries.without_holes([points(1, 1.0), points(4, 1.0)], 1, 6, 9.0))
        assert [(entry.seq, last_seq(entry)) for entry in found] == [(1, 1), (2, 3), (4, 4), (5, 6)]


class TestBatcher:
    def test_points_travel_in_columns_by_series_and_segment(self):
        batch = batcher.cut(
            ENVELOPE, [points(1, 1.0, math.nan), points(2, 2.0, 3.0), points(3, 4.0, segment=2)], batcher.Limits()
        )
        codec.check_batch(batch)
        assert [(column.series, column.segment, column.seq) for column in batch.columns] == [
            ("train/s0", 1, (1, 2)),
            ("train/s1", 1, (1, 2)),
            ("train/s0", 2, (3,)),
        ]

    def test_an_entry_too_large_for_the_limits_goes_alone(self):
        batch = batcher.cut(ENVELOPE, [points(1, *[1.0] * 50), points(2, 1.0)], batcher.Limits(points=5))
        assert (batch.first_seq, batch.last_seq) == (1, 1)

    def test_a_drop_is_cut_where_the_server_stands(self):
        envelope = replace(ENVELOPE, first_seq=4, last_seq=4)
        batch = batcher.cut(envelope, [entries.dropped(1, 9, 1.0, "full"), points(10, 1.0)], batcher.Limits(last=6))
        assert batch.records == (Numbered(4, Dropped(3, 1.0, "full")),)
        assert batch.last_seq == 6

    @given(
        st.lists(
            st.one_of(st.lists(FLOATS, min_size=1, max_size=40), st.text(max_size=300), st.integers(1, 50)),
            min_size=1,
            max_size=60,
        ),
        st.integers(1, 500),
        st.integers(2_000, 50_000),
    )
    def test_any_cut_keeps_its_limits_and_its_numbers(self, shapes, most_points, most_bytes):
        made, seq = [], 1
        for shape in shapes:
            made.append(
                points(seq, *shape)
                if isinstance(shape, list)
                else report(seq, shape)
                if isinstance(shape, str)
                else entries.dropped(seq, seq + shape - 1, 1.0, "full")
            )
            seq = last_seq(made[-1]) + 1
        batch = batcher.cut(ENVELOPE, made, batcher.Limits(most_points, most_bytes))
        codec.check_batch(batch)
        count = sum(len(column.seq) for column in batch.columns)
        assert batch.last_seq == last_seq(made[0]) or (count <= most_points and len(codec.encode(batch)) <= most_bytes)


class TestBackoff:
    @given(st.integers(1, 1000), st.floats(0, 1, exclude_max=True))
    def test_the_wait_is_bounded_by_a_doubling_ceiling(self, failures, random):
        assert 0 <= backoff.delay(failures, lambda: random) <= min(60.0, 2.0 ** min(failures - 1, 10))

    def test_retry_after_is_a_floor_within_reason(self):
        assert backoff.delay(1, lambda: 0.0, 7.0) == 7.0
        assert backoff.delay(1, lambda: 0.0, 1e12) == backoff.MOST_RETRY_AFTER_SECONDS
        assert backoff.delay(1, lambda: 0.5, math.nan) == 0.5

    @pytest.mark.parametrize(
        "header", [None, "", "soon", "-1", "1.5", "nan", "9" * 40, "\u0663", "Wed, 21 Oct 2026 07:28:00 GMT"]
    )
    def test_a_retry_after_that_is_no_number_of_seconds_is_not_read(self, header):
        assert backoff.read_retry_after(header) is None

    def test_two_hundred_agents_do_not_come_back_together(self):
        random = __import__("random").Random(7)
        seconds = [int(backoff.delay(7, random.random)) for _ in range(200)]
        assert max(seconds.count(second) for second in set(seconds)) < 40


class TestAnswers:
    @pytest.mark.parametrize(
        ("status", "meaning"),
        [
            (201, Meaning.NOT_LOSSGUARD),
            (302, Meaning.NOT_LOSSGUARD),
            (400, Meaning.REFUSED_CONTENT),
            (401, Meaning.NOT_ALLOWED),
            (403, Meaning.NOT_ALLOWED),
            (404, Meaning.NOT_LOSSGUARD),
            (408, Meaning.BUSY),
            (409, Meaning.BUSY),
            (413, Meaning.TOO_LARGE),
            (421, Meaning.NOT_LOSSGUARD),
            (422, Meaning.REFUSED_CONTENT),
            (425, Meaning.BUSY),
            (429, Meaning.BUSY),
            (500, Meaning.BUSY),
            (503, Meaning.BUSY),
            (200, Meaning.BUSY),
        ],
    )
    def test_a_status_without_a_body_has_its_meaning(self, status, meaning):
        assert judge(status, {}, b"").meaning is meaning

    def test_a_run_is_gone_only_by_a_problem_document(self):
        assert judge(404, {"content-type": "application/problem+json; charset=utf-8"}, b"{}").meaning is Meaning.GONE
        assert judge(404, {"content-type": "text/html"}, b"<h1>nginx</h1>").meaning is Meaning.NOT_LOSSGUARD

    @pytest.mark.parametrize("said", ["5", True, -1, 0, 2**60, None, 1.5, [], {}])
    def test_a_next_seq_that_is_no_number_is_not_followed(self, said):
        body = json.dumps({"next_seq": said}).encode()
        assert judge(409, {"content-type": "application/problem+json"}, body).next_seq is None

    def test_retry_after_is_read(self):
        assert judge(503, {"retry-after": "3"}, b"").retry_after == 3.0

    @given(st.sampled_from([200, 400, 404, 409, 422, 500, 302]), st.binary(max_size=200) | st.none())
    def test_no_answer_raises(self, status, body):
        judge(status, {"content-type": "application/problem+json", "retry-after": "\ud800"}, body)

    def test_a_deep_answer_is_not_an_answer(self):
        assert judge(200, {}, b"[" * 100_000).meaning is Meaning.BUSY
        assert judge(200, {}, None).meaning is Meaning.BUSY
        assert MAX_ANSWER_BYTES <= 1 << 20


STOP = Command("stop-1", CommandKind.STOP, "me", 1, 600.0, 900.0)
BACK = Command("back-1", CommandKind.ROLLBACK, "me", 1, 600.0, 1800.0, rollback=RollbackPayload("c", 10, 2))


def run(*inputs: inbox.Input, now: float = 0.0) -> tuple[inbox.InboxState, list[tuple[str, CommandState]], list[Command]]:
    state, receipts, given_out = inbox.InboxState("me", 1), [], []
    for taken in inputs:
        if isinstance(taken, int | float):
            now += taken
            continue
        outcome = inbox.step(state, taken, now)
        state = outcome.state
        receipts += [(receipt.command_id, receipt.state) for receipt in outcome.receipts]
        given_out += [outcome.given] if outcome.given else []
    return state, receipts, given_out


class TestInbox:
    def test_a_command_is_reported_delivered_and_given_once(self):
        arrived, asked = inbox.Arrived((STOP,)), inbox.Asked()
        _, receipts, given = run(arrived, arrived, asked, asked, arrived, asked)
        assert receipts == [("stop-1", CommandState.DELIVERED)]
        assert given == [STOP]

    @pytest.mark.parametrize(
        "command",
        [
            replace(STOP, incarnation="another"),
            replace(STOP, segment=2),
            replace(STOP, deliver_within_seconds=0.0),
            replace(STOP, deliver_within_seconds=math.nan),
            replace(STOP, execute_within_seconds=-1.0),
            replace(STOP, execute_within_seconds=math.nan),
            replace(BACK, rollback=None),
            replace(STOP, rollback=BACK.rollback),
        ],
    )
    def test_a_command_that_is_not_for_here_and_now_is_rejected_and_never_run(self, command):
        _, receipts, given = run(inbox.Arrived((command,)), inbox.Asked())
        assert receipts == [(command.command_id, CommandState.REJECTED)]
        assert given == []

    def test_an_expired_command_is_never_run(self):
        _, receipts, given = run(inbox.Arrived((STOP,)), 900.0, inbox.Asked())
        assert receipts[-1] == ("stop-1", CommandState.REJECTED)
        assert given == []

    def test_a_stop_overtakes_a_rollback_that_still_waits(self):
        _, receipts, given = run(inbox.Arrived((BACK,)), inbox.Arrived((STOP,)), inbox.Asked(), inbox.Asked())
        assert ("back-1", CommandState.REJECTED) in receipts
        assert given == [STOP]

    def test_a_command_for_a_segment_that_was_left_is_rejected(self):
        _, receipts, given = run(inbox.Arrived((STOP,)), inbox.Moved(2), inbox.Asked())
        assert receipts[-1] == ("stop-1", CommandState.REJECTED)
        assert given == []

    def test_a_command_from_before_the_loop_began_is_for_the_segment_that_begins(self):
        _, receipts, given = run(inbox.Arrived((BACK,)), inbox.Moved(4, begins=True), inbox.Asked())
        (taken,) = given
        assert (taken.segment, taken.rollback.new_segment) == (4, 5)
        assert receipts == [("back-1", CommandState.DELIVERED)]

    def test_so_is_one_that_the_server_sent_before_it_heard_of_the_segment(self):
        _, receipts, given = run(inbox.Moved(4, begins=True), inbox.Arrived((STOP,)), inbox.Asked())
        assert [taken.segment for taken in given] == [4]
        assert receipts == [("stop-1", CommandState.DELIVERED)]

    def test_none_is_taken_along_once_a_rollback_has_moved_the_run_on(self):
        _, receipts, given = run(inbox.Moved(4, begins=True), inbox.Moved(5), inbox.Arrived((STOP,)), inbox.Asked())
        assert (receipts, given) == ([("stop-1", CommandState.REJECTED)], [])

    def test_one_for_another_process_is_never_taken_along(self):
        _, receipts, given = run(inbox.Arrived((replace(STOP, incarnation="b"),)), inbox.Moved(4, begins=True), inbox.Asked())
        assert (receipts, given) == ([("stop-1", CommandState.REJECTED)], [])

    def test_a_command_that_is_given_out_says_how_much_of_its_time_is_left(self):
        _, _, (taken,) = run(inbox.Arrived((STOP,)), 100.0, inbox.Asked())
        assert taken.execute_within_seconds == pytest.approx(STOP.execute_within_seconds - 100.0)

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, -0.5])
    def test_a_factor_or_a_norm_that_makes_no_sense_is_rejected(self, value):
        for bad in (
            replace(STOP, kind=CommandKind.SET_LEARNING_RATE_FACTOR, value=value),
            replace(STOP, kind=CommandKind.SET_MAX_GRAD_NORM, value=value),
            replace(BACK, rollback=replace(BACK.rollback, learning_rate_factor=value)),
            replace(BACK, rollback=replace(BACK.rollback, max_grad_norm=value)),
        ):
            _, receipts, taken = run(inbox.Arrived((bad,)), inbox.Asked())
            assert (receipts, taken) == ([(bad.command_id, CommandState.REJECTED)], [])

    def test_a_reply_with_thousands_of_commands_is_taken_in_parts(self):
        many = tuple(replace(STOP, incarnation="another", command_id=f"c{i}") for i in range(5000))
        _, receipts, _ = run(inbox.Arrived(many))
        assert [name for name, _ in receipts] == [f"c{i}" for i in range(inbox.MOST_AT_ONCE)]
        _, receipts, _ = run(*[inbox.Arrived(many[:100])] * 4)
        assert [name for name, _ in receipts] == [f"c{i}" for i in range(100)]

    def test_waiting_commands_are_bounded(self):
        many = tuple(replace(BACK, command_id=f"c{i}") for i in range(40))
        state, receipts, _ = run(inbox.Arrived(many), inbox.Arrived(many))
        assert len(state.waiting) == inbox.MOST_WAITING
        assert sum(said is CommandState.REJECTED for _, said in receipts) == 40 - inbox.MOST_WAITING

    COMMANDS = st.builds(
        Command,
        command_id=st.sampled_from("abcdef"),
        kind=st.sampled_from(CommandKind),
        incarnation=st.sampled_from(["me", "another"]),
        segment=st.integers(1, 3),
        deliver_within_seconds=st.floats(),
        execute_within_seconds=st.floats(),
        rollback=st.sampled_from([None, BACK.rollback]),
    )

    @given(
        st.lists(
            st.one_of(
                st.builds(lambda c: inbox.Arrived((c,)), COMMANDS),
                st.just(inbox.Asked()),
                st.builds(inbox.Moved, st.integers(1, 3)),
                st.floats(0, 2000),
            )
        )
    )
    def test_whatever_comes_each_command_is_given_at_most_once_and_ends_at_most_once(self, inputs):
        _, receipts, given = run(*inputs)
        assert len({command.command_id for command in given}) == len(given)
        rejected = [command_id for command_id, said in receipts if said is CommandState.REJECTED]
        assert len(set(rejected)) == len(rejected)
        assert not set(rejected) & {command.command_id for command in given}
        assert all(command.incarnation == "me" for command in given)

    def test_verdicts_are_replaced_and_bounded(self):
        known: dict[str, Verdict] = {}
        for i in range(inbox.MOST_VERDICTS + 10):
            known = inbox.merge_verdicts(known, (Verdict(f"c{i}", CheckpointState.SOUND),))
        known = inbox.merge_verdicts(known, (Verdict("c500", CheckpointState.UNSOUND),))
        assert len(known) == inbox.MOST_VERDICTS
        assert list(known)[-1] == "c500"
        assert known["c500"].state is CheckpointState.UNSOUND


def test_an_end_is_a_record_like_any_other():
    entry = Numbered(3, RunEnded(EndReason.FAILED, 1.0, None, "ValueError"))
    assert last_seq(entry) == 3

"""Servers that answer, and wrongly: errors, limits, refusals, a run that is gone, a record that is bad."""

import math
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from faults_kit import ROOT, differences, value_at, wait
from figures import patience
from transport_server import CUT, TAKE_AND_CUT, ScriptedServer, problem

from trainer_agent.config import Config, save_login
from trainer_agent.guest.voice import Voice
from trainer_agent.monitor import Monitor, new_incarnation
from trainer_agent.recording.entries import Points
from trainer_agent.recording.spool import Spool
from trainer_agent.sending import backoff, link
from trainer_agent.sending.delivery import AT_ONCE, Delivery, Stage
from trainer_agent.sending.transport import Answer, HttpTransport, Meaning
from trainer_agent.wire import codec
from trainer_agent.wire.messages import Batch, Column, Dropped, Numbered, Reply, RunStart, SegmentStarted
from trainer_agent.wire.vocabulary import EndReason, SegmentCause

HOUR = 3600.0


class ByTheClock:
    """A transport on virtual time that gives `answer(now)` until that is None, then behaves."""

    def __init__(self, answer) -> None:
        self.now, self.answer = 0.0, answer
        self.tried_at: list[float] = []
        self.stored: Counter = Counter()
        self.next_seq = 1

    def announce(self, start):
        return self._tried() or Answer(Meaning.TAKEN, Reply(self.next_seq))

    def send(self, batch):
        if refused := self._tried():
            return refused
        self.stored.update(seq for column in batch.columns for seq in column.seq if seq >= self.next_seq)
        self.next_seq = batch.last_seq + 1
        return Answer(Meaning.TAKEN, Reply(self.next_seq))

    def _tried(self):
        self.tried_at.append(self.now)
        return self.answer(self.now)


def drive(transport: ByTheClock, tmp_path: Path, until: float, said: list | None = None) -> Delivery:
    """Delivery and link for so long of virtual time, as the sender's threads use them: one try at a time."""
    spool = Spool.create(tmp_path / "spool" / "inc", RunStart("run", "inc", "p", "n"))
    spool.write([Points(seq, 1.0, 1, seq, ("train/loss",), (1.0,)) for seq in range(1, 1001)])
    voice = Voice((said if said is not None else []).append, clock=lambda: transport.now)
    delivery, state, chance = Delivery(spool, transport, voice), link.LinkState(), iter(_chances())
    while transport.now < until and not delivery.is_done:
        transport.now += state.wait_seconds(transport.now)
        if transport.now >= until:
            break
        state = link.step(state, link.Tried(), transport.now, chance.__next__)
        pause = delivery.attempt()
        meaning = delivery.last_answer.meaning
        if meaning in (Meaning.BUSY, Meaning.UNREACHABLE):
            given: link.Input = link.Failed(delivery.last_answer.retry_after)
        else:
            given = link.Refused() if meaning is Meaning.NOT_ALLOWED else link.Heard()
            transport.now += 0.0 if pause == AT_ONCE or isinstance(given, link.Refused) else min(pause, HOUR)
        state = link.step(state, given, transport.now, chance.__next__)
    return delivery


def _chances(seed: int = 4):
    import random

    chance = random.Random(seed)
    while True:
        yield chance.random()


def test_f4_an_hour_of_500s_is_asked_seldom_and_loses_nothing(tmp_path, figure):
    transport = ByTheClock(lambda now: Answer(Meaning.BUSY, detail="500") if now < HOUR else None)
    delivery = drive(transport, tmp_path, 2 * HOUR)
    figure("F4", "tries in an hour of answers 500 (virtual)", sum(when < HOUR for when in transport.tried_at), at_most=80)
    back = min(when for when in transport.tried_at if when >= HOUR) - HOUR
    figure("F4", "seconds until the server's return is noticed (virtual)", back, at_most=backoff.LONGEST_SECONDS, unit="s")
    assert delivery.is_done
    figure("F4", "points lost or doubled", 1000 - len(transport.stored) + sum(transport.stored.values()) - 1000, at_most=0)


@pytest.mark.parametrize("seed", range(20))
def test_an_hour_of_failures_stays_under_80_tries_whatever_the_dice_say(seed):
    now, state, tries, chance = 0.0, link.LinkState(), 0, iter(_chances(seed))
    while (now := now + state.wait_seconds(now)) < HOUR:
        tries += 1
        state = link.step(state, link.Failed(), now, chance.__next__)
    assert 60 <= tries <= 80


def test_f5_a_429_with_retry_after_is_waited_for(tmp_path, figure):
    def busy(now):
        return Answer(Meaning.BUSY, retry_after=120.0, detail="429") if now < 600 else None

    transport = ByTheClock(busy)
    drive(transport, tmp_path, HOUR)
    gaps = [late - early for early, late in zip(transport.tried_at, transport.tried_at[1:], strict=False) if early < 600]
    figure("F5", "tries within 120 s of a Retry-After: 120 (virtual)", sum(gap < 120 for gap in gaps), at_most=0)
    assert len(gaps) >= 4


def test_f4_f5_no_thread_of_the_sender_has_a_backoff_of_its_own(watched, figure):
    """On the real clock: batches, heartbeats and polls together stay with one Retry-After, and with one backoff."""
    asked_at: list[float] = []
    answer: object = None

    def script(asked):
        if answer is not None:
            asked_at.append(time.monotonic())
        return answer

    with ScriptedServer(script) as server:
        monitor = watched(server.url)
        monitor.log({"train/loss": 1.0}, 1)
        assert monitor.flush(60)
        server.wait(lambda: server.count("poll") > 0)
        answer, step = (429, {"Retry-After": "2"}, b""), 1
        while not asked_at or time.monotonic() < asked_at[0] + 1.9:
            step += 1
            monitor.log({"train/loss": 1.0}, step)
            time.sleep(0.02)
        later = [when for when in asked_at if when > asked_at[0] + 0.5]  # what was under way already is forgiven
        figure("F5", "requests of all threads within a Retry-After of 2 s", len(later), at_most=0)
        answer, count = (500, {}, b"oops"), len(asked_at)
        time.sleep(4.0)
        figure("F4", "requests of all threads in 4 s of answers 500", len(asked_at) - count, at_most=9)
        answer = None
        assert monitor.flush(30)


def test_f8_one_record_the_server_rejects_does_not_hold_up_the_rest(fault_server, tmp_path, figure):
    """The real server takes no segment past 2^31, which the agent does not know."""
    bad, requests = 7_777, []
    start = RunStart(new_incarnation(), new_incarnation(), "p", "n")
    spool = Spool.create(tmp_path / "spool" / start.incarnation, start)
    spool.write([Numbered(1, SegmentStarted(1, 0, SegmentCause.START, 1.0))])
    spool.write([Points(seq, 1.0, 2**31 if seq == bad else 1, seq, ("train/loss",), (1.0,)) for seq in range(2, 10_002)])
    client = HttpTransport(Config(fault_server.url, fault_server.token))
    send = client.send
    client.send = lambda batch: (requests.append(batch.last_seq - batch.first_seq + 1), send(batch))[1]
    delivery = Delivery(spool, client, Voice(lambda _: None))
    while not delivery.is_done:
        assert delivery.attempt() in (AT_ONCE, float("inf"))
    client.close()
    stored = fault_server.points(start.run_id)
    figure("F8", "records stored, of 10,000 of which one is bad", len(stored), at_least=9999, at_most=9999)
    undisturbed = math.ceil(10_001 / 5_000)
    allowed = math.ceil(math.log2(max(requests))) + 2
    figure("F8", "requests more than without it", len(requests) - undisturbed, at_most=allowed)
    assert fault_server.run_of(start.run_id)["dropped_records"] == 1
    assert '"seq": 7777' in (spool.directory / "quarantine.jsonl").read_text()


@pytest.mark.parametrize("limit", [1000, 1400, 3000])
def test_f9_a_limit_that_is_lowered_in_mid_run_costs_smaller_batches_and_no_record(tmp_path, figure, limit):
    """A proxy in front of the server may allow less than the server: 413 by the bytes of the plain body.

    Halving alone comes to within twice the fewest requests; the search for the limit itself costs a handful, once.
    """
    sizes: list[int] = []
    entries = [Points(seq, 1.0, 1, seq, ("train/loss",), (value_at(seq),)) for seq in range(1, 2001)]

    class Narrow(ByTheClock):
        def send(self, batch):
            sizes.append(len(codec.encode(batch)))
            return Answer(Meaning.TOO_LARGE, detail="413") if sizes[-1] > limit else super().send(batch)

    spool = Spool.create(tmp_path / "spool" / "inc", RunStart("run", "inc", "p", "n"))
    spool.write(entries)
    transport = Narrow(lambda _: None)
    delivery = Delivery(spool, transport, Voice(lambda _: None))
    while not delivery.is_done:
        delivery.attempt()
    figure("F9", f"points lost, at a limit of {limit} bytes", 2000 - len(transport.stored), at_most=0)
    search = math.ceil(math.log2(5000))
    figure(
        "F9",
        f"requests after the search, per the fewest, at {limit} bytes",
        (len(sizes) - search) / fewest(entries, limit),
        at_most=2,
    )


def fewest(entries, limit: int) -> int:
    """How many requests it takes when each is as large as it may be."""
    count, first = 0, 0
    while first < len(entries):
        low, high = 1, len(entries) - first
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if weight(entries[first : first + middle]) <= limit else (low, middle - 1)
        count, first = count + 1, first + low
    return count


def weight(entries) -> int:
    seq, step = tuple(each.seq for each in entries), tuple(each.step for each in entries)
    column = Column("train/loss", 1, seq, step, tuple(each.time for each in entries), tuple(each.values[0] for each in entries))
    return len(codec.encode(Batch("run", "inc", 0, seq[0], seq[-1], time.time(), (column,))))


def test_f10_a_token_that_is_revoked_in_mid_run_is_said_seldom_and_tried_seldom(tmp_path, figure):
    said: list[str] = []
    transport = ByTheClock(lambda now: Answer(Meaning.NOT_ALLOWED, detail="401") if now < HOUR else None)
    delivery = drive(transport, tmp_path, 2 * HOUR, said)
    figure("F10", "tries in an hour of answers 401 (virtual)", sum(when < HOUR for when in transport.tried_at), at_most=12)
    figure("F10", "lines said in that hour", len(said), at_most=3, at_least=1)
    assert delivery.is_done
    assert len(transport.stored) == 1000


def test_f10_a_new_login_is_found_without_a_restart(watched, tmp_path, monkeypatch, figure):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("trainer_agent.sending.backoff.CRAWL_SECONDS", 0.5)
    accepted = "first"

    def script(asked):
        return None if asked.token == accepted else problem(401, detail="unknown token")

    with ScriptedServer(script) as server:
        save_login(server.url, "first")
        start = RunStart("run", new_incarnation(), "p", "n")
        monitor = Monitor(start, Config.load(), tmp_path / ".lossguard", Voice(lambda _: None))
        monitor.begin()
        monitor.log({"train/loss": 1.0}, 1)
        assert monitor.flush(60)
        accepted = "second"
        before = len(server.asked)
        for step in range(2, 102):
            monitor.log({"train/loss": 1.0}, step)
            time.sleep(0.01)
        tries = len(server.asked) - before
        figure("F10", "requests of all threads in 1 s of answers 401, crawling every 0.5 s", tries, at_most=6)
        save_login(server.url, "second")
        wait(lambda: server.only().next_seq > 101, 20)
        monitor.end(EndReason.FINISHED, 101)


def test_f11_a_run_that_is_deleted_in_mid_run_ends_the_sending_and_nothing_else(watched, figure):
    said: list[str] = []
    with ScriptedServer() as server:
        monitor = watched(server.url, said=said)
        for step in range(1, 201):
            if step == 50:
                assert monitor.flush(60)
                server.wait(lambda: server.count("beat") > 0)
                server.known, before = False, len(server.asked)
            monitor.log({"train/loss": value_at(step)}, step)
            time.sleep(0.005)
        begin = time.monotonic()
        monitor.end(EndReason.FINISHED, 200)
        figure("F11", "seconds to leave after the run was deleted", time.monotonic() - begin, at_most=patience(1), unit="s")
        tries = [asked for asked in server.asked[before:] if asked.kind != "poll"]
        figure("F11", "requests after the run was deleted", len(tries), at_most=3)
        assert sum("does not know this run" in line for line in said) == 1


def test_b6_syncing_a_run_that_was_deleted_ends(fault_server, tmp_path, figure):
    """Twice, in a process of its own: it comes back with a reason, and what waits is still there."""
    start = RunStart(new_incarnation(), new_incarnation(), "p", "n")
    spool = Spool.create(tmp_path / ".lossguard" / "spool" / start.incarnation, start)
    spool.write([Points(seq, 1.0, 1, seq, ("train/loss",), (1.0,)) for seq in range(1, 101)])
    spool.abandon()
    with ScriptedServer() as server:
        server.known = False
        environment = os.environ | {"LOSSGUARD_URL": server.url, "LOSSGUARD_TOKEN": "secret", "PYTHONPATH": str(ROOT)}
        for _ in range(2):
            before, begin = len(server.asked), time.monotonic()
            code = "import sys; from trainer_agent.cli import main; sys.exit(main(sys.argv[1:]))"
            command = [sys.executable, "-c", code, "sync", str(tmp_path)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
            figure("B6", "requests of a sync of a deleted run", len(server.asked) - before, at_most=3)
            assert time.monotonic() - begin < 30
            assert done.returncode == 1
            assert "100 records are left" in done.stdout
            assert "does not know this run" in done.stderr
    assert Spool.adopt(spool.directory).waiting == 100


LOOP = """
import sys, time
from pathlib import Path
if sys.argv[1] != "none":
    from trainer_agent.config import Config
    from trainer_agent.monitor import Monitor, new_incarnation
    from trainer_agent.wire.messages import RunStart
    start = RunStart("run", new_incarnation(), "p", "n")
    monitor = Monitor(start, Config(sys.argv[1], "secret"), Path(sys.argv[2]) / ".lossguard")
    monitor.begin()
    log = monitor.log
else:
    log = lambda values, step: None
for step in range(1, 301):
    log({"train/loss": float("nan") if step % 50 == 7 else 1.0 / step}, step)
    print("step", step, flush=True)
    time.sleep(0.004)
sys.exit(7)
"""

ANSWERS = {
    "500": (500, {}, b"oops"),
    "503 with Retry-After": (503, {"Retry-After": "0"}, b""),
    "429 with nonsense": (429, {"Retry-After": "soon"}, b""),
    "cut": CUT,
    "taken and cut": TAKE_AND_CUT,
    "html": (200, {"Content-Type": "text/html"}, b"<html>sign in to the wifi</html>"),
    "a bare NaN": (200, {}, b'{"next_seq": NaN}'),
    "a next_seq of 2^60": (200, {"Content-Type": "application/json"}, b'{"next_seq": 1152921504606846976}'),
    "deep nonsense": (200, {}, b"[" * 50_000),
    "two megabytes": (200, {}, b" " * (2 << 20)),
    "a redirect": (307, {"Location": "http://127.0.0.1:1/"}, b""),
    "404 of something else": (404, {"Content-Type": "text/html"}, b"not here"),
    "401": problem(401, detail="unknown token"),
    "409 without a number": problem(409, next_seq="all"),
    "413": problem(413, detail="too large"),
    "415": problem(415, detail="unknown"),
    "422": problem(422, detail="bad"),
    "204": (204, {}, b""),
    "999": (999, {}, b""),
}


def run_loop(url: str, folder: Path) -> tuple[int, str, str, float]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    begin = time.monotonic()
    command = [sys.executable, "-c", LOOP, url, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr, time.monotonic() - begin


def test_b7_a_tracker_hiccup_in_a_log_call_ends_no_training(tmp_path, figure):
    """Every failing answer, in turn, to requests of every kind. The loop is as it is without us, and so is its exit code."""
    turn, answers, lock = [0], list(ANSWERS.values()), threading.Lock()

    def every(asked):
        with lock:
            turn[0] += 1
            return answers[turn[0] % len(answers)]

    code, out, _, plain = run_loop("none", tmp_path)
    assert code == 7
    with ScriptedServer(every) as server:
        told = run_loop(server.url, tmp_path)
        assert len(server.asked) > 1
    assert told[:2] == (code, out), told[2]
    assert "Traceback" not in told[2]
    figure("B7", "exit code of a training whose log() met every failing answer (7 without us)", told[0], at_most=7, at_least=7)
    figure("B7", "seconds that it took longer", told[3] - plain, at_most=30, unit="s")


@pytest.mark.parametrize("name", ANSWERS)
def test_b7_no_answer_ends_the_sender_and_what_it_could_not_send_goes_later(name, tmp_path):
    """Delivery against the real HTTP answer: whatever comes, the next good answer goes on without loss."""
    with ScriptedServer() as server:
        start = RunStart("run", "inc", "p", "n")
        spool = Spool.create(tmp_path / "spool" / "inc", start)
        spool.write([Points(seq, 1.0, 1, seq, ("train/loss",), (1.0,)) for seq in range(1, 21)])
        client = HttpTransport(Config(server.url, "secret"))
        delivery = Delivery(spool, client, Voice(lambda _: None))
        assert delivery.attempt() == AT_ONCE
        server.script = lambda _: ANSWERS[name]
        pause = delivery.attempt()
        assert pause >= 0
        server.script = lambda _: None
        while not delivery.is_done:
            delivery.attempt()
        client.close()
        kept = server.only()
        assert delivery.stage is Stage.SENDING
        assert kept.numbers() == set(range(1, 21))
        assert kept.doubled == 0
        assert len(kept.points) == 20
        assert not kept.of(Dropped)


def test_b8_a_nan_that_is_sent_three_times_is_one_point_and_still_a_nan(fault_server, figure):
    """Three times the same batch, three times cut otherwise, and three times as another record of the same step."""
    client = HttpTransport(Config(fault_server.url, fault_server.token))
    run_id = new_incarnation()
    client.announce(RunStart(run_id, "life", "p", "n"))
    values = {5: float("nan"), 6: float("inf"), 7: float("-inf")}

    def send(first: int, steps: tuple[int, ...]) -> None:
        seqs = tuple(range(first, first + len(steps)))
        column = Column("train/loss", 1, seqs, steps, tuple(map(float, seqs)), tuple(values[step] for step in steps))
        answer = client.send(Batch(run_id, "life", 0, seqs[0], seqs[-1], 1.0, (column,)))
        assert answer.meaning is Meaning.TAKEN, answer

    for _ in range(3):
        send(1, (5, 6, 7))
    for _ in range(3):
        send(1, (5,))
        send(2, (6, 7))
    for first in (4, 7, 10):
        send(first, (5, 6, 7))
    client.close()
    found = fault_server.points(run_id)
    figure(
        "B8", "points of one step whose NaN was sent nine times", sum(each["step"] == 5 for each in found), at_most=1, at_least=1
    )
    assert [(each["step"], each["value"]) for each in found] == [(5, "NaN"), (6, "Infinity"), (7, "-Infinity")]


def test_differences_would_be_seen():
    """The checker of these tests, on a history that is wrong in each way."""
    good = [{"step": step, "value": "NaN" if step == 7 else 1.0 / step} for step in range(1, 11)]
    assert not any(differences(good, 10).values())
    assert differences(good[:-1], 10)["lost"] == 1
    assert differences([*good, good[0]], 10)["doubled"] == 1
    assert differences([*good[1:], {"step": 1, "value": "NaN"}], 10)["different"] == 1
    assert differences([*good, {"step": 11, "value": 1.0}], 10)["invented"] == 1

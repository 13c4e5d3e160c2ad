"""Monitor against a real server on loopback that fails as scripted."""

import contextlib
import logging
import os
import threading
import time
from pathlib import Path

import pytest
from figures import patience
from transport_server import CUT, HANG, TAKE_AND_CUT, ScriptedServer, same

from trainer_agent.config import Config
from trainer_agent.guest.voice import Voice
from trainer_agent.monitor import Monitor, new_incarnation
from trainer_agent.sending import sender as sender_module
from trainer_agent.sending.sender import HEARTBEAT_SECONDS
from trainer_agent.wire.commands import Command
from trainer_agent.wire.messages import Dropped, Report, RunEnded, RunStart, SegmentStarted, Verdict
from trainer_agent.wire.vocabulary import CheckpointState, CommandKind, CommandState, EndReason, Phase, SegmentCause


@pytest.fixture
def said():
    return []


@pytest.fixture
def make(tmp_path, said):
    made: list[Monitor] = []
    before = ours()  # of a test that broke a monitor on purpose

    def make(url: str | None, token: str | None = "secret", **start) -> Monitor:
        incarnation = new_incarnation()
        monitor = Monitor(
            RunStart("run", incarnation, "p", "n", **start), Config(url, token), tmp_path / ".lossguard", Voice(said.append)
        )
        made.append(monitor)
        monitor.begin()
        monitor.record(SegmentStarted(1, 0, SegmentCause.START, time.time()))
        return monitor

    yield make
    for monitor in made:
        monitor.end(EndReason.FAILED, None, timeout_seconds=0.2)
    deadline = time.monotonic() + 30
    while ours() - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not ours() - before, "no thread is left"


def ours() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("lossguard-")}


def steps(monitor: Monitor, first: int, last: int) -> None:
    for step in range(first, last + 1):
        monitor.log({"train/loss": float("nan") if step % 50 == 7 else 1.0 / step, "train/grad_norm": 1.0 * step}, step)


def whole(kept, last: int) -> None:
    """Everything that was logged is there once, in order, bit for bit, and numbers have no hole."""
    assert kept.doubled == 0
    assert kept.numbers() == set(range(1, kept.next_seq))
    loss = kept.series("train/loss")
    assert [step for step, _ in loss] == list(range(1, last + 1))
    assert all(same(value, float("nan") if step % 50 == 7 else 1.0 / step) for step, value in loss)


def test_all_that_is_logged_arrives_and_nothing_is_left_on_disk(make, tmp_path, said):
    with ScriptedServer() as server:
        server.page_url = "http://example.test/#/runs/run\n\x1b[31m"
        monitor = make(server.url)
        steps(monitor, 1, 500)
        monitor.end(EndReason.FINISHED, 500)
        kept = server.only()
        whole(kept, 500)
        assert [type(record) for record in kept.of(object)] == [SegmentStarted, RunEnded]
        assert server.asked[0].kind == "start"
        assert {asked.token for asked in server.asked} == {"secret"}
        assert list((tmp_path / ".lossguard" / "spool").iterdir()) == []
        assert [line for line in said if "example.test" in line] == [
            "lossguard: watch this run at http://example.test/#/runs/run  [31m"
        ]
        assert len(said) == 1


FAULTS = {
    "answers 500": (500, {}, b"oops"),
    "answers 503 with Retry-After": (503, {"Retry-After": "0"}, b""),
    "is cut": CUT,
    "takes and is cut": TAKE_AND_CUT,
    "answers html": (200, {"Content-Type": "text/html"}, b"<html>sign in to the wifi</html>"),
    "answers a bare NaN": (200, {}, b'{"next_seq": NaN}'),
    "answers deep nonsense": (200, {}, b"[" * 50_000),
    "answers two megabytes": (200, {}, b" " * (2 << 20)),
    "claims everything": (409, {"Content-Type": "application/problem+json"}, b'{"next_seq": "all"}'),
    "redirects": (307, {"Location": "http://127.0.0.1:1/"}, b""),
}


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "redirects"])
def test_a_server_that_fails_now_and_then_gets_everything_once(make, fault, monkeypatch):
    monkeypatch.setattr("trainer_agent.sending.backoff.FIRST_SECONDS", 0.02)
    turn = [0]

    def script(asked):
        if asked.kind != "batch":
            return None
        turn[0] += 1
        return FAULTS[fault] if turn[0] % 3 else None

    with ScriptedServer(script) as server:
        monitor = make(server.url)
        for first in range(1, 300, 20):
            steps(monitor, first, first + 19)
            monitor.flush(0.05)
        assert monitor.flush(60)
        monitor.end(EndReason.FINISHED, 300, timeout_seconds=20)
        whole(server.only(), 300)


def test_a_server_away_at_the_start_is_said_once_and_gets_everything_later(make, said, monkeypatch):
    monkeypatch.setattr("trainer_agent.sending.backoff.FIRST_SECONDS", 0.05)
    probe = ScriptedServer()
    port = probe.port
    probe.close()
    monitor = make(f"http://127.0.0.1:{port}")
    steps(monitor, 1, 200)
    assert not monitor.flush(0.5)
    assert sum("away" in line for line in said) == 1
    with ScriptedServer(port=port) as server:
        assert monitor.flush(60)
        monitor.end(EndReason.FINISHED, 200)
        whole(server.only(), 200)


def test_a_hanging_server_does_not_hold_up_the_end(make, said):
    with ScriptedServer(lambda asked: HANG) as server:
        monitor = make(server.url)
        steps(monitor, 1, 50)
        server.wait(lambda: server.count("start") == 1)
        began = time.monotonic()
        monitor.end(EndReason.FINISHED, 50)
        assert time.monotonic() - began < patience(5.0)
        assert any("52 records wait" in line and "lossguard sync" in line for line in said)


def test_a_refusing_server_does_not_hold_up_the_end(make):
    probe = ScriptedServer()
    probe.close()
    monitor = make(probe.url)
    steps(monitor, 1, 50)
    began = time.monotonic()
    monitor.end(EndReason.FINISHED, 50, timeout_seconds=60)
    assert time.monotonic() - began < 30


def test_what_one_process_left_the_next_sends_first(make, monkeypatch):
    monkeypatch.setattr("trainer_agent.sending.backoff.FIRST_SECONDS", 0.05)
    probe = ScriptedServer()
    port = probe.port
    probe.close()
    for _ in range(2):
        left = make(f"http://127.0.0.1:{port}")
        steps(left, 1, 100)
        left.end(EndReason.FINISHED, 100, timeout_seconds=0.3)
    with ScriptedServer(port=port) as server:
        monitor = make(server.url)
        steps(monitor, 1, 30)
        assert monitor.flush(60)
        starts = list(dict.fromkeys(asked.message.incarnation for asked in server.asked if asked.kind == "start"))
        assert len(starts) == 3
        assert starts[-1] == monitor.start.incarnation
        for incarnation in starts[:2]:
            whole(server.kept[incarnation], 100)
        whole(server.kept[starts[-1]], 30)


def test_without_a_server_the_spool_keeps_the_run_and_says_once_what_to_do(make, tmp_path, said):
    monitor = make(None, None)
    steps(monitor, 1, 100)
    assert monitor.flush(60)
    monitor.end(EndReason.FINISHED, 100)
    assert len([line for line in said if "lossguard login" in line]) == 1
    with ScriptedServer() as server:
        later = make(server.url)
        assert later.flush(60)
        whole(server.kept[monitor.start.incarnation], 100)
    assert tmp_path.exists()


def test_heartbeats_come_while_the_training_thread_is_blocked(make, monkeypatch):
    monkeypatch.setattr(sender_module, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(sender_module, "PHASE_LOOK_SECONDS", 0.01)
    with ScriptedServer() as server:
        monitor = make(server.url)
        monitor.log({"train/loss": float("nan")}, 41)
        monitor.set_phase(Phase.SAVING)
        server.wait(
            lambda: any(a.kind == "beat" and a.message.step == 41 and a.message.phase is Phase.SAVING for a in server.asked)
        )
        beat = next(asked.message for asked in reversed(server.asked) if asked.kind == "beat")
        assert same(beat.latest["train/loss"], float("nan"))
        assert beat.segment == 1


def test_newest_values_do_not_outlive_the_segment_they_are_of(make, monkeypatch):
    monkeypatch.setattr(sender_module, "HEARTBEAT_SECONDS", 0.02)
    monkeypatch.setattr(sender_module, "PHASE_LOOK_SECONDS", 0.01)
    with ScriptedServer() as server:
        monitor = make(server.url)
        monitor.log({"train/loss": float("nan")}, 237)
        monitor.record(SegmentStarted(2, 200, SegmentCause.ROLLBACK, time.time(), 1))
        server.wait(lambda: any(a.kind == "beat" and a.message.segment == 2 for a in server.asked))
        first = next(a.message for a in server.asked if a.kind == "beat" and a.message.segment == 2)
        assert (first.step, first.latest) == (200, {})


def test_a_changed_phase_is_told_without_waiting_for_the_next_heartbeat(make, monkeypatch):
    monkeypatch.setattr(sender_module, "HEARTBEAT_SECONDS", 3600.0)
    with ScriptedServer() as server:
        monitor = make(server.url)
        server.wait(lambda: server.count("beat") == 1)
        monitor.set_phase(Phase.HOLDING)
        server.wait(lambda: any(a.kind == "beat" and a.message.phase is Phase.HOLDING for a in server.asked))


def command(monitor: Monitor, **changes) -> Command:
    given = {"command_id": "c1", "kind": CommandKind.STOP, "incarnation": monitor.start.incarnation, "segment": 1}
    return Command(**{**given, "deliver_within_seconds": 600.0, "execute_within_seconds": 900.0, **changes})


def test_a_command_is_received_promptly_reported_and_given_once(make):
    with ScriptedServer() as server:
        monitor = make(server.url)
        server.wait(lambda: server.count("poll") == 1)
        began = time.monotonic()
        server.push(command(monitor))
        assert monitor.wait_for_command(30.0).command_id == "c1"
        assert time.monotonic() - began < HEARTBEAT_SECONDS, "it came with a heartbeat"
        server.wait(lambda: [report.state for report in server.only().of(Report)] == [CommandState.DELIVERED])
        assert monitor.take_command() is None
        assert monitor.wait_for_command(0.3) is None


def test_a_command_for_another_process_is_reported_rejected_with_the_reason(make):
    with ScriptedServer() as server:
        monitor = make(server.url)
        server.push(command(monitor, incarnation="another"))
        server.wait(lambda: bool(server.kept and server.only().of(Report)))
        (report,) = server.only().of(Report)
        assert report.state is CommandState.REJECTED
        assert "another process" in report.reason
        assert monitor.take_command() is None


def test_verdicts_are_kept(make):
    with ScriptedServer() as server:
        server.verdicts = [Verdict("c-100", CheckpointState.SOUND), Verdict("c-200", CheckpointState.UNSOUND, "sick")]
        monitor = make(server.url)
        assert monitor.flush(60)
        assert monitor.verdicts()["c-200"].state is CheckpointState.UNSOUND


def test_a_server_that_answers_polls_at_once_is_not_asked_without_pause(make):
    with ScriptedServer() as server:
        server.commands.append(Command("old", CommandKind.STOP, "another", 1, 1.0, 1.0))
        make(server.url)
        server.wait(lambda: server.count("poll") >= 2)
        time.sleep(1.0)
        assert server.count("poll") < 12


def test_a_deleted_run_ends_the_sending_and_nothing_else(make, said):
    with ScriptedServer() as server:
        monitor = make(server.url)
        assert monitor.flush(60)
        server.known = False
        before = len(server.asked)
        steps(monitor, 1, 200)
        assert not monitor.flush(5)
        monitor.end(EndReason.FINISHED, 200)
        assert sum(asked.kind in ("start", "batch") for asked in server.asked[before:]) <= 3
        assert sum("does not know this run" in line for line in said) == 1


def test_a_refused_token_is_said_once_and_the_spool_goes_on(make, said):
    with ScriptedServer(
        lambda asked: (401, {"Content-Type": "application/problem+json"}, b'{"detail": "unknown token", "fix": "give another"}')
    ) as server:
        monitor = make(server.url)
        steps(monitor, 1, 100)
        assert not monitor.flush(2)
        monitor.end(EndReason.FINISHED, 100)
        assert server.count("start") == 1
        assert sum("refuses the token (401 unknown token; give another). Run `lossguard login URL`" in line for line in said) == 1


def test_a_redirect_is_not_followed_with_the_token(make, said):
    with (
        ScriptedServer() as target,
        ScriptedServer(lambda asked: (307, {"Location": f"{target.url}/api/agent/runs"}, b"")) as server,
    ):
        monitor = make(server.url)
        assert not monitor.flush(2)
        assert target.asked == []
        assert any("not a LossGuard server" in line for line in said)


def test_loopback_does_not_go_through_a_proxy(make, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with ScriptedServer() as server:
        assert make(server.url).flush(5)


def test_a_server_elsewhere_does_go_through_the_proxy(make, monkeypatch):
    with ScriptedServer() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert make("http://lossguard.invalid").flush(5)
        assert proxy.count("start") == 1


@pytest.mark.parametrize("values", [None, 5, "text", [1], {1: 2}, {"train/loss": object()}, {("a",): 1.0}], ids=repr)
def test_log_never_raises(make, values):
    monitor = make(None, None)
    monitor.log(values, 1)
    monitor.log({"train/loss": 1.0}, values)
    assert monitor.flush(60)
    assert monitor.spool.last_seq == 3


def test_after_the_end_and_before_the_begin_nothing_raises(make, tmp_path):
    monitor = make(None, None)
    for _ in range(2):
        monitor.end(EndReason.FINISHED, 1)
    steps(monitor, 1, 5)
    monitor.record(RunEnded(EndReason.FAILED, 1.0))
    assert (monitor.take_command(), monitor.wait_for_command(9), monitor.flush(9)) == (None, None, False)
    unbegun = Monitor(RunStart("r", "i", "p", "n"), Config(), tmp_path, Voice(lambda _: None))
    unbegun.log({"train/loss": 1.0}, 1)
    unbegun.end(EndReason.FINISHED, 1)


def test_our_requests_do_not_fill_the_log_of_the_training_script(make, caplog):
    caplog.set_level(logging.DEBUG)
    with ScriptedServer() as server:
        assert make(server.url).flush(5)
    assert not [record for record in caplog.records if record.name.startswith(("httpx2", "httpcore2"))]


def test_a_forked_child_does_nothing_and_the_parent_goes_on(make):
    with ScriptedServer() as server:
        monitor = make(server.url)
        stop = threading.Event()
        for round_number in range(20):
            steps(monitor, 1 + round_number * 10, 10 + round_number * 10)
            child = os.fork()
            if child == 0:
                code = 1
                with contextlib.suppress(BaseException):
                    monitor.log({"train/loss": 666.0}, 666)
                    monitor.end(EndReason.FAILED, 666)
                    code = 0 if not monitor.flush(5) and monitor.take_command() is None else 1
                os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        monitor.end(EndReason.FINISHED, 200)
        whole(server.only(), 200)


def test_many_threads_may_log_and_numbers_have_no_hole(make):
    with ScriptedServer() as server:
        monitor = make(server.url)
        threads = [threading.Thread(target=steps, args=(monitor, 1, 500)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        monitor.end(EndReason.FINISHED, 500, timeout_seconds=20)
        kept = server.only()
        assert kept.numbers() == set(range(1, 2003))
        assert kept.of(Dropped) == []


def test_a_disk_that_refuses_does_not_stop_the_sending(tmp_path, said):
    blocked = tmp_path / ".lossguard"
    blocked.write_text("a file where the folder should be")
    with ScriptedServer() as server:
        monitor = Monitor(RunStart("run", "inc", "p", "n"), Config(server.url, "t"), Path(blocked), Voice(said.append))
        monitor.begin()
        steps(monitor, 1, 100)
        monitor.end(EndReason.FINISHED, 100)
        whole(server.only(), 100)
    assert sum("cannot be written" in line for line in said) == 1

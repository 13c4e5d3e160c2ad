"""What earlier processes left in a folder, and the process that finds it."""

import os
import time
from pathlib import Path

import pytest
from transport_server import ScriptedServer, problem

from trainer_agent.config import Config
from trainer_agent.guest.voice import Voice
from trainer_agent.monitor import Monitor, new_incarnation
from trainer_agent.recording.entries import Points
from trainer_agent.recording.spool import Spool
from trainer_agent.wire.commands import Command
from trainer_agent.wire.messages import Batch, RunStart
from trainer_agent.wire.vocabulary import CommandKind, EndReason

LONG_SECONDS = 60.0
"""What an end is given that does not need it."""


@pytest.fixture
def said():
    return []


@pytest.fixture
def make(tmp_path, said):
    made: list[Monitor] = []

    def make(url: str, token: str = "secret", run: str = "run") -> Monitor:
        start = RunStart(run, new_incarnation(), "p", "n")
        made.append(Monitor(start, Config(url, token), tmp_path / ".lossguard", Voice(said.append)))
        made[-1].begin()
        return made[-1]

    yield make
    for monitor in made:
        monitor.end(EndReason.FAILED, None, timeout_seconds=0.2)


def leave(folder: Path, incarnation: str, run: str = "run", count: int = 20, first: int = 1) -> Path:
    """What a killed process leaves: its records, and nobody to send them."""
    directory = folder / ".lossguard" / "spool" / incarnation
    spool = Spool.create(directory, RunStart(run, incarnation, "p", "n"))
    spool.write([Points(seq, 1.0, 1, seq + first - 1, ("train/loss",), (1.0,)) for seq in range(1, count + 1)])
    spool.abandon()
    return directory


def test_a_new_process_is_known_before_the_backlog_is_sent_and_the_older_ones_before_it(make, tmp_path):
    """Known: started, alive, and told its commands. Its own records come after those that happened before them."""
    for name in ("a", "b"):
        leave(tmp_path, name)
    hold = [True]

    def script(asked):
        return (503, {"Retry-After": "1"}, b"") if hold[0] and asked.kind == "batch" else None

    with ScriptedServer(script) as server:
        monitor = make(server.url)
        own = monitor.start.incarnation
        monitor.log({"train/loss": 1.0}, 1)
        server.wait(lambda: server.count("batch") > 0)
        assert list(server.kept) == ["a", "b", own]
        server.wait(lambda: any(asked.kind == "beat" and asked.message.incarnation == own for asked in server.asked))
        server.push(Command("c1", CommandKind.STOP, own, 1, 60.0, 60.0))
        assert monitor.wait_for_command(60) is not None
        hold[0] = False
        server.wait(lambda: server.kept[own].points and server.kept[own].next_seq > 1)
        taken = [asked.message.incarnation for asked in server.asked if isinstance(asked.message, Batch)]
        assert taken.index("b") > max(at for at, name in enumerate(taken) if name == "a")
        assert taken.index(own) > max(at for at, name in enumerate(taken) if name == "b")
        assert len(server.kept["a"].points) == len(server.kept["b"].points) == 20


def test_what_another_run_left_does_not_hold_up_this_one(make, tmp_path):
    leave(tmp_path, "old", run="another")

    def script(asked):
        return (503, {"Retry-After": "600"}, b"") if getattr(asked.message, "run_id", "") == "another" else None

    with ScriptedServer(script) as server:
        monitor = make(server.url)
        for step in range(1, 4):
            monitor.log({"train/loss": 1.0}, step)
            assert monitor.flush(60)
        server.script = lambda _: None
        monitor.end(EndReason.FINISHED, 3)
    assert (tmp_path / ".lossguard" / "spool" / "old" / "start.json").exists()


def test_what_another_run_left_is_sent_when_there_is_nothing_else(make, tmp_path):
    folder = leave(tmp_path, "old", run="another")
    with ScriptedServer() as server:
        monitor = make(server.url)
        monitor.log({"train/loss": 1.0}, 1)
        server.wait(lambda: "old" in server.kept and len(server.kept["old"].points) == 20)
        monitor.end(EndReason.FINISHED, 1)
    assert not folder.exists()


def spoil_name(folder: Path) -> None:
    (folder / f"{'9' * 30}.seg").write_bytes(b"LGSPOOL1")
    (folder / "\u00b2.seg").write_bytes(b"no number, and yet a digit")


def spoil_file(folder: Path) -> None:
    (folder / "99999999999999999999.seg").mkdir()  # reading it fails for every user


def spoil_head(folder: Path) -> None:
    (folder / "start.json").write_text("[" * 100_000)


def spoil_middle(folder: Path) -> None:
    path = next(folder.glob("*.seg"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)


@pytest.mark.parametrize("spoil", [spoil_name, spoil_file, spoil_head, spoil_middle])
def test_a_broken_leftover_never_holds_up_the_records_of_the_new_process(make, tmp_path, spoil):
    spoil(leave(tmp_path, "old"))
    with ScriptedServer() as server:
        monitor = make(server.url)
        monitor.log({"train/loss": 1.0}, 1)
        assert monitor.flush(60)
        assert len(server.kept[monitor.start.incarnation].points) == 1


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("token", lambda _: problem(401, detail="no")),
        ("start", lambda _: problem(422, detail="no such project")),
        ("gone", lambda _: problem(404, detail="no such run")),
        ("not lossguard", lambda _: (302, {"Location": "/"}, b"")),
        ("batches", lambda asked: problem(403, detail="no") if asked.kind == "batch" else None),
    ],
)
def test_the_end_does_not_wait_for_a_server_that_refuses(make, name, script):
    with ScriptedServer(script) as server:
        monitor = make(server.url)
        for step in range(50):
            monitor.log({"train/loss": 1.0}, step)
        server.wait(lambda: server.count("batch" if name == "batches" else "start") > 0)
        began = time.monotonic()
        monitor.end(EndReason.FINISHED, 50, timeout_seconds=LONG_SECONDS)
        assert time.monotonic() - began < LONG_SECONDS / 2


def test_the_end_does_not_wait_where_nobody_listens(make):
    with ScriptedServer() as server:
        url = server.url
    monitor = make(url)
    monitor.log({"train/loss": 1.0}, 1)
    began = time.monotonic()
    monitor.end(EndReason.FINISHED, 1, timeout_seconds=LONG_SECONDS)
    assert time.monotonic() - began < LONG_SECONDS / 2


def test_a_way_to_the_server_that_cannot_be_set_up_leaves_the_spool(make, said, monkeypatch, tmp_path):
    """A SOCKS proxy in the environment needs a package that nobody asked for."""
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    monitor = make("http://192.0.2.1:1")
    monitor.log({"train/loss": 1.0}, 1)
    assert monitor.flush(60)
    assert any("no way to the server" in line for line in said)
    assert next((tmp_path / ".lossguard").rglob("*.seg")).stat().st_size > len(b"LGSPOOL1")
    assert os.environ["ALL_PROXY"]

"""The last word that a killed process is given by whoever finds its folder: once, whatever happens to the finder."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "agent"))
from transport_server import ScriptedServer

from trainer_agent.config import Config
from trainer_agent.guest.voice import Voice
from trainer_agent.recording.entries import Points
from trainer_agent.recording.spool import Spool
from trainer_agent.sending import backlog
from trainer_agent.sending.backlog import Leftover, note_left
from trainer_agent.sending.delivery import Stage
from trainer_agent.sending.transport import HttpTransport
from trainer_agent.wire.messages import Dropped, Numbered, RunEnded, RunStart
from trainer_agent.wire.vocabulary import EndReason

START = RunStart("run", "a", "p", "n")


def killed(folder: Path, count: int = 20, end: RunEnded | None = None) -> Path:
    directory = folder / "spool" / "a"
    spool = Spool.create(directory, START)
    spool.write([Points(seq, 1.0, 1, seq, ("train/loss",), (1.0,)) for seq in range(1, count + 1)])
    if end is not None:
        spool.write([Numbered(count + 1, end)])
    spool.abandon()
    return directory


def deliver(server: ScriptedServer, directory: Path, *, stop_after: int = 100) -> bool:
    """Finds the folder and sends what is there; whether all went."""
    transport = HttpTransport(Config(server.url, "t"))
    delivery = Leftover(Spool.adopt(directory), transport, Voice(lambda _: None))
    for _ in range(stop_after):
        if delivery.is_done:
            break
        delivery.attempt()
    done = delivery.is_done
    if stop_after == 100:
        delivery.let_go()
    else:
        delivery.spool.abandon()  # killed
    transport.close()
    return done


def ends(server: ScriptedServer) -> list[tuple[str, str, int | None]]:
    return [(end.reason.value, end.detail, end.step) for end in server.kept["a"].of(RunEnded)]


def test_a_killed_process_gets_its_last_word_after_its_last_record(tmp_path):
    directory = killed(tmp_path)
    with ScriptedServer() as server:
        assert deliver(server, directory)
        assert ends(server) == [("failed", "killed", 20)]
        assert server.kept["a"].numbers() == set(range(1, 22))
    assert not directory.exists()


def test_it_gets_it_too_when_the_server_had_everything(tmp_path):
    directory = killed(tmp_path)
    with ScriptedServer() as server:
        deliver(server, directory, stop_after=1)  # announced, and the word written down
        server.kept["a"].next_seq = 21
        assert deliver(server, directory)
        assert ends(server) == [("failed", "killed", 20)]


@pytest.mark.parametrize("stop_after", [1, 2])
def test_a_finder_that_is_killed_itself_leaves_one_word_to_the_next(tmp_path, stop_after):
    directory = killed(tmp_path)
    with ScriptedServer() as server:
        deliver(server, directory, stop_after=stop_after)
        assert deliver(server, directory)
        assert ends(server) == [("failed", "killed", 20)]
        assert server.kept["a"].doubled == 0
        assert server.kept["a"].next_seq == 22


def test_nothing_is_added_to_a_word_that_was_said_nor_for_a_process_that_left_by_itself(tmp_path):
    said = killed(tmp_path / "said", end=RunEnded(EndReason.FINISHED, 1.0, 20))
    left = killed(tmp_path / "left")
    note_left(left)
    with ScriptedServer() as server:
        assert deliver(server, said)
        assert ends(server) == [("finished", "", 20)]
    with ScriptedServer() as server:
        assert deliver(server, left)
        assert ends(server) == []
    assert not left.exists()


def test_a_process_killed_before_its_first_record_gets_it_too_but_not_before_the_server_can_be_asked(tmp_path):
    directory = killed(tmp_path, count=0)
    with ScriptedServer(lambda asked: (503, {}, b"")) as server:
        assert not deliver(server, directory)
    assert json.loads((directory / "start.json").read_text())["start"]["incarnation"] == "a"
    with ScriptedServer() as server:
        assert deliver(server, directory)
        assert ends(server) == [("failed", "killed", None)]
    assert not directory.exists()


def test_numbers_that_only_the_server_has_are_not_used_again(tmp_path):
    """The disk could not be written, and records went out of memory."""
    directory = killed(tmp_path)
    with ScriptedServer() as server:
        deliver(server, killed(tmp_path / "same"), stop_after=1)
        server.kept["a"].next_seq = 51
        assert deliver(server, directory)
        assert ends(server) == [("failed", "killed", 20)]
        assert list(server.kept["a"].records) == [51]
        assert not server.kept["a"].of(Dropped)


def test_a_word_that_cannot_be_written_down_is_sent_all_the_same(tmp_path, monkeypatch):
    directory = killed(tmp_path)
    with ScriptedServer() as server:
        transport = HttpTransport(Config(server.url, "t"))
        delivery = Leftover(Spool.adopt(directory), transport, Voice(lambda _: None))
        monkeypatch.setattr(delivery.spool, "_append", lambda entries: (_ for _ in ()).throw(OSError(28, "full")))
        while not delivery.is_done:
            delivery.attempt()
        assert delivery.stage is Stage.SENDING
        assert ends(server) == [("failed", "killed", 20)]
        delivery.let_go()
        transport.close()


def test_a_hostile_number_of_the_server_breaks_nothing(tmp_path):
    directory = killed(tmp_path)
    with ScriptedServer() as server:
        deliver(server, killed(tmp_path / "same"), stop_after=1)
        server.kept["a"].next_seq = backlog.codec.MAX_STEP
        for _ in range(2):
            deliver(server, directory, stop_after=5)

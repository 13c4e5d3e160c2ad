"""The sweep can fail: each fault that it exists for is planted in a victim, and the checker finds it."""

import pytest
from kill_history import Stored, Verdict, judge
from kill_kit import Forks, Server, lives_of, steps_of, wait_until
from kill_sweep import ENDLESS, kill_server_at
from kill_victims import SERIES, known

from trainer_agent.recording.salvage import scan


def kill_often(trainers: Forks, server: Server, folder, label: str, fault: str) -> list[Verdict]:
    """A server with a fault, killed three times: what the label stands before may once be about something else than a batch."""
    server.start(fault)
    folders = [folder / f"victim-{turn}" for turn in range(3)]
    fates = [kill_server_at(trainers, server, each, f"{label}:{4 + turn}", fault, 3.0) for turn, each in enumerate(folders)]
    assert not any("not reached" in fate.problem for fate in fates), fates
    stored = server.stored()
    lives = [life for each in folders for life in lives_of(each)]
    return [judge(life, stored.get(life.incarnation, Stored()), known, SERIES) for life in lives]


def test_a_server_that_does_not_cut_what_it_has_is_caught(trainers, servers, tmp_path):
    """It dies between commit and reply, so the same batch comes again."""
    found = kill_often(trainers, Server(servers, tmp_path / "server"), tmp_path, "server.before_reply", "no dedupe")
    assert any(verdict.doubled for verdict in found), found


def test_a_server_that_answers_before_it_commits_is_caught(trainers, servers, tmp_path):
    found = kill_often(
        trainers, Server(servers, tmp_path / "server"), tmp_path, "server.before_commit", "acknowledge before commit"
    )
    assert any(verdict.went_back or verdict.acknowledged_and_lost for verdict in found), found


@pytest.mark.parametrize("fault", ["", "no checksum"])
def test_a_spool_that_does_not_check_its_frames_is_caught(trainers, servers, tmp_path, fault):
    server = Server(servers, tmp_path / "server")
    server.start()
    folder, log = tmp_path / "victim", str(tmp_path / "victim.log")
    away = {"folder": str(folder), "url": "http://127.0.0.1:9", "token": server.token, "log": log}
    pid = trainers.start("train", **away, steps=ENDLESS)
    wait_until("sixty steps", lambda: steps_of(folder) > 60)
    trainers.kill(pid)
    path = min((folder / ".lossguard").glob("spool/*/*.seg"))
    data = bytearray(path.read_bytes())
    place = list(scan(bytes(data), 1))[9]
    data[place.end - 10] ^= 1
    path.write_bytes(data)
    assert trainers.wait(trainers.start("sync", **(away | {"url": server.url}), fault=fault)) == 0
    stored = server.stored()
    (life,) = lives_of(folder)
    kept = stored[life.incarnation]
    life.died_at = life.calls[-1][3]
    found = judge(life, kept, known, SERIES, told=kept.dropped)
    assert (found.invented > 0) == bool(fault)
    assert found.is_clean == (not fault)
    assert kept.dropped == (0 if fault else 1)

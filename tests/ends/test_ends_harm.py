"""Forks, garbage, dying threads, full and stuck disks, long outages: nothing of it holds up the training, and losses are told."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ends_kit import LIMIT_SECONDS, ROOT, environment
from figures import patience

FORKS = int(os.environ.get("ENDS_FORKS", "200"))
RECORDS = int(os.environ.get("ENDS_RECORDS", "200000"))
"""The whole figures are a thousand and a million; they take longer than a change has to wait."""
HARM = Path(__file__).with_name("ends_harm.py")


def begin(what: str, folder: Path, url: str, *more: object, token: str = "t") -> subprocess.Popen:
    # a thread that is made to die may die with a file open, which is the planted death's doing and not ours
    warnings = ["-W", "error", *(["-W", "ignore::ResourceWarning"] if what == "threads" else [])]
    command = [sys.executable, *warnings, str(HARM), what, str(folder), url, token, *map(str, more)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment(), cwd=ROOT, stdout=pipe, stderr=pipe, text=True)


def finish(process: subprocess.Popen, seconds: float = 900.0) -> tuple[dict, str]:
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(process.communicate()[1]) from None
    assert process.returncode == 0, err
    assert "Traceback" not in err
    return json.loads(out), err


def harm(what: str, folder: Path, url: str, *more: object, token: str = "t") -> tuple[dict, str]:
    return finish(begin(what, folder, url, *more, token=token))


def points(server, folder: Path, series: str = "train/loss") -> list[dict]:
    return server.ask(f"/api/runs/harm-{folder.name}/points?series={series}&limit=100000")["points"]


def test_b3_a_storm_of_forks_while_the_writer_is_busy_hangs_nobody_and_doubles_nothing(server, tmp_path, figure):
    told, _ = harm("storm", tmp_path, server.url, FORKS, token=server.token)
    figure("F15", f"hangs of {FORKS} forked children that log and leave", told["hung"], at_most=0)
    figure("F15", "longest stall of the parent's log() in the storm", round(told["longest"], 3), at_most=patience(1.0), unit="s")
    run = server.run(f"harm-{tmp_path.name}")
    stored = next(each["count"] for each in run["series"] if each["series"] == "train/loss")
    figure("F15", "records doubled or lost in the storm", abs(stored - told["steps"]), at_most=0)
    assert run["state"] == "finished"
    assert {each["series"] for each in run["series"]} == {"train/loss", "train/grad_norm"}
    assert [segment["segment"] for segment in run["segments"]] == [1]


def test_destructors_that_print_and_log_on_any_thread_deadlock_nothing(server, tmp_path, figure):
    told, _ = harm("garbage", tmp_path, server.url, 4, token=server.token)
    figure(
        "F16", "longest log() with the collector at every turn (4 s)", round(told["longest"], 3), at_most=patience(1.0), unit="s"
    )
    assert told["exit"] < LIMIT_SECONDS
    assert server.run(f"harm-{tmp_path.name}")["state"] == "finished"


DYING = [*((name, "twice") for name in ("sender", "spool", "heartbeat")), ("sender", "until gone"), ("spool", "until gone")]


@pytest.fixture(scope="module")
def dying(server, tmp_path_factory):
    """Trainings whose named thread dies so often, all at the same time."""
    folders = {each: tmp_path_factory.mktemp("-".join(map(str, each))) for each in DYING}
    begun = {each: begin("threads", folders[each], server.url, *each, token=server.token) for each in DYING}
    return {each: (folders[each], *finish(begun[each])) for each in DYING}


@pytest.mark.parametrize("name", ["sender", "spool", "heartbeat"])
def test_a_thread_of_ours_that_dies_is_restarted(server, dying, figure, name):
    folder, told, err = dying[name, "twice"]
    assert f"lossguard-{name}" in told["alive"]
    assert "SystemExit" in err
    run = server.run(f"harm-{folder.name}")
    assert run["state"] == "finished"
    lost = told["steps"] - len(points(server, folder))
    figure("F14", f"steps lost untold, {name} thread dies twice", max(0, lost - run["dropped_records"]), at_most=0)


@pytest.mark.parametrize("name", ["sender", "spool"])
def test_a_thread_that_dies_again_and_again_is_given_up_and_that_is_said(dying, name):
    _, told, err = dying[name, "until gone"]
    assert f"lossguard-{name}" not in told["alive"]
    assert "again and again" in err
    assert told["exit"] < LIMIT_SECONDS


def test_a_full_disk_costs_counted_records_and_is_used_again_when_there_is_space(server, hung, tmp_path, monkeypatch, figure):
    told, err = harm("full", tmp_path, hung)
    assert "cannot be written" in err
    figure("F17", "recovery after space was made", round(told["recovery"], 2), at_most=patience(5.0), unit="s")
    assert told["dropped"] > 0
    assert told["exit"] < LIMIT_SECONDS
    assert server.sync(tmp_path, monkeypatch) == 0
    run = server.run(f"harm-{tmp_path.name}")
    figure("F17", "drops made less drops shown", told["dropped"] - run["dropped_records"], at_most=0, at_least=0)
    assert run["series"][0]["count"] == told["steps"] - told["dropped"]


def test_b2_a_quota_that_is_used_up_keeps_no_run_waiting(server, tmp_path, figure):
    told, err = harm("quota", tmp_path, server.url, token=server.token)
    figure("B2", "exit of a run whose disk takes nothing", round(told["exit"], 2), at_most=LIMIT_SECONDS, unit="s")
    assert "cannot be written" in err
    assert len(points(server, tmp_path)) == told["steps"]
    assert server.run(f"harm-{tmp_path.name}")["state"] == "finished"


def test_a_disk_that_never_answers_holds_up_neither_log_nor_exit(server, tmp_path, figure):
    told, _ = harm("stuck", tmp_path, server.url, token=server.token)
    assert told["is_stuck"]
    figure("F18", "p99 of log(), disk stuck", round(told["p99_us"], 1), at_most=patience(100), unit="us")
    figure("F18", "exit, disk stuck", round(told["exit"], 2), at_most=LIMIT_SECONDS, unit="s")


@pytest.mark.parametrize("disk", ["written", "unwritable"])
def test_memory_is_bounded_over_a_long_outage(hung, tmp_path, figure, disk):
    told, _ = harm("million", tmp_path, hung, RECORDS, disk)
    figure("F19", f"RSS growth, {RECORDS} records offline, disk {disk}", round(told["grown_mib"], 1), at_most=32, unit="MiB")
    assert told["exit"] < LIMIT_SECONDS


def test_the_same_run_started_twice_at_once_is_two_lives_and_nothing_mixes(server, tmp_path_factory, figure):
    mixed = 0
    for _ in range(3):
        folder = tmp_path_factory.mktemp("twice")
        both = [begin("twice", folder, server.url, value, token=server.token) for value in (1.0, 2.0)]
        (folder / "go").touch()
        segments = {value: finish(process)[0]["segment"] for value, process in zip((1.0, 2.0), both, strict=True)}
        found = points(server, folder)
        assert sorted(segments.values()) == [1, 2]
        mixed += sum(segments[point["value"]] != point["segment"] for point in found) + 80 - len(found)
    figure("F22", "points mixed or lost, the same run started twice at once", mixed, at_most=0)

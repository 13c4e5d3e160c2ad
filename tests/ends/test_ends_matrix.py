"""Every way out of a training, with the server up, hung and refusing: what the page says, and how long the end takes."""

import threading
from pathlib import Path

import pytest
from ends_kit import LIMIT_SECONDS, RealServer, refusing_url, run_jobs, until

# way -> exit status, (state, reason) of a run whose end somebody stood around, the same where nobody did
WAYS = {
    "end": (0, ("finished", "finished"), None),
    "raise": (1, ("failed", "Burst"), ("failed", "Burst")),
    "exit": (3, ("failed", "SystemExit 3"), None),
    "int": (-2, ("failed", "KeyboardInterrupt"), ("failed", "KeyboardInterrupt")),
    "stop": (0, ("stopped", "stopped by command"), None),
    "term": (-15, ("failed", "killed"), ("failed", "killed")),
    "kill": (-9, ("failed", "killed"), ("failed", "killed")),
    "os_exit": (7, ("failed", "killed"), ("failed", "killed")),
}
KILLED = ("term", "kill", "os_exit")
SERVERS = ("up", "hung", "refusing")
CASES = [
    (way, state, bare)
    for way in WAYS
    for state in SERVERS
    for bare in (False, True)
    if not (way == "stop" and (state != "up" or bare)) and not (bare and (way in KILLED or state == "hung"))
]


def name_of(way: str, state: str, bare: bool) -> str:
    return f"{way}-{state}{'-bare' if bare else ''}"


@pytest.fixture(scope="module")
def left(server, hung, tmp_path_factory):
    """All trainings, left; the stop is clicked meanwhile."""
    root = tmp_path_factory.mktemp("ends")
    urls = {"up": server.url, "hung": hung, "refusing": refusing_url()}
    jobs = [
        {
            "name": name_of(*case),
            "where": "monitor",
            "way": case[0],
            "bare": case[2],
            "url": urls[case[1]],
            "url_state": case[1],
            "token": server.token,
            "folder": str(root / name_of(*case)),
            "run": f"run-{name_of(*case)}",
        }
        for case in CASES
    ]
    clicking = threading.Thread(target=click_stop, args=(server, "run-stop-up"))
    clicking.start()
    results = run_jobs(root, jobs, at_once=5)
    clicking.join()
    return root, results


def click_stop(server: RealServer, run_id: str) -> None:
    def at_end_of_steps() -> bool:
        known = {run["run_id"]: run for run in server.ask("/api/runs")["runs"]}
        return known.get(run_id, {}).get("step") == 20

    until("the run to be stopped", at_end_of_steps, 60)
    server.ask(f"/api/runs/{run_id}/commands", {"kind": "stop", "seen_segment": 1})


def said(server: RealServer, run_id: str) -> tuple[str, str]:
    run = server.run(run_id)
    return run["state"], run["state_reason"]


@pytest.mark.parametrize(("way", "state", "bare"), CASES)
def test_each_way_out_has_its_state_and_reason_and_adds_no_long_wait(server, left, monkeypatch, figure, way, state, bare):
    root, results = left
    name = name_of(way, state, bare)
    status, around, alone = WAYS[way]
    wanted = alone if bare else around
    result, run_id, folder = results[name], f"run-{name}", root / name
    assert (result["status"], result["out"]) == (status, ""), result["err"]
    assert result["seconds"] < LIMIT_SECONDS
    assert_nothing_of_ours_in(result["err"], way)
    if state == "up" and (wanted is None or way in KILLED):  # nothing was said: the server calls it lost
        until("lost", lambda: said(server, run_id)[0] == "lost")
    if way in KILLED or state != "up":
        assert server.sync(folder, monkeypatch) == 0
    if wanted is not None:
        assert said(server, run_id) == wanted
    points = server.ask(f"/api/runs/{run_id}/points?series=train/loss")["points"]
    assert [point["step"] for point in points] == list(range(1, 21))
    assert not list((folder / ".lossguard" / "spool").iterdir())


def assert_nothing_of_ours_in(err: str, way: str) -> None:
    assert "internal error" not in err
    assert ("Traceback" in err) == (way in {"raise", "int"}), err
    assert "secret data" not in "".join(line for line in err.splitlines() if line.startswith("lossguard:"))


def test_a_killed_run_that_is_lost_becomes_failed_once_however_often_its_folder_is_read(server, left, monkeypatch):
    root, _ = left
    for _ in range(2):
        server.sync(root / "kill-up", monkeypatch)
    kinds = [event["type"] for event in server.events("run-kill-up") if event["type"].startswith("run.")]
    assert kinds == ["run.started", "run.segment_started", "run.lost", "run.failed"]


def test_the_longest_end(left, figure):
    _, results = left
    for state in SERVERS:
        longest = max(result["seconds"] for name, result in results.items() if f"-{state}" in name)
        figure("R49", f"longest end of a training, server {state}", round(longest, 2), at_most=LIMIT_SECONDS, unit="s")
    assert Path(left[0]).exists()

"""Backtests as jobs: real worker processes, progress, cancelling, deaths of workers and servers."""

import json
import os
import signal
import struct
import sys
from datetime import timedelta
from pathlib import Path

import backtest_jobs as kit
import forked
import httpx2
import pytest
import sqlalchemy as sa
from backtest_kit import until
from served import Served, begin

import server.backtesting as backtesting
from server.api.backtests import MAX_LOG_BYTES
from server.domain import backtests as domain
from server.store.tables import backtests as table

NAN = float("nan")
ROOT = Path(__file__).resolve().parents[2]


def test_stored_runs_and_logs_are_judged_together(served):
    norms = [1.0] * 40 + [50.0] * 3 + [1.0] * 20
    begin(served, "run-a", {"train/loss": [3.0] * 60 + [NAN] * 3, "train/grad_norm": norms})
    found = kit.result(served, pack=True, runs={"kind": "picked", "run_ids": ["run-a"]}, logs=kit.logs(1))
    run, log = found["runs"]
    assert (run["run_id"], run["log"], run["outcome"], run["ended_step"]) == ("run-a", None, "dead", 61)
    assert (log["run_id"], log["log"], log["outcome"], log["series"]) == (None, 1, "healthy", ["train/grad_norm", "train/loss"])
    assert run["verdict"] == "early"
    with served.client("operator") as client:
        alerts = [each for each in client.get("/api/runs/run-a").json()["alerts"] if each["firing_step"] is not None]
    fields = (
        "rule_id",
        "series",
        "rank",
        "segment",
        "severity",
        "onset_step",
        "firing_step",
        "resolved_step",
        "value",
        "limit",
        "text",
    )
    shown = {tuple(str(each[name]) for name in fields) for each in alerts if not each["series"].startswith("run/")}
    assert shown == {tuple(str(each[name]) for name in fields) for each in run["episodes"]}
    assert any(each["value"] == "NaN" for each in run["episodes"])


def test_a_rule_is_compared_with_the_one_that_is_saved(served):
    log = {"name": "a", "text": kit.csv_log(200, {100})}
    lower = {**kit.THRESHOLD, "settings": {"above": 60}}
    summary = kit.result(served, rule=lower, rule_id="grad-norm-over-10", logs=[log])["summary"]
    assert (summary["false_alarms"], summary["false_alarms_before"]) == (0, 1)
    fresh = kit.result(served, rule=lower, logs=[log])["summary"]
    assert fresh["false_alarms_before"] is None


def test_a_rule_for_one_project_leaves_other_runs_out_and_no_log(one_served):
    begin(one_served, "run-b")
    elsewhere = {**kit.THRESHOLD, "scope": {"kind": "project", "name": "elsewhere"}}
    found = kit.result(one_served, rule=elsewhere, runs={"kind": "all"}, logs=[{"name": "a", "text": kit.csv_log(50, {20})}])
    assert [(each["run_id"], each["episodes_total"]) for each in found["runs"]] == [(None, 1)]


def test_a_rule_on_a_series_that_a_run_has_not_logged_says_which_it_has(served):
    begin(served, "run-d", {"train/loss": [2.0] * 30, "train/grad_norm": [1.0] * 30, "eval/loss": [2.0] * 30})
    (run,) = kit.result(served, rule={**kit.THRESHOLD, "series": "train/los"}, runs={"kind": "picked", "run_ids": ["run-d"]})[
        "runs"
    ]
    assert (run["verdict"], run["outcome"]) == ("not_judged", "unknown")
    assert run["problem"] == "no series train/los; there are eval/loss, train/grad_norm, train/loss"


def test_a_backtest_over_nothing_is_refused(served):
    begin(served, "run-c")
    elsewhere = {**kit.THRESHOLD, "scope": {"kind": "project", "name": "elsewhere"}}
    for asked, says in (
        ({"pack": True, "runs": {"kind": "picked", "run_ids": ["run-c", "run-x", "run-y"]}}, "there is no run run-x, run-y"),
        ({"pack": True, "runs": {"kind": "picked", "run_ids": []}}, "nothing to judge"),
        ({"pack": True, "runs": {"kind": "picked", "run_ids": ["run-x"]}, "logs": kit.logs(1)}, "there is no run run-x"),
        ({"rule": elsewhere, "runs": {"kind": "all"}}, "nothing to judge"),
        ({"pack": True, "runs": {"kind": "recent", "days": 1e-9}}, "nothing to judge"),
        ({"pack": True, "runs": {"kind": "none"}}, "nothing to judge"),
    ):
        answer = kit.post(served, **asked)
        assert (answer.status_code, says in answer.json()["detail"]) == (422, True), answer.text


def test_a_log_is_drawn_in_the_octets_of_a_run(one_served):
    job = kit.begun(one_served, pack=True, logs=[{"name": "a", "text": "step,loss\n1,2\n2,nan\n2,1\n3,inf\n"}])
    kit.ended(one_served, job)
    with one_served.client("operator") as client:
        answer = client.get(f"/api/backtests/{job}/logs/1/points", params={"series": "train/loss"})
        missing = client.get(f"/api/backtests/{job}/logs/1/points", params={"series": "train/other"})
        beyond = client.get(f"/api/backtests/{job}/logs/2/points", params={"series": "train/loss"})
    (length,) = struct.unpack_from("<I", answer.content)
    header = json.loads(answer.content[4 : 4 + length])
    numbers = struct.unpack_from(f"<{2 * header['traces'][0]['n']}d", answer.content, 4 + length)
    assert (header["series"], header["nonfinite"][0]["value"]) == ("train/loss", "Infinity")
    assert (numbers[:3], numbers[3:5]) == ((1.0, 2.0, 3.0), (2.0, 1.0))
    assert (missing.status_code, beyond.status_code) == (404, 404)


HOSTILE = [
    ("no step", "loss\n1\n", "no step column"),
    ("a word", "step,loss\n1,2\n2,x\n", "line 3"),
    ("deep", "[" * 50_000, "nested too deep"),
    ("endless digits", '{"step": 1, "loss": ' + "1" * 10_000 + "}", "digits"),
    ("binary", "\ufffd\ufffd\x01\x02", "no step column"),
    ("lists", "[[]]", "not an object"),
    ("many columns", "step," + ",".join(f"a{n}" for n in range(5_000)) + "\n1" + ",1" * 5_000, "more than 200 series"),
]


def test_a_hostile_log_spoils_only_itself(one_served):
    given = [{"name": name, "text": text} for name, text, _ in HOSTILE] + kit.logs(1)
    runs = {each["name"]: each for each in kit.result(one_served, pack=True, logs=given)["runs"]}
    for name, _, says in HOSTILE:
        assert (runs[name]["verdict"], says in runs[name]["problem"]) == ("not_judged", True), runs[name]["problem"]
    assert runs["log 0"]["problem"] == ""


def test_progress_rises_to_the_total(served):
    job, seen = kit.begun(served, pack=True, logs=kit.logs(12)), []
    final = kit.when(served, job, lambda now: seen.append((now["done"], now["total"])))
    assert (final["state"], final["done"], final["total"], final["points"]) == ("succeeded", 12, 12, 12 * 2_000)
    dones = [done for done, _ in seen]
    assert dones == sorted(dones)
    assert final["seconds"] > 0


def test_a_cancelled_backtest_stops_in_the_middle_and_the_next_one_runs(served):
    job = kit.begun(served, pack=True, logs=kit.logs(40))
    kit.when(served, job, lambda now: now["done"] >= 1)
    with served.client("operator") as client:
        cancelled = client.delete(f"/api/backtests/{job}").json()
    assert cancelled["state"] == "cancelled"
    assert cancelled["done"] < 40
    assert kit.result(served, pack=True, logs=kit.logs(1))["runs"][0]["problem"] == ""
    assert (kit.look(served, job)["state"], kit.look(served, job)["result"]) == ("cancelled", None)
    with served.client("operator") as client:
        assert client.delete(f"/api/backtests/{job}").json()["state"] == "cancelled"  # once more changes nothing


def test_a_run_is_judged_again_when_its_process_is_killed_once(one_served):
    job = kit.begun(one_served, pack=True, logs=kit.logs(6, rows=3_000))
    kit.when(one_served, job, lambda now: now["done"] >= 1)
    kit.a_worker(one_served).kill()
    found = kit.ended(one_served, job)
    assert found["state"] == "succeeded"
    assert [each["problem"] for each in found["result"]["runs"]] == [""] * 6


def test_a_run_whose_process_dies_twice_is_told_so_and_the_others_are_judged(one_served):
    job = kit.begun(one_served, pack=True, logs=kit.logs(2, rows=20_000))
    killed = set()

    def kill_first():
        if kit.look(one_served, job)["done"] or len(killed) > 1:
            return True
        killed.update(each.pid for each in kit.workers(one_served) if each.pid not in killed and not each.kill())
        return False

    until(kill_first, seconds=90, every=0.2)
    runs = kit.ended(one_served, job)["result"]["runs"]
    assert "not_judged" in {each["verdict"] for each in runs}
    (problem,) = [each["problem"] for each in runs if each["problem"]]
    assert problem == "the process that judged it died twice (killed by SIGKILL)"


def test_a_process_that_hangs_is_given_up(one_served, monkeypatch):
    monkeypatch.setattr(backtesting, "TASK_SECONDS", 3.0)
    job = kit.begun(one_served, pack=True, logs=kit.logs(2, rows=5_000))
    until(lambda: kit.look(one_served, job)["state"] == "running")
    os.kill(kit.a_worker(one_served).pid, signal.SIGSTOP)
    found = kit.ended(one_served, job)
    assert (found["state"], found["done"]) == ("succeeded", 2)
    assert any("took more than" in each["problem"] for each in found["result"]["runs"])


def test_processes_go_when_there_is_nothing_to_do(one_served, monkeypatch):
    kit.result(one_served, pack=True, logs=kit.logs(1))
    assert len(kit.workers(one_served)) <= backtesting.MOST_PROCESSES
    assert all(each.nice() >= 10 for each in kit.workers(one_served))
    monkeypatch.setattr(backtesting, "IDLE_SECONDS", 0.1)
    until(lambda: not kit.workers(one_served))


@pytest.mark.parametrize(
    ("asked", "status", "says"),
    [
        ({}, 422, "give a rule"),
        ({"pack": True}, 422, "nothing to judge"),
        ({"pack": True, "runs": {"kind": "some"}}, 422, "runs.kind"),
        ({"pack": True, "runs": {"kind": "recent", "days": -1}}, 422, "runs.days"),
        ({"rule": {"name": "a"}, "runs": {"kind": "all"}}, 422, "series"),
        ({"rule": {**kit.THRESHOLD, "settings": {"abov": 1}}, "runs": {"kind": "all"}}, 422, "settings.abov"),
        ({"pack": True, "logs": [{"name": "", "text": "a"}]}, 422, "logs.0.name"),
        ({"pack": True, "logs": [{"name": "a", "text": "x" * MAX_LOG_BYTES}]}, 413, "larger than"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(one_served, asked, status, says):
    answer = kit.post(one_served, **asked)
    assert (answer.status_code, says in answer.text) == (status, True), answer.text


def test_who_may_not_is_refused(one_served):
    assert kit.post(one_served, who="agent", pack=True, runs={"kind": "all"}).status_code == 403
    assert kit.post(one_served, who=None, pack=True, runs={"kind": "all"}).status_code == 401
    with one_served.client("operator") as client:
        assert client.get("/api/backtests/none").status_code == 404
        assert client.delete("/api/backtests/none").status_code == 404


def test_more_than_so_many_at_once_are_refused_and_old_ones_forgotten(served, monkeypatch):
    monkeypatch.setattr(domain, "MOST_WAITING", 2)
    monkeypatch.setattr(domain, "MOST_KEPT", 3)
    many = [kit.post(served, pack=True, logs=kit.logs(40)) for _ in range(3)]
    assert [each.status_code for each in many] == [202, 202, 409]
    with served.client("operator") as client:
        for each in many[:2]:
            client.delete(f"/api/backtests/{each.json()['backtest_id']}")
    for _ in range(3):
        kit.result(served, pack=True, logs=kit.logs(1, rows=10))
    with served.client("operator") as client:
        assert len(client.get("/api/backtests").json()["backtests"]) == 3
        assert client.get(f"/api/backtests/{many[0].json()['backtest_id']}").status_code == 404


def test_a_backtest_goes_on_after_a_restart_of_the_server(new_database_url, tmp_path_factory):
    own_settings = kit.settings(new_database_url, tmp_path_factory, "sqlite")
    with Served(own_settings) as first:
        job = kit.begun(first, pack=True, logs=kit.logs(12))
        kit.when(first, job, lambda now: now["done"] >= 1)
        mine = kit.workers(first)
    assert mine
    assert not any(each.is_running() for each in mine)
    with Served(own_settings) as second:
        found = kit.ended(second, job)
    assert (found["state"], found["done"], len(found["result"]["runs"])) == ("succeeded", 12, 12)


def test_a_backtest_is_taken_up_again_when_its_server_has_died_and_given_up_at_last(served, monkeypatch):
    monkeypatch.setattr(domain, "MOST_ATTEMPTS", 2)
    job = kit.begun(served, pack=True, logs=kit.logs(8))
    kit.when(served, job, lambda now: now["state"] == "running")
    died = {"heard_at": served.context.now() - timedelta(hours=1), "taken_by": "s_dead"}
    _set(served, job, died)
    found = kit.ended(served, job)
    assert (found["state"], found["done"]) == ("succeeded", 8)
    hopeless = kit.begun(served, pack=True, logs=kit.logs(30))
    kit.when(served, hopeless, lambda now: now["state"] == "running")
    _set(served, hopeless, died | {"attempts": 2})
    found = kit.ended(served, hopeless)
    assert found["state"] == "failed"
    assert "ended 2 times while it worked on this" in found["problem"]


def _set(served, job, values):
    served.context.database.writer.submit(
        lambda c: c.execute(sa.update(table).where(table.c.backtest_id == job).values(values)) and None
    )


def test_any_server_over_the_same_database_answers_and_cancels(new_database_url, tmp_path_factory):
    shared = kit.settings(new_database_url, tmp_path_factory, "postgresql")
    with Served(shared) as one, Served(shared) as other:
        job = kit.begun(one, pack=True, logs=kit.logs(40))
        kit.when(other, job, lambda now: now["done"] >= 1)
        with other.client("operator") as client:
            assert client.delete(f"/api/backtests/{job}").json()["state"] == "cancelled"
        again = kit.begun(other, pack=True, logs=kit.logs(2))
        assert kit.ended(one, again)["state"] == "succeeded"


def test_a_server_that_is_killed_leaves_no_process_and_the_next_one_ends_its_backtest(tmp_path):
    """On SQLite nobody else can have the job, so it is taken up at once."""
    first = _server(tmp_path)
    try:
        job = _ask(first, "POST", "/api/backtests", {"pack": True, "logs": kit.logs(10, rows=1_500)})["backtest_id"]
        until(lambda: _ask(first, "GET", f"/api/backtests/{job}")["done"] >= 1, seconds=60)
        before = kit.children_of(first["process"].pid)
        assert before
        first["process"].kill()
        first["process"].wait()
        until(lambda: not any(each.is_running() for each in before), seconds=30)
        second = _server(tmp_path)
        found = until(lambda: _over(second, job), seconds=90)
        assert (found["state"], found["done"]) == ("succeeded", 10)
        second["process"].terminate()
        assert second["process"].wait(20) is not None
    finally:
        first["process"].kill()
        first["process"].wait()


def _server(folder):
    ready = folder / "ready.json"
    ready.unlink(missing_ok=True)
    variables = {**os.environ, "LOSSGUARD_DATA_DIR": str(folder / "data"), "PYTHONPATH": str(ROOT)}
    variables.pop("LOSSGUARD_DATABASE_URL", None)
    command = [sys.executable, "-m", "server", "serve", "--port", "0", "--ready-file", str(ready)]
    process = forked.popen(command, env=variables, out=folder / "server.log")
    until(ready.exists, seconds=60)
    made = [sys.executable, "-m", "server", "token", "create", "--role", "operator", "--name", "test"]
    token = forked.output(made, env=variables)
    return {"process": process, "url": json.loads(ready.read_text())["url"], "token": token}


def _ask(served, method, path, body=None):
    headers = {"Authorization": f"Bearer {served['token']}"}
    answer = httpx2.request(method, served["url"] + path, json=body, headers=headers, timeout=30, trust_env=False)
    assert answer.status_code < 300, answer.text
    return answer.json()


def _over(served, job):
    found = _ask(served, "GET", f"/api/backtests/{job}")
    return found if found["state"] in kit.OVER else None

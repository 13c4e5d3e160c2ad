"""Backtests as a person asks for them, and the real processes that work on them."""

from contextlib import suppress

import psutil
from backtest_kit import until

from server.settings import Settings

THRESHOLD = {"name": "over 10", "series": "train/grad_norm", "detector": "threshold", "settings": {"above": 10}}
OVER = ("succeeded", "failed", "cancelled")


def settings(new_database_url, tmp_path_factory, backend):
    return Settings(data_dir=tmp_path_factory.mktemp("data"), database_url=new_database_url(backend), port=0)


def csv_log(rows, spikes=()):
    """A log of `rows` steps; the gradient norm is 50 at `spikes`, else 1."""
    lines = [f"{step},{3 - step / rows:.6g},{50 if step in spikes else 1}" for step in range(1, rows + 1)]
    return "step,loss,grad_norm\n" + "\n".join(lines) + "\n"


def logs(count, rows=1_000):
    text = csv_log(rows, {rows // 2})
    return [{"name": f"log {number}", "text": text} for number in range(count)]


def post(served, who="operator", **asked):
    with served.client(who) as client:
        return client.post("/api/backtests", json=asked)


def begun(served, **asked):
    answer = post(served, **asked)
    assert answer.status_code == 202, answer.text
    return answer.json()["backtest_id"]


def look(served, backtest_id):
    with served.client("operator") as client:
        answer = client.get(f"/api/backtests/{backtest_id}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def when(served, backtest_id, holds):
    """The job as soon as it `holds`, or is over."""

    def seen():
        job = look(served, backtest_id)
        return job if holds(job) or job["state"] in OVER else None

    return until(seen, seconds=90)


def ended(served, backtest_id):
    return when(served, backtest_id, lambda job: False)


def result(served, **asked):
    job = ended(served, begun(served, **asked))
    assert job["state"] == "succeeded", job
    return job["result"]


def workers(served):
    """The processes that judge for a server of this test."""
    found = []
    for pid in served.context.wake_backtests.__self__.pids:
        with suppress(psutil.Error):
            found.append(psutil.Process(pid))
    return found


def a_worker(served):
    """One of them."""
    return until(lambda: next(iter(workers(served)), None))


def children_of(pid):
    """The same of a server in a process of its own."""
    return [each for each in psutil.Process(pid).children() if any("backtest_process" in part for part in each.cmdline())]

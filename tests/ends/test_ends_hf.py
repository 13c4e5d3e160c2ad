"""The same ends in a real Trainer; what the page says meanwhile; and the guard without a server."""

import threading

import pytest
from ends_kit import LIMIT_SECONDS, RealServer, refusing_url, run_jobs, until

# where, way -> exit status, state and reason
ENDS = {
    ("hf", "end"): (0, "finished", "finished"),
    ("hf", "raise"): (1, "failed", "Burst"),
    ("hf", "exit"): (3, "failed", "SystemExit 3"),
    ("hf", "int"): (-2, "failed", "KeyboardInterrupt"),
    ("hf", "kill"): (-9, "failed", "killed"),
    ("callback", "end"): (0, "finished", "finished"),
    ("callback", "raise"): (1, "failed", "Burst"),
    ("callback", "exit"): (3, "failed", "left before its end"),
    ("callback", "int"): (-2, "failed", "KeyboardInterrupt"),
    ("callback", "kill"): (-9, "failed", "killed"),
}
OTHERS = [("slow", "slow"), ("held", "held"), ("dead", "dead"), ("again", "again"), ("loader", "fork"), ("loader", "spawn")]


class Watcher(threading.Thread):
    """Reads the runs as the page does, and keeps every state and phase it saw."""

    def __init__(self, server: RealServer, *run_ids: str) -> None:
        super().__init__(daemon=True)
        self.server, self.run_ids = server, run_ids
        self.seen = {run_id: set() for run_id in run_ids}
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.25):  # each answer costs the server something, and what is looked for lasts 4.5 s
            for found in self.server.ask("/api/runs")["runs"]:
                if found["run_id"] in self.seen:
                    self.seen[found["run_id"]].add((found["state"], found["phase"]))


@pytest.fixture(scope="module")
def trained(server, tmp_path_factory):
    root, refusing = tmp_path_factory.mktemp("hf"), refusing_url()
    jobs = [
        {
            "name": f"{where}-{way}",
            "where": where,
            "way": way,
            "url": refusing if where == "dead" else server.url,
            "url_state": "up",
            "token": server.token,
            "folder": str(root / f"{where}-{way}"),
            "run": f"{where}-{way}",
        }
        for where, way in [*OTHERS, *ENDS]
    ]
    watcher = Watcher(server, "slow-slow", "held-held")
    watcher.start()
    results = run_jobs(root, jobs, at_once=4)
    watcher.done.set()
    watcher.join()
    return root, results, watcher.seen


@pytest.mark.parametrize(("where", "way"), ENDS)
def test_each_way_out_of_a_trainer_has_its_state_and_reason(server, trained, monkeypatch, where, way):
    root, results, _ = trained
    status, state, reason = ENDS[where, way]
    name = f"{where}-{way}"
    assert results[name]["status"] == status, results[name]["err"]
    if way != "end":  # there the last checkpoint is looked at first
        assert results[name]["seconds"] < LIMIT_SECONDS
    assert "error of LossGuard" not in results[name]["err"]
    if way == "kill":
        until("lost", lambda: server.run(name)["state"] == "lost")
        assert server.sync(root / name, monkeypatch) == 0
    run = server.run(name)
    assert (run["state"], run["state_reason"]) == (state, reason)
    assert run["step"] == (6 if way == "end" else 4)


def test_a_killed_training_that_is_resumed_goes_on_and_says_how_the_one_before_ended(server, trained, tmp_path_factory):
    """The next start in the folder reads the journal; the run stays running meanwhile."""
    root, _, _ = trained
    folder = root / "hf-kill"
    job = {"name": "next", "where": "hf", "way": "end", "url": server.url, "url_state": "up", "token": server.token}
    run_jobs(tmp_path_factory.mktemp("next"), [{**job, "folder": str(folder), "run": "hf-kill"}])
    assert server.run("hf-kill")["state"] == "finished"
    kinds = [event["type"] for event in server.events("hf-kill")]
    assert kinds.count("run.failed") + kinds.count("run.incarnation_ended") == 1


def test_heartbeats_go_on_with_the_phase_named_through_evaluation_save_and_a_step_that_blocks(server, trained):
    _, results, seen = trained
    assert results["slow-slow"]["status"] == 0, results["slow-slow"]["err"]
    states, phases = ({each[part] for each in seen["slow-slow"]} for part in (0, 1))
    assert "lost" not in states
    assert {"training", "evaluating", "saving"} <= phases
    assert server.run("slow-slow")["state"] == "finished"


def test_a_held_run_is_said_to_hold_and_is_not_lost(server, trained):
    _, results, seen = trained
    assert results["held-held"]["status"] == 0, results["held-held"]["err"]
    assert ("running", "holding") in seen["held-held"]
    assert not any(state == "lost" for state, _ in seen["held-held"])
    assert server.run("held-held")["state"] == "stopped"


def test_a_run_stopped_by_its_guard_while_the_server_was_away_says_so_later(server, trained, monkeypatch):
    root, results, _ = trained
    assert results["dead-dead"]["status"] == 0, results["dead-dead"]["err"]
    assert results["dead-dead"]["seconds"] < LIMIT_SECONDS
    assert server.sync(root / "dead-dead", monkeypatch) == 0
    run = server.run("dead-dead")
    assert run["state"] == "stopped"
    assert "not finite at step 3" in run["state_reason"]
    stopped = next(event for event in server.events("dead-dead") if event["type"] == "run.stopped")
    assert stopped["data"]["text"].startswith("Stopped by guard: ")


def test_a_cell_that_is_run_again_ends_the_run_that_it_left(server, trained):
    _, results, _ = trained
    assert results["again-again"]["status"] == 0, results["again-again"]["err"]
    left, done = server.run("again-again-raise"), server.run("again-again-end")
    assert (left["state"], left["state_reason"], left["step"]) == ("failed", "left before its end", 4)
    assert done["state"] == "finished"


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_b3_workers_of_a_data_loader_made_after_the_start_do_not_deadlock(server, trained, figure, way):
    _, results, _ = trained
    assert results[f"loader-{way}"]["status"] == 0, results[f"loader-{way}"]["err"]
    points = server.ask(f"/api/runs/loader-{way}/points?series=train/loss")["points"]
    assert [point["step"] for point in points] == list(range(1, len(points) + 1))
    figure("B3", f"steps of a data loader with workers made by {way}", len(points), at_least=40 if way == "fork" else 8)
    assert [each["series"] for each in server.run(f"loader-{way}")["series"]] == ["train/loss"]

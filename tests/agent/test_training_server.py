"""The real Trainer, the real agent and the real server on SQLite, over loopback."""

import math
import sys
from pathlib import Path

import pytest
import torch
from training_kit import At, Book, HalfTrainer, trainer, until

from trainer_agent.hf import guarded_train
from trainer_agent.policy import Policy

sys.path.append(str(Path(__file__).parents[1] / "api"))
from served import Served

from server.settings import Settings


@pytest.fixture
def person(served, request):
    with Person(served, request.node.name[:40]) as person:
        yield person


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    with Served(Settings(data_dir=folder, database_url=f"sqlite:///{folder}/lossguard.db", port=0)) as served:
        yield served


class Person:
    """Reads the page's data and clicks, for one run."""

    def __init__(self, served: Served, run_id: str) -> None:
        self.client, self.run_id = served.client("operator"), run_id

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def run(self) -> dict:
        answer = self.client.get(f"/api/runs/{self.run_id}")
        return answer.json() if answer.status_code == 200 else {"checkpoints": [], "commands": [], "segments": [], "alerts": []}

    def is_sound(self, name: str) -> bool:
        return any(c["checkpoint_id"] == name and c["state"] == "sound" for c in self.run()["checkpoints"])

    def click(self, kind: str, **more) -> None:
        body = {"kind": kind, "seen_segment": self.run()["segment"], **more}
        answer = self.client.post(f"/api/runs/{self.run_id}/commands", json=body, headers={"Idempotency-Key": "k1"})
        assert answer.status_code == 202, answer.text
        until(lambda: self.run()["commands"][0]["state"] != "queued")


def test_a_click_on_roll_back_brings_the_training_back_and_it_goes_on(served, person, tmp_path):
    book = Book()

    def click(**_):
        until(lambda: person.is_sound("checkpoint-4"))
        person.click("rollback", checkpoint_id="checkpoint-4", data="skip", max_grad_norm=0.5)

    training = trainer(tmp_path, book, At(7, click), kind=HalfTrainer, fp16=True, max_steps=9, save_steps=2)
    guarded_train(training, url=served.url, token=served.tokens["agent"], run_id=person.run_id)
    assert book.steps == [*range(1, 8), *range(5, 10)]
    until(lambda: person.run().get("state") == "finished")
    run = person.run()
    (command,) = run["commands"]
    assert [entry["state"] for entry in command["history"]] == ["queued", "delivered", "running", "succeeded"]
    assert [(s["segment"], s["from_step"], s["cause"]) for s in run["segments"]] == [(1, 0, "start"), (2, 4, "rollback")]
    assert run["segments"][1]["attributes"]["max_grad_norm"] == 0.5
    assert run["attributes"]["precision"] == "fp16"


def test_a_click_on_stop_ends_the_training_with_a_checkpoint(served, person, tmp_path):
    book = Book()
    training = trainer(tmp_path, book, At(3, lambda **_: person.click("stop")), max_steps=500)
    guarded_train(training, url=served.url, token=served.tokens["agent"], run_id=person.run_id)
    assert book.steps == [1, 2, 3]
    until(lambda: person.run().get("state") == "stopped")
    run = person.run()
    assert run["commands"][0]["state"] == "succeeded"
    assert [(c["checkpoint_id"], c["step"]) for c in run["checkpoints"]] == [("checkpoint-3", 3)]


def test_one_nan_loss_behind_the_nan_filter_raises_the_alert_of_its_very_step(served, person, tmp_path, figure):
    class Burst(At):
        """One weight is NaN for one step."""

        def on_step_end(self, args, state, control, model=None, **kwargs):
            if state.global_step == self.step:
                model.transformer.wpe.weight.data.copy_(self.kept)

    def poison(model=None, **_):
        burst.kept = model.transformer.wpe.weight.detach().clone()
        with torch.no_grad():
            model.transformer.wpe.weight[0, 0] = math.nan

    burst = Burst(5, poison)
    training = trainer(tmp_path, burst, max_steps=8, kind=HalfTrainer, fp16=True)
    assert training.args.logging_nan_inf_filter
    guarded_train(training, Policy.watch_only(), url=served.url, token=served.tokens["agent"], run_id=person.run_id)
    until(lambda: person.run().get("state") == "finished")
    alert = next(a for a in person.run()["alerts"] if a["series"] == "train/loss" and a["value"] == "NaN")
    assert (alert["onset_step"], alert["firing_step"]) == (5, 5)
    figure(
        "F24", "steps from a NaN loss behind the framework's filter to its alert", alert["firing_step"] - 5, at_most=1, at_least=0
    )
    points = person.client.get(f"/api/runs/{person.run_id}/points", params={"series": "train/loss"}).json()["points"]
    assert [p["step"] for p in points if p["value"] == "NaN"] == [5]

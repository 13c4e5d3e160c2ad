"""The examples as people run them, against a real server, and stopped, rolled back and killed."""

import math
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import forked
import pytest

sys.path.append(str(Path(__file__).parents[1] / "api"))
from served import Served

from server.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ("nanogpt_loop", "accelerate_loop")
SECONDS = 500.0
ENOUGH = {"nanogpt_loop": ("--steps", "60"), "accelerate_loop": ("--epochs", "2")}
ENDLESS = {"nanogpt_loop": ("--steps", "1000000", "--slow", "0.02"), "accelerate_loop": ("--epochs", "100000", "--slow", "0.01")}
FIRST_SAVE = {"nanogpt_loop": 25, "accelerate_loop": 20}
IN_PLACE_OF = "# LossGuard, in place of: "


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    with Served(Settings(data_dir=folder, database_url=f"sqlite:///{folder}/lossguard.db", port=0)) as served:
        yield served


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.1)


@dataclass
class Example:
    """One run of an example, in its folder, over any number of processes."""

    served: Served
    client: object
    script: Path
    folder: Path
    process: subprocess.Popen[bytes] | forked.Process | None = None

    def start(self, *options: str, alone: bool = False) -> "Example":
        """`alone`: by an interpreter of its own, from its first import to the last thing it does."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
        ours = {
            "LOSSGUARD_URL": self.served.url,
            "LOSSGUARD_TOKEN": self.served.tokens["agent"],
            "LOSSGUARD_NAME": self.folder.name,
        }
        variables = kept | ours | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, str(self.script), "--out", str(self.folder), *options]
        self.log.unlink(missing_ok=True)
        if alone:
            with self.log.open("wb") as log:
                self.process = subprocess.Popen(command, env=variables, cwd=ROOT, stdout=log, stderr=log)
        else:
            self.process = forked.popen(command, env=variables, out=self.log)
        return self

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")

    def wait(self) -> tuple[int, str]:
        code, said = self.process.wait(SECONDS), self.log.read_text()
        assert "an error of LossGuard" not in said, said
        return code, said

    def weights(self) -> str:
        code, said = self.wait()
        assert code == 0, said
        return re.search(r"the weights are (\w+)", said)[1]

    @property
    def run(self) -> dict:
        runs = [run for run in self.client.get("/api/runs").json()["runs"] if run["name"] == self.folder.name]
        if not runs:
            assert self.process.poll() is None, self.log.read_text()
            return {"state": "", "checkpoints": [], "commands": [], "alerts": [], "segments": [], "step": None}
        return self.client.get(f"/api/runs/{runs[0]['run_id']}").json()

    def until(self, holds: Callable[[dict], object]) -> dict:
        until(lambda: holds(self.run))
        return self.run

    def points(self, series: str, segment: int | None = None) -> list[dict]:
        query = {"series": series}
        points = self.client.get(f"/api/runs/{self.run['run_id']}/points", params=query).json()["points"]
        return [point for point in points if segment in (None, point["segment"])]

    def click(self, kind: str, **more: object) -> None:
        run = self.run
        body, key = {"kind": kind, "seen_segment": run["segment"], **more}, {"Idempotency-Key": uuid.uuid4().hex}
        answer = self.client.post(f"/api/runs/{run['run_id']}/commands", json=body, headers=key)
        assert answer.status_code == 202, answer.text


@pytest.fixture
def example(served, tmp_path) -> Iterator[Callable[..., Example]]:
    started = []
    with served.client("operator") as client:

        def make(name: str | Path, folder: str = "") -> Example:
            script = name if isinstance(name, Path) else ROOT / "examples" / f"{name}.py"
            started.append(Example(served, client, script, tmp_path / (folder or f"{script.stem}-{uuid.uuid4().hex[:6]}")))
            return started[-1]

        yield make
        for each in started:
            if each.process is not None and each.process.poll() is None:
                each.process.kill()
                each.process.wait()


def plain(name: str) -> list[str]:
    """The example as it was before LossGuard: the marked lines are gone, or as they were."""
    lines = []
    for line in (ROOT / "examples" / f"{name}.py").read_text().splitlines():
        if IN_PLACE_OF in line:
            lines.append(line[: len(line) - len(line.lstrip())] + line.split(IN_PLACE_OF)[1])
        elif "# LossGuard" not in line:
            lines.append(line)
    return lines


def is_sound(run: dict, step: int) -> bool:
    return any(each["step"] == step and each["state"] == "sound" for each in run["checkpoints"])


@pytest.mark.parametrize("name", EXAMPLES)
def test_five_lines_are_all_that_an_example_needs(name, figure):
    watched = (ROOT / "examples" / f"{name}.py").read_text().splitlines()
    added = [line for line in watched if "# LossGuard" in line]
    assert not any(word in line for line in plain(name)[15:] for word in ("run.", "watch(", "trainer_agent", "lossguard"))
    figure("E", f"lines added to {name}", len(added), at_most=5)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_arrives_whole_and_trains_as_its_plain_twin(example, tmp_path, name):
    """Two processes at a time: the plain one needs no server. The watched one has no `with`: its run ends with its process."""
    twin = tmp_path / f"plain_{name}.py"
    twin.write_text("\n".join(plain(name)) + "\n")
    watched, bare = example(name).start(*ENOUGH[name], alone=True), example(twin).start(*ENOUGH[name])
    assert watched.weights() == bare.weights()
    run = watched.until(lambda run: run["state"] == "finished")
    losses = watched.points("train/loss")
    assert [point["step"] for point in losses] == list(range(1, len(losses) + 1))
    assert len(losses) == {"nanogpt_loop": 60, "accelerate_loop": 80}[name]
    assert len(watched.points("train/grad_norm")) == len(watched.points("train/learning_rate")) == len(losses)
    assert len(watched.points("eval/loss")) >= 2
    assert is_sound(run, FIRST_SAVE[name])
    assert run["segments"][0]["attributes"]["precision"] == "fp32"


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_click_rolls_an_example_back_and_its_replay_is_exact_and_a_click_stops_it(example, name, figure):
    training, step = example(name).start(*ENDLESS[name]), FIRST_SAVE[name]
    training.until(lambda run: is_sound(run, step) and (run["step"] or 0) > step + 2)
    training.click("rollback", checkpoint_id=f"checkpoint-{step}", data="replay")
    run = training.until(lambda run: len(run["segments"]) == 2 and run["commands"][0]["state"] == "succeeded")
    assert (run["segments"][1]["from_step"], run["segments"][1]["cause"]) == (step, "rollback")
    left = run["segments"][1]["attributes"]["left_step"]
    training.until(lambda run: (run["step"] or 0) >= left)
    training.click("stop")
    code, said = training.wait()
    assert code == 0, said
    run = training.until(lambda run: run["state"] == "stopped")
    stopped_at = next(command for command in run["commands"] if command["kind"] == "stop")["step"]
    assert is_sound(run, stopped_at), run["checkpoints"]
    assert (training.folder / f"checkpoint-{stopped_at}").is_dir()
    first = {point["step"]: point["value"] for point in training.points("train/loss", segment=1)}
    again = {point["step"]: point["value"] for point in training.points("train/loss", segment=2)}
    replayed = [value for at, value in first.items() if at > step]
    assert len(replayed) == left - step
    unlike = sum(again[at] != value for at, value in first.items() if at > step)
    figure("E", f"{name}: replayed steps whose loss differs from the first time", unlike, at_most=0)


def test_a_nan_is_named_by_the_alert_with_its_step_and_the_run_is_stopped(example, figure):
    training = example("nanogpt_loop").start("--steps", "60", "--nan-at", "30")
    code, said = training.wait()
    assert code == 0, said
    assert "the run is dead, and was stopped at step 30" in said
    run = training.until(lambda run: run["state"] == "stopped" and run["alerts"])
    alert = next(alert for alert in run["alerts"] if alert["series"] == "train/loss" and alert["value"] == "NaN")
    figure("F24", "hand-written loop: steps from a NaN loss to its alert", alert["firing_step"] - 30, at_most=1)
    assert alert["onset_step"] == 30
    assert math.isnan(float(training.points("train/loss")[-1]["value"]))
    assert [each["step"] for each in run["checkpoints"]] == [25]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_killed_and_started_again_goes_on_as_if_nothing_had_been(example, name):
    unbroken = example(name).start(*ENOUGH[name])
    training = example(name).start(*ENOUGH[name], "--slow", "0.05")
    training.until(lambda run: (run["step"] or 0) > FIRST_SAVE[name] + 2 and is_sound(run, FIRST_SAVE[name]))
    training.process.send_signal(signal.SIGKILL)
    training.process.wait(SECONDS)
    weights = training.start(*ENOUGH[name], "--resume").weights()
    assert weights == unbroken.weights()
    run = training.until(lambda run: run["state"] == "finished")
    assert [(each["from_step"] % FIRST_SAVE[name], each["cause"]) for each in run["segments"]] == [(0, "start"), (0, "restart")]

"""Trainings of a tiny GPT-2 in a real Trainer that leave in the way they are told. Imported once, before the forks."""

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))

import torch
from ends_loader import load_data
from ends_plain import Burst, leave
from training_kit import At, Rows, trainer
from transformers import TrainerCallback
from transformers.conversion_mapping import get_checkpoint_conversion_mapping

from trainer_agent.hf import LossGuardCallback, guarded_train
from trainer_agent.policy import Policy
from trainer_agent.sending import sender

get_checkpoint_conversion_mapping("gpt2")  # which a process does at its first save, and which takes longer than these trainings
Leaving = Callable[[], None]
SECONDS = 4.5
"""Of an evaluation, of a save, of a step that blocks: longer than the server's patience in these tests."""


class Ways(TrainerCallback):
    """Takes the way out at the beginning of step 5."""

    def __init__(self, job: dict, leaving: Leaving) -> None:
        self.job, self.leaving = job, leaving

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 4 and self.job["way"] != "end":
            time.sleep(0.5)  # what was logged is on the disk
            leave(self.job["way"], None, self.leaving)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.leaving()


def settings(job: dict) -> dict:
    return {"url": job["url"], "token": job["token"], "run_id": job["run"]}


def train_guarded(job: dict, folder: Path, leaving: Leaving) -> None:
    guarded_train(trainer(folder, Ways(job, leaving), max_steps=6), **settings(job))


def train_bare(job: dict, folder: Path, leaving: Leaving) -> None:
    trainer(folder, Ways(job, leaving), LossGuardCallback(**settings(job)), max_steps=6).train()


def train_again(job: dict, folder: Path, leaving: Leaving) -> None:
    """A notebook: the cell breaks, and is run again in the same interpreter."""
    for way in ("raise", "end"):
        training = trainer(
            folder, Ways({"way": way}, leaving), LossGuardCallback(**settings(job) | {"run_id": f"{job['run']}-{way}"})
        )
        try:
            training.train()
        except Burst:
            continue


class Slow(At):
    """An evaluation that takes its time."""

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.left:
            self.left = 0
            time.sleep(SECONDS)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        pass


def train_slowly(job: dict, folder: Path, leaving: Leaving) -> None:
    sender.HEARTBEAT_SECONDS = 0.4
    blocks = At(2, lambda **_: time.sleep(SECONDS))
    slow = {"eval_strategy": "steps", "eval_steps": 3, "save_steps": 5, "eval_dataset": Rows(8)}
    training = trainer(folder, blocks, Slow(0, None), max_steps=6, **slow)
    save = training.save_model

    def save_slowly(*given: Any, **more: Any) -> None:
        time.sleep(SECONDS)
        save(*given, **more)

    training.save_model = save_slowly
    guarded_train(training, **settings(job))
    leaving()


def poison(model: Any = None, **_: Any) -> None:
    with torch.no_grad():
        model.transformer.wte.weight[0, 0] = math.nan


def train_dead(job: dict, folder: Path, leaving: Leaving) -> None:
    output = guarded_train(trainer(folder, At(3, poison), max_steps=9), **settings(job))
    assert output.global_step == 3
    leaving()


def train_held(job: dict, folder: Path, leaving: Leaving) -> None:
    sender.HEARTBEAT_SECONDS = 0.4
    guarded_train(trainer(folder, At(3, poison), max_steps=9), Policy(on_dead="hold", hold_seconds=SECONDS), **settings(job))
    leaving()


WHERE = {
    "hf": train_guarded,
    "callback": train_bare,
    "again": train_again,
    "slow": train_slowly,
    "dead": train_dead,
    "held": train_held,
    "loader": load_data,
}

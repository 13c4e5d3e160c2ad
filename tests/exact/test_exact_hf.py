"""A rollback in the Trainer brings everything back: 40 steps straight equal 25, back to 20, and on, to the last bit.

The ten omissions show that the comparison would see each thing that is forgotten.
"""

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exact_kit import LEFT, SERIES, TARGET, At, Track, differences, flat, hf_training
from training_kit import Tape, tape
from transformers import TrainerState

from trainer_agent.hf import guarded_train
from trainer_agent.hf.ahead import FetchedAhead
from trainer_agent.wire.vocabulary import CommandState


@pytest.fixture
def taped(monkeypatch, tmp_path) -> Tape:
    return tape(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Track:
    training, book = hf_training(tmp_path_factory.mktemp("straight"))
    training.train()
    book.track.weights = flat(training.model)
    return book.track


def rolled_back(taped: Tape, folder: Path, forget: Callable[[Any], None] = lambda _: None) -> Track:
    """The training with its rollback; `forget` is given the trainer when the command comes."""

    def order(**_: Any) -> None:
        taped.rollback(TARGET)
        forget(training)

    training, book = hf_training(folder, At(LEFT, order))
    guarded_train(training)
    book.track.weights = flat(training.model)
    return book.track


def test_forty_steps_straight_equal_a_rollback_from_25_to_20_to_the_last_bit(taped, tmp_path, straight):
    found = rolled_back(taped, tmp_path)
    assert differences(found, straight.again(TARGET, LEFT)) == []
    assert [report.state for report in taped.reports] == [CommandState.RUNNING, CommandState.SUCCEEDED]


def test_the_training_compared_has_all_that_can_be_forgotten(straight):
    """Else an omission would be no proof: the scale grows and steps are skipped or not, rates rise, two epochs differ."""
    assert len(set(straight.scales)) > 3
    assert straight.rates[TARGET - 1] < straight.rates[TARGET] < straight.rates[TARGET + 3]
    assert straight.rows[:18] != straight.rows[22:]
    assert sorted(row for rows in straight.rows[:22] for row in rows) == list(range(88))


def without_load(owner: Any, name: str, state: Callable[[Any], Any]) -> None:
    """What the method loads into `state(owner)` is put back to what it was."""
    original = getattr(owner, name)

    def load(*args: Any, **kwargs: Any) -> Any:
        kept = copy.deepcopy(state(owner).state_dict())
        result = original(*args, **kwargs)
        state(owner).load_state_dict(kept)
        return result

    setattr(owner, name, load)


GENERATORS = {
    "torch RNG": [(torch, "set_rng_state"), (torch.random, "set_rng_state")],
    "numpy RNG": [(np.random, "set_state")],
    "Python RNG": [(random, "setstate")],
}


def stay_in_the_epoch(trainer: Any) -> None:
    original = trainer.get_train_dataloader

    def later() -> Any:
        loader = original()
        known = loader.set_epoch
        loader.set_epoch = lambda epoch: known(epoch + 1)
        return loader

    trainer.get_train_dataloader = later


def forget_the_step(monkeypatch) -> None:
    original = TrainerState.load_from_json

    def at_left(path: str) -> TrainerState:
        state = original(path)
        state.global_step = LEFT
        return state

    monkeypatch.setattr(TrainerState, "load_from_json", at_left)


OMISSIONS: dict[str, Callable[[Any], None]] = {
    "model": lambda trainer: setattr(trainer, "_load_from_checkpoint", lambda *_, **__: None),
    "optimizer": lambda trainer: without_load(trainer, "_load_optimizer_and_scheduler", lambda t: t.optimizer),
    "scheduler": lambda trainer: without_load(trainer, "_load_optimizer_and_scheduler", lambda t: t.lr_scheduler),
    "scaler": lambda trainer: setattr(trainer, "_load_scaler", lambda *_: None),
    "sampler position": lambda trainer: setattr(trainer.args, "ignore_data_skip", True),
    "epoch": stay_in_the_epoch,
}


@pytest.mark.parametrize("what", OMISSIONS)
def test_an_omission_is_seen(taped, tmp_path, straight, what):
    found = rolled_back(taped, tmp_path, OMISSIONS[what])
    assert differences(found, straight.again(TARGET, LEFT)), f"without the {what} nothing differs"


@pytest.mark.parametrize("what", GENERATORS)
def test_an_omitted_generator_is_seen(taped, tmp_path, straight, monkeypatch, what):
    def forget(_: Any) -> None:
        for owner, setter in GENERATORS[what]:
            monkeypatch.setattr(owner, setter, lambda *_: None)

    found = rolled_back(taped, tmp_path, forget)
    assert {"losses", "norms", "weights"} <= set(differences(found, straight.again(TARGET, LEFT)))


def test_the_tenth_omission_the_step_is_seen(taped, tmp_path, straight, monkeypatch):
    found = rolled_back(taped, tmp_path, lambda _: forget_the_step(monkeypatch))
    assert "steps" in differences(found, straight.again(TARGET, LEFT))


def test_the_random_states_of_batches_fetched_ahead_are_needed(taped, tmp_path, straight, monkeypatch):
    """What the Trainer brings back by itself is not all: its loader is one batch ahead of the step that is saved."""
    monkeypatch.setattr(FetchedAhead, "resume", lambda *_: None)
    found = rolled_back(taped, tmp_path)
    assert differences(found, straight.again(TARGET, LEFT)) == ["losses", "norms", "weights"]


def test_with_accumulated_micro_batches_it_is_as_exact(taped, tmp_path):
    """11 steps of 2 micro-batches are an epoch: from step 15, in the second, back to 10, in the first."""
    setting = {"gradient_accumulation_steps": 2, "max_steps": 20, "save_steps": 5}
    training, book = hf_training(tmp_path / "straight", **setting)
    training.train()
    book.track.weights = flat(training.model)
    again, track = hf_training(tmp_path / "guarded", At(15, lambda **_: taped.rollback(10)), **setting)
    guarded_train(again)
    track.track.weights = flat(again.model)
    assert differences(track.track, book.track.again(10, 15)) == []


@pytest.mark.parametrize("step", [10, 20])
def test_a_training_resumed_by_another_process_is_as_exact(taped, tmp_path, straight, step):
    """Saved in the middle of an epoch; a new Trainer goes on from there."""
    guarded_train(hf_training(tmp_path, At(step + 3, taped.stop))[0])
    training, book = hf_training(tmp_path)
    guarded_train(training, resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    book.track.weights = flat(training.model)
    rest = {name: getattr(straight, name)[step:] for name in SERIES}
    assert differences(book.track, Track(**rest, weights=straight.weights)) == []

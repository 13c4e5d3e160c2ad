"""A rollback in a hand-written loop brings everything back: 40 steps straight equal 25, back to 20, and on, to the last bit."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exact_kit import LEFT, STEPS, TARGET, ByHand, Track, differences
from loops_kit import Tape, tape

from trainer_agent.data import randomness
from trainer_agent.loop import watch
from trainer_agent.loop.batches import Batches
from trainer_agent.loop.state import State
from trainer_agent.wire.vocabulary import CommandState


@pytest.fixture
def taped(monkeypatch, tmp_path) -> Tape:
    return tape(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def straight() -> Track:
    training = ByHand()
    return training.train(training.twice())


def rolled_back(taped: Tape, folder: Path, forget: Callable[[ByHand], None] = lambda _: None) -> Track:
    training = ByHand()

    def order() -> None:
        taped.rollback(TARGET)
        forget(training)

    parts = {"model": training.model, "optimizer": training.optimizer, "scheduler": training.scheduler}
    with watch(**parts, scaler=training.scaler, output_dir=folder, save_every=10) as run:
        return training.train(run.batches(training.loader, max_steps=STEPS, epochs=2), run, {LEFT: order})


def test_forty_steps_straight_equal_a_rollback_from_25_to_20_to_the_last_bit(taped, tmp_path, straight):
    found = rolled_back(taped, tmp_path)
    assert differences(found, straight.again(TARGET, LEFT)) == []
    states = [report.state for report in taped.reports if report.state is not CommandState.DELIVERED]
    assert states == [CommandState.RUNNING, CommandState.SUCCEEDED]


def without_load(name: str) -> Callable[[Any, ByHand], None]:
    def forget(monkeypatch: Any, training: ByHand) -> None:
        monkeypatch.setattr(getattr(training, name), "load_state_dict", lambda *_, **__: None, raising=False)

    return forget


def without_generator(get: Callable[[], Any], put: Callable[[Any], None]) -> Callable[[Any, ByHand], None]:
    def forget(monkeypatch: Any, training: ByHand) -> None:
        del training
        original = randomness.restore

        def restore(state: dict[str, Any]) -> None:
            kept = get()
            original(state)
            put(kept)

        monkeypatch.setattr(randomness, "restore", restore)

    return forget


def elsewhere(**changes: Any) -> Callable[[Any, ByHand], None]:
    def forget(monkeypatch: Any, training: ByHand) -> None:
        del training
        original = Batches.go_to
        monkeypatch.setattr(Batches, "go_to", lambda feed, place: original(feed, replace(place, **changes)))

    return forget


def at_the_step_left(monkeypatch: Any, training: ByHand) -> None:
    del training
    original = State.read
    monkeypatch.setattr(State, "read", lambda *args: replace(original(*args), step=LEFT))


OMISSIONS = {
    "model": without_load("model"),
    "optimizer": without_load("optimizer"),
    "scheduler": without_load("scheduler"),
    "scaler": without_load("scaler"),
    "torch RNG": without_generator(torch.get_rng_state, torch.set_rng_state),
    "numpy RNG": without_generator(np.random.get_state, np.random.set_state),
    "Python RNG": without_generator(random.getstate, random.setstate),
    "sampler position": elsewhere(batches=1),
    "epoch": elsewhere(epoch=1),
    "step": at_the_step_left,
}


@pytest.mark.parametrize("what", OMISSIONS)
def test_an_omission_is_seen(taped, tmp_path, straight, monkeypatch, what):
    found = rolled_back(taped, tmp_path, lambda training: OMISSIONS[what](monkeypatch, training))
    assert differences(found, straight.again(TARGET, LEFT)), f"without the {what} nothing differs"

"""The demo's divergence in four ways: the run that dies of one document, rolled back to the checkpoint before it.

The demo's own data, model and Trainer. Never a step number of the death is assumed: it is what the first segment shows.
"""

import shutil
import sys
from pathlib import Path
from statistics import fmean

import pytest
import torch
from exclude_kit import guarded_train, tape

sys.path.append(str(Path(__file__).parents[2] / "examples"))
import gpt2_fp16 as demo
from training_kit import until
from transformers import TrainerCallback

from trainer_agent.checkpoints.inspection import MANIFEST
from trainer_agent.policy import Policy
from trainer_agent.wire.vocabulary import CommandState, DataMode

TARGET, END = 200, 252
DEAD_STEPS = 3
NEVER_CLIPS = 1e9
SHARED_STEPS = 222
"""The document is over, and the run is not dead yet: here the ways part that do not wait for the death."""


@pytest.fixture(autouse=True)
def deterministic():
    torch.use_deterministic_algorithms(mode=True)
    yield
    torch.use_deterministic_algorithms(mode=False)


class Orders(TrainerCallback):
    """Gives the next order once the run is dead, or at a step. The folder as it is before the first one is copied."""

    def __init__(self, taped, copy, orders):
        self.taped, self.copy, self.orders, self.recorder = taped, copy, list(orders), None

    def on_step_end(self, args, state, control, **kwargs):
        if not self.orders:
            return
        when, order = self.orders[0]
        segment = self.recorder.segments[-1]
        is_dead = segment.skipped[-DEAD_STEPS:] == [True] * DEAD_STEPS and not demo.math.isfinite(segment.loss[-1])
        if is_dead if when == "dead" else state.global_step == when:
            self.orders.pop(0)
            self.keep(Path(args.output_dir))
            self.taped.rollback(TARGET, f"order {len(self.orders)}", **order)

    def keep(self, folder):
        copy, self.copy = self.copy, None
        if copy is not None:
            until((folder / f"checkpoint-{TARGET}" / MANIFEST).exists)  # it is inspected in the background
            shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("spool"))


def training(folder, data, *callbacks):
    recorder = demo.Recorder()
    made = demo.build_trainer(data, folder, seed=0, steps=END, device="cpu", recorder=recorder)
    for callback in callbacks:
        callback.recorder = recorder
        made.add_callback(callback)
    return made, recorder


def watched(made, data, **more):
    guarded_train(made, Policy(on_dead="continue"), document_of=lambda row: data.source[row], **more)


def death(segment):
    """The first step after which nothing was learnt."""
    return demo.death_of(segment)


def worst(segment):
    """The highest mean of ten steps in a row."""
    return max(fmean(segment.loss[at : at + 10]) for at in range(len(segment.loss) - 9))


def is_alive(segment):
    return death(segment) is None and segment.steps[-1] >= END - 1 and sum(segment.skipped[-20:]) < DEAD_STEPS


def test_the_demo_in_four_ways(monkeypatch, tmp_path, figure):
    """Replay dies again at the same step; clipping, exclude and skip are alive and recovering at their end."""
    data = demo.Rows(0)
    first, last = data.culprit_steps()
    document = {"data": DataMode.EXCLUDE, "exclude_documents": (demo.CULPRIT,)}

    taped = tape(monkeypatch, tmp_path)
    orders = Orders(
        taped,
        tmp_path / "b",
        [("dead", {}), ("dead", {"max_grad_norm": 1.0}), (END - 1, document | {"max_grad_norm": NEVER_CLIPS})],
    )
    made, recorder = training(tmp_path / "a", data, orders)
    watched(made, data)
    dead, replayed, clipped, excluded = recorder.segments
    assert [report.state for report in taped.reports if report.state is not CommandState.RUNNING] == [CommandState.SUCCEEDED] * 3

    skip = {"data": DataMode.SKIP, "skip_from_step": first, "skip_to_step": last}
    made, recorder = training(tmp_path / "b", data, Orders(taped, None, [(SHARED_STEPS, skip)]))
    watched(made, data, resume_from_checkpoint=str(tmp_path / "b" / f"checkpoint-{TARGET}"))
    skipped = recorder.segments[-1]
    assert taped.reports[-1].state is CommandState.SUCCEEDED

    before = fmean(dead.loss[190:210])
    assert death(dead) is not None
    assert death(dead) > last
    assert death(replayed) == death(dead)
    for segment in (clipped, excluded, skipped):
        assert is_alive(segment)
        figure("demo", "mean loss of the last ten steps", fmean(segment.loss[-10:]), at_most=worst(segment))
    assert fmean(clipped.loss[-10:]) < worst(clipped) - 0.2
    assert max(map(fmean, (excluded.loss[-10:], skipped.loss[-10:]))) < before
    assert excluded.loss[10 : END - TARGET - 1] == skipped.loss[10 : END - TARGET - 1]  # whole batches: the same data come

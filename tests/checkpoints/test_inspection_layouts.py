"""Checkpoints as three savers write them: their parts, their counts, and each kind of harm, by the file it was done to."""

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from inspection_kit import (
    STEP,
    cut,
    exchange,
    facts,
    flip,
    gpt2,
    in_shards,
    of_accelerate,
    of_loop,
    of_trainer,
    trained,
)

from trainer_agent.checkpoints.inspection import changed_file, stat_of, stored_weights
from trainer_agent.checkpoints.layouts import missing_by_name, part_of, parts_of
from trainer_agent.checkpoints.rollback import unfit
from trainer_agent.scanning import far
from trainer_agent.wire.messages import CheckpointFile
from trainer_agent.wire.vocabulary import CheckpointState

torch.set_num_threads(1)
NAN = float("nan")
MAKERS = {"trainer": of_trainer, "shards": in_shards, "loop": of_loop, "accelerate": of_accelerate}
EXACT = ("model", "optimizer", "scheduler", "rng", "position")


@pytest.fixture(scope="session")
def originals(tmp_path_factory) -> dict[str, Path]:
    return {name: make(tmp_path_factory.mktemp(name)) for name, make in MAKERS.items()}


@pytest.fixture
def copy(originals, tmp_path):
    def made(name: str) -> Path:
        return Path(shutil.copytree(originals[name], tmp_path / originals[name].name))

    return made


@pytest.mark.parametrize("name", MAKERS)
def test_what_was_saved_whole_is_complete_with_all_its_parts_and_counted(copy, name):
    found = facts(copy(name))
    assert (found.state, found.problem) == (CheckpointState.COMPLETE, "")
    assert found.parts == (EXACT[:-1] if name == "accelerate" else EXACT)  # which does not save a place in the data
    assert (found.nonfinite_weights, found.nonfinite_optimizer) == (0, 0)
    assert found.versions.keys() >= {"python", "torch", "transformers", "lossguard"}


def spoil_weights(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = max(folder.glob("*model*.safetensors"), default=None)
    if path is not None:
        state = load_file(path)
        next(iter(state.values())).view(-1)[0] = NAN
        save_file(state, path, metadata={"format": "pt"})
    else:
        state = torch.load(folder / "pytorch_model.bin", weights_only=True)
        next(iter(state.values())).view(-1)[0] = NAN
        torch.save(state, folder / "pytorch_model.bin")


def spoil_optimizer(folder: Path) -> None:
    path = max([*folder.glob("optimizer*.bin"), *folder.glob("optimizer.pt")])
    state = torch.load(path, weights_only=True)
    state["state"][0]["exp_avg"].view(-1)[:2] = -float("inf")
    torch.save(state, path)


@pytest.mark.parametrize("name", MAKERS)
def test_f54_what_is_not_finite_is_counted_in_weights_and_optimizer_and_never_a_target(copy, name, figure):
    folder = copy(name)
    spoil_weights(folder)
    found = facts(folder)
    assert (found.state, found.nonfinite_weights, found.nonfinite_optimizer) == (CheckpointState.COMPLETE, 1, 0)
    spoil_optimizer(folder)
    found = facts(folder)
    assert (found.nonfinite_weights, found.nonfinite_optimizer) == (1, 2)
    whole = found if name != "accelerate" else found.__class__(**{**as_dict(found), "parts": EXACT})
    offered = not unfit(whole, None, needs_scaler=False)
    figure("F54", f"NaN weights at save, {name}: offered as a target", float(offered), at_most=0)


def as_dict(found) -> dict:
    return {name: getattr(found, name) for name in found.__slots__}


def write_position(folder: Path) -> None:
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 7}))


HARMS = [
    ("trainer", lambda f: cut(f / "model.safetensors"), "model.safetensors has"),
    ("trainer", lambda f: cut(f / "optimizer.pt"), "optimizer.pt is cut off"),
    ("trainer", lambda f: cut(f / "scheduler.pt"), "scheduler.pt is cut off"),
    ("trainer", lambda f: cut(f / "rng_state.pth"), "rng_state.pth is cut off"),
    ("trainer", lambda f: cut(f / "training_args.bin"), "training_args.bin is cut off"),
    ("trainer", lambda f: cut(f / "trainer_state.json"), "trainer_state.json cannot be understood"),
    ("trainer", lambda f: (f / "optimizer.pt").write_bytes(b""), "optimizer.pt is cut off"),
    ("trainer", lambda f: (f / "model.safetensors").write_bytes(b""), "model.safetensors ends inside its header"),
    ("trainer", lambda f: flip(f / "model.safetensors", 7), "model.safetensors"),
    ("trainer", lambda f: (f / "model.safetensors").unlink(), "no weights"),
    ("trainer", write_position, "trainer_state.json is of step 7, not 2"),
    ("trainer", lambda f: shutil.copy(f / "scheduler.pt", f / "optimizer.pt"), "optimizer.pt holds the state of the scheduler"),
    ("trainer", lambda f: exchange(f / "optimizer.pt", f / "scheduler.pt"), "optimizer.pt holds the state of the scheduler"),
    ("trainer", lambda f: exchange(f / "rng_state.pth", f / "scheduler.pt"), "rng_state.pth holds the state of the scheduler"),
    ("shards", lambda f: sorted(f.glob("model-*"))[1].unlink(), "model-00002-of"),
    ("shards", lambda f: (f / "model.safetensors.index.json").unlink(), "model.safetensors.index.json is missing"),
    ("shards", lambda f: exchange(*sorted(f.glob("model-*"))[:2]), "model-00001-of"),
    ("shards", lambda f: cut(min(f.glob("model-*"))), "model-00001-of"),
    ("shards", lambda f: cut(f / "model.safetensors.index.json"), "model.safetensors.index.json cannot be understood"),
    ("loop", lambda f: cut(f / "pytorch_model.bin"), "pytorch_model.bin is cut off"),
    ("loop", lambda f: exchange(f / "pytorch_model.bin", f / "optimizer.pt"), "holds the state of the"),
    ("loop", lambda f: (f / "pytorch_model.bin").unlink(), "no weights"),
    ("accelerate", lambda f: (f / "optimizer.bin").unlink(), "optimizer.bin is missing"),
    ("accelerate", lambda f: (f / "model.safetensors").unlink(), "model.safetensors is missing"),
    ("accelerate", lambda f: cut(f / "model_1.safetensors"), "model_1.safetensors has"),
    ("accelerate", lambda f: cut(f / "optimizer_1.bin"), "optimizer_1.bin is cut off"),
    ("accelerate", lambda f: cut(f / "random_states_0.pkl"), "random_states_0.pkl is cut off"),
    (
        "accelerate",
        lambda f: exchange(f / "optimizer_1.bin", f / "scheduler_1.bin"),
        "optimizer_1.bin holds the state of the sch",
    ),
]


@pytest.mark.parametrize(("name", "harm", "words"), HARMS)
def test_harm_before_the_inspection_is_found_and_the_file_is_named(copy, name, harm, words):
    folder = copy(name)
    harm(folder)
    found = facts(folder)
    assert found.state is CheckpointState.CORRUPT
    assert words in found.problem


def test_f52_harm_after_the_inspection_is_found_four_of_four_and_the_file_is_named(copy, figure):
    harms = [
        ("trainer", lambda f: flip(f / "optimizer.pt"), "optimizer.pt has changed"),
        ("shards", lambda f: sorted(f.glob("model-*"))[1].unlink(), "model-00002-of-00004.safetensors is missing"),
        ("accelerate", lambda f: exchange(f / "model.safetensors", f / "model_1.safetensors"), "model.safetensors has changed"),
        ("loop", lambda f: cut(f / "pytorch_model.bin"), "pytorch_model.bin has changed"),
    ]
    found = 0
    for name, harm, wanted in harms:
        folder = copy(name)
        known = facts(folder)
        assert changed_file(known, folder) == ""
        harm(folder)
        words = wanted.replace("-of-00004", f"-of-{len(list(folder.glob('model-*'))) + 1:05}")
        found += changed_file(known, folder).startswith(words)
        shutil.rmtree(folder)
    figure("F52", "bit flip, missing shard, swapped files, cut off: found of 4", found, at_least=4)


def test_what_is_no_file_is_not_read_whatever_the_manifest_says(copy):
    folder = copy("trainer")
    known = facts(folder)
    os.mkfifo(folder / "pipe")
    endless = replace(known, files=(CheckpointFile("pipe", 0, "0" * 64), CheckpointFile("/dev/zero", 0, "0" * 64)))
    assert changed_file(endless, folder) == "pipe has changed since it was saved"
    assert changed_file(replace(endless, files=endless.files[1:]), folder) == "/dev/zero has changed since it was saved"


def test_f52_a_gigabyte_is_read_within_ten_seconds(tmp_path, monkeypatch, figure):
    """Of a core: how much of one a process at the lowest priority gets is for the machine to say."""
    monkeypatch.setattr(far, "FAR_BYTES", 1 << 40)
    folder = tmp_path / f"checkpoint-{STEP}"
    folder.mkdir()
    torch.save({"w": torch.randn(1 << 24)}, folder / "pytorch_model.bin")  # 64 MiB
    began = time.thread_time()
    found = facts(folder)
    seconds = (time.thread_time() - began) / (found.size_bytes / 1e9)
    figure("F52", "digest and counts of a checkpoint, of one core, for each GB", seconds, at_most=10, unit="s")


def test_the_random_state_of_each_rank_has_to_be_there(copy):
    folder = copy("trainer")
    shutil.move(folder / "rng_state.pth", folder / "rng_state_0.pth")
    assert facts(folder).state is CheckpointState.COMPLETE
    assert facts(folder, world_size=2).problem == "rng_state_1.pth is missing"


def test_what_an_earlier_process_left_is_no_part_of_a_new_save_and_never_its_weights(copy):
    folder = copy("trainer")
    before = {path.name: stat_of(path) for path in folder.iterdir()}
    for path in folder.iterdir():  # the save writes all but the optimizer's state
        if path.name != "optimizer.pt":
            path.write_bytes(path.read_bytes())
    found = facts(folder, before=before)
    assert (found.state, "optimizer" in found.parts, found.nonfinite_optimizer) == (CheckpointState.COMPLETE, False, None)
    assert found.problem == "optimizer.pt was there before the save and is no part of it"
    assert "no optimizer" in unfit(found, None, needs_scaler=False)
    shutil.copy(folder / "model.safetensors", folder / "adapter_model.safetensors")
    found = facts(folder, before=before | {"adapter_model.safetensors": stat_of(folder / "adapter_model.safetensors")})
    assert found.state is CheckpointState.CORRUPT
    assert "adapter_model.safetensors was there before the save" in found.problem


@pytest.mark.parametrize("safe", [True, False])
def test_of_several_models_the_first_is_compared(tmp_path, safe):
    folder = of_accelerate(tmp_path, models=2, safe=safe)
    found = dict(stored_weights(folder))
    assert found.keys() == trained()[0].state_dict().keys()


def test_weights_in_shards_are_all_given(copy):
    assert {name for name, _ in stored_weights(copy("shards"))} == set(gpt2().state_dict()) - {"lm_head.weight"}


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["model.safetensors"], None),
        (["pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json"], "pytorch_model-00002-of-00002.bin"),
        (["model-00002-of-00002.safetensors", "model.safetensors.index.json"], "model-00001-of-00002.safetensors"),
        (["optimizer_2.bin", "optimizer.bin"], "optimizer_1.bin"),
        (["model-00001-of-99999999.safetensors", "model.safetensors.index.json"], "model-00002-of-99999999.safetensors"),
        (["rng_state_0.pth", "rng_state_1.pth"], None),
        (["random_states_1.pkl"], "random_states_0.pkl"),
    ],
)
def test_what_is_missing_is_seen_by_the_names_of_the_others(names, missing):
    assert missing_by_name(names, world_size=2) == missing


@pytest.mark.parametrize(
    "name", ["notes.txt", "model.safetensors.bak", "old/optimizer.pt", "optimizer.pt.tmp", "rng_state_x.pth"]
)
def test_other_files_are_no_part(name):
    assert part_of(name) is None
    assert parts_of([name, "scaler.pt"]) == ("scaler",)

"""The benchmark of the inspection: its bars, and that it notices a pass that does not do its work."""

import math

import pytest
import torch
from safetensors.torch import save_file

from benchmarks import checkpoint_scan
from benchmarks.checkpoint_scan import FEWEST_BLOCKS, FEWEST_TURNS
from benchmarks.training_cost import Turn


def turns(on: float, count: int) -> list[Turn]:
    """Turns on a machine that grows slower all the time."""
    return [
        Turn(i % 2 == 1, (on if i % 2 else 1.0) * (1 + i / 100), (on if i % 2 else 1.0) * (1 + i / 100)) for i in range(count)
    ]


def missed(*, over_digest=1.1, over_step=1.0, passes=FEWEST_TURNS, blocks=FEWEST_BLOCKS, inspections=3) -> list[str]:
    results = {
        "inspections": inspections,
        "pass": checkpoint_scan.results_of(turns(over_digest, passes), ("a", "b")),
        "step": checkpoint_scan.results_of(turns(over_step, blocks), ("a", "b")),
    }
    return [bar.name for bar in checkpoint_scan.bars_of(results) if not bar.ok]


def test_all_bars_of_the_inspection_are_met_where_they_should_be():
    assert missed() == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"over_digest": 1.21}, "over the digest alone"),
        ({"over_digest": math.nan}, "over the digest alone"),
        ({"over_step": 1.051}, "median step"),
        ({"over_step": math.nan}, "median step"),
        ({"passes": 5}, "turns of pass"),
        ({"passes": 0}, "turns of pass"),
        ({"blocks": 11}, "blocks of steps"),
        ({"inspections": 0}, "inspections"),
    ],
)
def test_a_figure_of_the_inspection_past_its_limit_fails_its_bar(given, words):
    assert any(words in name for name in missed(**given))


def test_a_pass_that_makes_other_digests_or_leaves_numbers_out_is_no_measurement(tmp_path, monkeypatch):
    save_file({"w": torch.zeros(50_000)}, tmp_path / "model.safetensors")
    torch.save({"state": torch.zeros(50_000)}, tmp_path / "optimizer.pt")
    assert checkpoint_scan.one_pass(tmp_path) == checkpoint_scan.digest_alone(tmp_path)
    torch.save({"state": torch.full((50_000,), math.nan)}, tmp_path / "optimizer.pt")
    with pytest.raises(RuntimeError, match="not counted"):
        checkpoint_scan.one_pass(tmp_path)
    torch.save({"state": torch.zeros(50_000, dtype=torch.int32)}, tmp_path / "optimizer.pt")
    with pytest.raises(RuntimeError, match="not counted"):
        checkpoint_scan.one_pass(tmp_path)
    monkeypatch.setattr(checkpoint_scan, "one_pass", lambda folder: ["another"])
    with pytest.raises(RuntimeError, match="other digests"):
        checkpoint_scan.passes(tmp_path, 0.0)

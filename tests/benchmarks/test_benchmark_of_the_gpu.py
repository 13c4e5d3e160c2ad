"""The benchmark for a GPU, on a machine that need not have one: its CPU path in full, and its bars on figures made up."""

import copy
import json
import math
from types import SimpleNamespace

import pytest
import torch

from benchmarks import _gpu_turns, cuda
from benchmarks._gpu_training import LAST, LEFT_AT, SAVED_AT, Book, differing
from trainer_agent.wire import series

ON_A_GPU = {
    "step": {"ratio": 1.004},
    "waits_added_a_step": 0.0,
    "strict": {"calls": 90, "errors": []},
    "series": [*cuda.OF_THE_GPU, *cuda.OF_THE_STEPS],
    "rollback": {"differing_numbers": 0, "weights_differ": 0, "scales": [4.0, 2.0, 2.0, 4.0, 8.0]},
}


def test_every_bar_is_met_where_the_figures_are_good():
    assert all(bar.ok is True for bar in cuda.bars_of(ON_A_GPU, "cuda"))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("step", "ratio"), 1.011),
        (("step", "ratio"), None),
        (("waits_added_a_step",), 0.125),
        (("waits_added_a_step",), math.nan),
        (("strict", "errors"), ["step_ended: called a synchronizing CUDA operation"]),
        (("strict", "calls"), 0),
        (("series",), [*cuda.OF_THE_GPU[:3], *cuda.OF_THE_STEPS]),
        (("series",), [*cuda.OF_THE_GPU, *cuda.OF_THE_STEPS[1:]]),
        (("rollback", "differing_numbers"), 1),
        (("rollback", "differing_numbers"), math.nan),
        (("rollback", "weights_differ"), 1),
        (("rollback", "scales"), [4.0, 2.0, 2.0, 2.0, 2.0, 2.0]),
    ],
)
def test_each_bad_figure_misses_one_bar(path, value):
    results = copy.deepcopy(ON_A_GPU)
    place = results
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert [bar.ok for bar in cuda.bars_of(results, "cuda")].count(False) == 1


def test_a_wait_more_of_one_kind_is_not_made_up_for_by_one_less_of_another():
    off = dict.fromkeys((*_gpu_turns.WAITING, _gpu_turns.READING), 2.0)
    on = off | {"cudaStreamSynchronize": 3.0, "cudaMemcpy": 1.0}
    assert cuda.added({"seen_on": on, "seen_off": off}) == 1.0
    assert cuda.added({"seen_on": off, "seen_off": on}) == 1.0
    assert cuda.added({"seen_on": off, "seen_off": off}) == 0.0


def test_waits_are_counted_by_the_step_and_nothing_seen_is_no_zero():
    seen = _gpu_turns.Seen()
    assert math.isnan(cuda.added(seen.waits_a_step()))
    steps = _gpu_turns.SEEN_STEPS
    seen.waits["seen_on"].append(_gpu_turns.Counter({"cudaStreamSynchronize": 3 * steps}))
    seen.waits["seen_off"].append(_gpu_turns.Counter({"cudaStreamSynchronize": steps}))
    assert cuda.added(seen.waits_a_step()) == 2.0


def test_the_strict_turn_sets_torchs_mode_around_each_call_of_the_agent_and_keeps_its_error(monkeypatch):
    modes = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    strict = _gpu_turns.Strict("cuda")

    def waits(*_):
        assert modes[-1] == "error"
        raise RuntimeError("called a synchronizing CUDA operation")

    names = {part: dict.fromkeys(names, waits) for part, names in _gpu_turns.WATCHED.items()}
    session = SimpleNamespace(**names[""], probes=SimpleNamespace(**names["probes"]))
    strict.surround(session)
    with pytest.raises(IndexError):  # outside the turn no mode has been set
        session.log()
    strict.is_on = True
    for call in (session.step_ended, session.probes.take_loss, session.probes._after_forward):
        with pytest.raises(RuntimeError, match="synchronizing"):
            call()
    assert modes == ["error", "default"] * 3
    assert (strict.calls, len(strict.errors)) == (3, 3)


def test_numbers_are_compared_to_the_last_bit_and_a_rollback_that_did_not_happen_is_no_equality():
    steps = list(range(1, LAST + 1))
    straight = Book(steps, {"loss": [math.nan, *[1.0 / step for step in steps[1:]]]})
    taken = [*range(1, LEFT_AT + 1), *range(SAVED_AT + 1, LAST + 1)]
    again = Book(taken, {"loss": [straight.numbers["loss"][step - 1] for step in taken]})
    assert differing(straight, again) == 0
    again.numbers["loss"][-1] = math.nextafter(again.numbers["loss"][-1], 9)
    assert differing(straight, again) == 1
    assert math.isnan(differing(straight, straight))


def test_without_a_gpu_the_same_code_runs_and_claims_nothing_about_one(capsys, monkeypatch):
    for name in ("LOSSGUARD_URL", "LOSSGUARD_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code = cuda.main(["--quick", "--json"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0, told["bars"]
    assert told["benchmark"] == "cuda"
    assert told["machine"]["gpu"] is None
    assert "no figure here says anything about a GPU" in told["machine"]["note"]
    open_bars = [bar for bar in told["bars"] if bar["ok"] is None]
    assert len(open_bars) == 7
    assert all(bar["value"] is None and bar["why"] == cuda.NO_GPU for bar in open_bars)
    assert all(bar["ok"] is True for bar in told["bars"] if "cpu scaler" in bar["name"])
    assert {series.LOSS, series.LOSS_SCALE, series.HOST_MEMORY_BYTES} <= set(told["results"]["series"])
    assert told["results"]["rollback"]["steps"] == [*range(1, LEFT_AT + 1), *range(SAVED_AT + 1, LAST + 1)]
    assert told["results"]["rollback"]["reports"][-1].startswith("succeeded")
    assert not torch.are_deterministic_algorithms_enabled()

"""Benchmarks: each says what it is, and a bar is not met where it should not be. What they measure is no test."""

import json
import math
import os
import sys
from pathlib import Path

import forked
import pytest

from benchmarks import _harness, agent_overhead, training_cost
from benchmarks._harness import at_least, at_most
from benchmarks.agent_overhead import BACK_TO_BACK, PACED, PEERS, STATES
from benchmarks.training_cost import Turn

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py"))
OURS = {"agent_overhead", "checkpoint_scan", "training_cost"}


def test_the_benchmarks_that_were_asked_for_are_there():
    assert set(NAMES) >= OURS


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_says_what_it_measures_and_takes_quick_and_json(name):
    command = [sys.executable, "-m", f"benchmarks.{name}", "--help"]
    done = forked.run(command, env=os.environ, seconds=120)
    assert done.returncode == 0, done.stderr
    assert "--quick" in done.stdout
    assert "--json" in done.stdout
    assert len(done.stdout.split("\n\n")) > 2, "a description between usage and options"


# --- bars


@pytest.mark.parametrize(
    ("value", "ok"), [(0.99, True), (1.0, True), (1.01, False), (math.nan, False), (-math.inf, False), (None, False)]
)
def test_a_bar_that_may_not_be_passed_needs_a_number_at_or_under_it(value, ok):
    assert at_most("a", value, 1.0).ok is ok


@pytest.mark.parametrize(
    ("value", "ok"), [(1.01, True), (1.0, True), (0.99, False), (math.nan, False), (math.inf, False), (None, False)]
)
def test_a_bar_that_has_to_be_reached_needs_a_number_at_or_over_it(value, ok):
    assert at_least("a", value, 1.0).ok is ok


def test_a_benchmark_ends_with_one_strict_json_object_and_fails_with_any_of_its_bars(capsys):
    options = _harness.parse("mine", "What it measures.", ["--json"])
    bars = [at_most("good", 1.0, 2.0), at_most("not a number", math.nan, 2.0)]
    assert _harness.finish("mine", options, {"p99": math.nan, "inner": {"all": [math.inf]}}, bars) == 1
    told = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert sorted(told) == ["bars", "benchmark", "machine", "results"]
    assert told["results"] == {"p99": "NaN", "inner": {"all": ["Infinity"]}}
    assert told["bars"][1] == {"name": "not a number (at most)", "value": None, "limit": 2.0, "ok": False}
    assert _harness.finish("mine", options, {}, bars[:1]) == 0


def test_without_json_the_table_shows_every_figure_and_what_was_missed(capsys):
    options = _harness.parse("mine", "What it measures.", [])
    _harness.finish("mine", options, {"a": {"b": {"p50": 1.25}}, "c": 3}, [at_most("bad", 5.0, 2.0), at_least("gone", None, 2.0)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["a", "b", "p50", "1.25"]
    assert lines[1].split() == ["c", "3"]
    assert [line.split()[0] for line in lines[2:]] == ["FAIL", "FAIL"]
    assert "not measured" in lines[3]


# --- the overhead of log()


def blocks(**medians: int) -> agent_overhead.Blocks:
    """Three rounds of each subject whose calls all take so many nanoseconds at either pace."""
    usual = {"bare": 100} | dict.fromkeys(STATES, 200) | {"trackio": 1000, "wandb": 2500}
    return {name: {pace: [[each] * 5] * 3 for pace in (BACK_TO_BACK, PACED)} for name, each in (usual | medians).items()}


def facts() -> dict:
    well = {"delivered": True, "waiting_records": 0, "disk": ""}
    away = {"delivered": False, "waiting_records": 9, "disk": ""}
    return {"up": well, "slow": well, "hung": away, "refusing": away, "disk_stuck": away, "disk_full": well | {"disk": "full"}}


def missed(given: agent_overhead.Blocks, told: dict | None = None) -> list[str]:
    return [bar.name for bar in agent_overhead.bars_of(given, told or facts()) if not bar.ok]


def test_all_bars_of_the_overhead_are_met_where_they_should_be():
    assert missed(blocks()) == []


@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_that_is_missing_is_no_peer_that_was_beaten(peer):
    without = {name: paces for name, paces in blocks().items() if name != peer}
    assert missed(without) == [f"{pace}: median of {peer} over LossGuard's (at least)" for pace in (BACK_TO_BACK, PACED)]


@pytest.mark.parametrize(
    ("medians", "words"),
    [
        ({"up": 401}, "median, up"),
        ({"disk_stuck": 401}, "median, disk_stuck"),
        ({"hung": 401}, "p99"),
        ({"trackio": 799}, "trackio"),
        ({"wandb": 1999}, "wandb"),
    ],
)
def test_a_figure_past_its_limit_fails_its_bar(medians, words):
    assert any(words in name for name in missed(blocks(**medians)))


@pytest.mark.parametrize("state", [state for state in STATES if state != "slow"])
def test_a_state_that_did_not_hold_fails_the_run(state):
    told = facts()
    told[state] = told["up"] if state != "up" else told["hung"]
    assert missed(blocks(), told) == ["states that were what they are called (at least)"]


def test_the_ratio_to_the_bare_append_is_taken_round_by_round():
    given = blocks()
    given["bare"][PACED] = [[100] * 5, [300] * 5, [100] * 5]
    given["up"][PACED] = [[200] * 5, [600] * 5, [200] * 5]
    assert agent_overhead.over(given, "up", "bare", PACED) == 2.0


# --- the cost of a training


def turns(on: float, off: float, count: int = 61) -> list[Turn]:
    """Turns on a machine that grows slower all the time."""
    return [Turn(index % 2 == 1, (on if index % 2 else off) * (1 + index / 100), 1.0) for index in range(count)]


def test_the_cost_is_seen_through_a_machine_that_grows_slower():
    cost = training_cost.results_of(turns(1.02, 1.0))["cpu"]
    assert cost["ratio"] == pytest.approx(1.02)
    assert cost["interval_95"] == (pytest.approx(1.02), pytest.approx(1.02))


@pytest.mark.parametrize(("on", "ok"), [(1.0, True), (1.009, True), (1.011, False), (math.nan, False)])
def test_the_bar_of_the_cost(on, ok):
    assert training_cost.bars_of(training_cost.results_of(turns(on, 1.0)), 60)[0].ok is ok


def test_too_few_turns_are_no_measurement():
    assert [bar.ok for bar in training_cost.bars_of(training_cost.results_of(turns(1.0, 1.0, 40)), 60)] == [True, False]
    assert [bar.ok for bar in training_cost.bars_of(training_cost.results_of([]), 60)] == [False, False]


def test_turns_go_on_until_the_noise_is_small_enough_to_tell():
    noisy = [Turn(turn.is_on, turn.cpu * (1.1 if index % 3 else 0.9), 1.0) for index, turn in enumerate(turns(1.0, 1.0, 401))]
    assert not training_cost.are_enough(turns(1.0, 1.0, 59), 1e9)
    assert training_cost.are_enough(turns(1.0, 1.0, 60), 0.0)
    assert not training_cost.are_enough(noisy[:399], 0.0)
    assert training_cost.are_enough(noisy[:399], 1e9)
    assert training_cost.are_enough(noisy, 0.0)

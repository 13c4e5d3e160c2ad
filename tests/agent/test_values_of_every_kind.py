"""Whatever a script logs as a value arrives as it is, or is dropped, counted and told. Nothing is lost in silence, or changed."""

import math
import struct
import time
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from training_kit import At, tape, trainer
from transport_server import ScriptedServer

from trainer_agent.config import Config
from trainer_agent.guest.voice import Voice
from trainer_agent.hf import guarded_train
from trainer_agent.monitor import Monitor, new_incarnation
from trainer_agent.policy import Policy
from trainer_agent.wire import codec
from trainer_agent.wire.messages import Dropped, RunStart, SegmentStarted
from trainer_agent.wire.vocabulary import EndReason, SegmentCause

ANY = st.floats(width=64)
HALF = st.floats(width=16)
FITS = st.integers(-(2**1023), 2**1023)
BEYOND = st.integers(2**1024, 2**1100).map(lambda n: n if n % 2 else -n)
SMALL = st.integers(-128, 127)


def pairs(strategy, make, number=float):
    """What is logged, and the float64 it is."""
    return strategy.map(lambda x: (make(x), number(x)))


NUMBERS = st.one_of(
    pairs(ANY, float),
    pairs(ANY, np.float64),
    pairs(st.floats(width=32), np.float32),
    pairs(HALF, np.float16),
    pairs(ANY, np.longdouble),
    pairs(FITS, int),
    pairs(SMALL, np.int8),
    pairs(st.integers(0, 2**64 - 1), np.uint64),
    pairs(st.booleans(), bool),
    pairs(st.fractions(-1000, 1000, max_denominator=64), Fraction),
)
NONE = st.one_of(
    BEYOND,
    BEYOND.map(lambda n: Fraction(5 * n, 3)),
    st.just(np.longdouble("1e4000")) if np.finfo(np.longdouble).max > np.finfo(np.float64).max else st.just("1e4000"),
    st.text(max_size=20),
    st.binary(max_size=5),
    st.none(),
    st.complex_numbers(),
    st.decimals().map(Decimal),
    ANY.map(torch.tensor),
    HALF.map(lambda x: torch.tensor(x, dtype=torch.bfloat16)),
    ANY.map(np.array),
    st.booleans().map(np.bool_),
    st.lists(ANY, max_size=3),
    st.builds(object),
).map(lambda value: (value, None))
NAMES = st.integers(0, 7).map(lambda n: f"kind/n{n}")


@pytest.fixture(scope="module")
def told():
    return []


@pytest.fixture(scope="module")
def logged(tmp_path_factory, told):
    """A monitor with a server behind it."""
    with ScriptedServer() as server:
        start = RunStart("run", new_incarnation(), "p", "n")
        monitor = Monitor(start, Config(server.url, "secret"), tmp_path_factory.mktemp("m") / ".lossguard", Voice(told.append))
        monitor.begin()
        monitor.record(SegmentStarted(1, 0, SegmentCause.START, time.time()))
        assert monitor.flush(30)
        yield monitor, server.only()
        monitor.end(EndReason.FINISHED, None)


def counted(monitor, kept):
    """Points stored, records told as dropped, values counted as unusable."""
    return len(kept.points), sum(record.count for record in kept.of(Dropped)), monitor._writer.unusable


def bits(number):
    if number is None:
        return None
    return "NaN" if math.isnan(number) else struct.pack("<d", number)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(calls=st.lists(st.dictionaries(NAMES, st.one_of(NUMBERS, NONE), min_size=1), min_size=1, max_size=6))
def test_sent_is_stored_plus_counted_for_values_of_every_kind(logged, calls):
    monitor, kept = logged
    before, first = counted(monitor, kept), 1 + max((step for _, step, _ in kept.points.values()), default=0)
    first = max(first, getattr(monitor, "_next_step", 1))
    monitor._next_step = first + len(calls)
    for step, call in enumerate(calls, first):
        monitor.log({name: value for name, (value, _) in call.items()}, step)
    assert monitor.flush(60)
    stored, dropped, unusable = (now - was for now, was in zip(counted(monitor, kept), before, strict=True))
    wanted = {
        (n, step): bits(number) for step, c in enumerate(calls, first) for n, (_, number) in c.items() if number is not None
    }
    found = {(name, step): bits(value) for (name, _), (_, step, value) in kept.points.items() if step >= first}
    assert found == wanted
    assert stored == len(wanted)
    assert stored + unusable == sum(map(len, calls))
    assert dropped == sum(all(number is None for _, number in call.values()) for call in calls)
    assert not kept.doubled


def test_what_was_dropped_is_told_with_its_kind_and_its_reason(logged, told, figure):
    monitor, kept = logged
    monitor.log({"kind/text": "fp16"}, 10**6)
    assert monitor.flush(60)
    assert any("not a number that a float64 can hold; dropped" in line for line in told)
    assert kept.of(Dropped)[-1].reason == "no usable number in it"
    stored, _, unusable = counted(monitor, kept)
    figure("R62", "values dropped and counted, of values of every kind", unusable, at_least=1)
    figure("R62", "values stored, bit for bit", stored, at_least=1)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    step=st.one_of(st.none(), st.text(max_size=3), st.booleans(), ANY, st.integers(-5, -1), st.just(codec.MAX_STEP + 1), BEYOND)
)
def test_a_step_that_is_none_costs_one_counted_record(logged, step):
    monitor, kept = logged
    before = counted(monitor, kept)
    monitor.log({"kind/n0": 1.0}, step)
    assert monitor.flush(60)
    assert counted(monitor, kept)[:2] == (before[0], before[1] + 1)


def test_what_a_script_logs_through_the_trainer_arrives_or_is_counted_too(monkeypatch, tmp_path):
    taped = tape(monkeypatch, tmp_path)
    given = {"reward": np.float32(0.25), "seen": np.int64(7), "note": "text", "norm": torch.tensor(1.0), "done": True}
    training = trainer(tmp_path, max_steps=2, logging_steps=100, save_strategy="no")
    training.add_callback(At(2, lambda **_: training.log(dict(given))))
    guarded_train(training, Policy.watch_only())
    latest = taped.monitor._writer.latest
    assert {name: latest.get(f"train/{name}") for name in given} == {
        "reward": 0.25,
        "seen": 7.0,
        "note": None,
        "norm": None,
        "done": 1.0,
    }
    assert taped.monitor._writer.unusable == 2

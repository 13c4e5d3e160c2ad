"""A block says again what went into it, to the last bit; whatever is no block is refused and costs little."""

import math
import random
import struct
import tracemalloc
import zlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer_agent.ledger.resume_check import Resumed, check
from trainer_agent.wire.messages import MAX_BATCH_BYTES
from trainer_agent.wire.samples import (
    HIGHEST_SAMPLE,
    MOST_SAMPLES,
    NoBlock,
    StepRow,
    blocks,
    decode,
    encode,
    joined,
    sample_planes,
    to_text,
)
from trainer_agent.wire.vocabulary import DataMode

numbers = st.none() | st.floats()
names = st.text(max_size=20).filter(lambda text: text.isprintable())


@st.composite
def rows(draw):
    steps = sorted(draw(st.sets(st.integers(0, 2**53 - 1), min_size=1, max_size=8)))
    made = []
    for step in steps:
        count = draw(st.integers(0, 6))
        ids = st.lists(st.integers(0, HIGHEST_SAMPLE), min_size=count, max_size=count)
        samples = draw(st.none() | ids)
        documents = draw(st.none() | st.lists(names, min_size=count, max_size=count))
        made.append(
            StepRow(
                step,
                samples=None if samples is None else tuple(samples),
                documents=None if documents is None else tuple(documents),
                loss=draw(numbers),
                learning_rate=draw(numbers),
                loss_scale=draw(numbers),
                learning_rate_factor=draw(numbers),
                overflowed=draw(st.booleans()),
            )
        )
    return made


def bits(row):
    """NaN is not equal to itself, and its bits count."""
    values = (row.loss, row.learning_rate, row.loss_scale, row.learning_rate_factor)
    packed = [None if value is None else struct.pack("<d", value) for value in values]
    return row.step, row.samples or None, row.documents or None, packed, row.overflowed


@settings(max_examples=150, deadline=None)
@given(rows())
def test_a_block_says_again_what_went_into_it(these):
    back = list(joined(row for stretch in blocks(these) for row in decode(encode(stretch))))
    assert [bits(row) for row in back] == [bits(row) for row in these]


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_what_is_no_block_is_refused(data, packed):
    for read in (decode, sample_planes):
        try:
            read(zlib.compress(data) if packed else data)
        except NoBlock:
            continue


def test_a_block_that_would_unpack_without_end_is_refused_early():
    bomb = zlib.compress(bytes(200 << 20), 9)
    tracemalloc.start()
    with pytest.raises(NoBlock):
        decode(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20


def test_a_few_bytes_a_sample_and_no_block_that_a_batch_cannot_carry(figure):
    drawn = random.Random(1)
    shuffled = [StepRow(s, tuple(drawn.randrange(10**6) for _ in range(32)), loss=drawn.random()) for s in range(1, 1001)]
    in_order = [StepRow(s, tuple(range(32 * s, 32 * s + 32)), ("book-1",) * 32, loss=drawn.random()) for s in range(1, 1001)]
    for name, these in (("shuffled, of 1,000,000", shuffled), ("in order, with documents", in_order)):
        size = sum(len(encode(stretch)) for stretch in blocks(these)) / 32_000
        figure("ledger", f"bytes a sample on disk, {name}", size, at_most=4.0)
    most = MOST_SAMPLES * 2
    worst = StepRow(
        1, tuple(drawn.randrange(2**53) for _ in range(most)), tuple(f"{drawn.getrandbits(800):0200x}" for _ in range(most))
    )
    largest = max(len(to_text(encode(stretch))) for stretch in blocks([StepRow(0, worst.samples), worst]))
    figure("ledger", "largest block on the wire, worst case", largest, at_most=0.7 * MAX_BATCH_BYTES, unit="bytes")


def curve(first, last, *, noise=0.1, seed=0, **more):
    drawn = random.Random(seed)
    made = {}
    for step in range(first, last + 1):
        loss = 4.0 - 0.02 * step + drawn.gauss(0, noise)
        made[step] = StepRow(step, (step, step + 1), loss=loss, learning_rate=1e-3 * (100 - step) / 100, loss_scale=1024.0)
    return made


def changed(curve_, first, **change):
    return [
        replace(row, **{k: (v(row) if callable(v) else v) for k, v in change.items()}) for s, row in curve_.items() if s > first
    ]


def test_the_noise_of_a_gpu_is_no_finding_and_another_curve_is_one():
    drawn = random.Random(9)
    for seed in range(40):
        before = curve(1, 60, seed=seed)
        noisy = changed(before, 40, loss=lambda row: row.loss * (1 + drawn.gauss(0, 2e-3)))
        assert check(Resumed(40), before, noisy) == ()
        fresh = changed(before, 40, loss=lambda row: row.loss + 1.5)
        (finding,) = check(Resumed(40), before, fresh)
        assert finding.startswith("loss ")


def test_without_steps_to_compare_only_a_jump_is_a_finding():
    for seed in range(40):
        whole = curve(1, 60, seed=seed)
        past, after = {s: r for s, r in whole.items() if s <= 40}, [r for s, r in whole.items() if s > 40]
        assert check(Resumed(40), past, after) == ()
        assert check(Resumed(40, DataMode.SKIP), whole, changed(whole, 40, samples=(9,))) == ()
        assert check(Resumed(40), past, changed(whole, 40, loss_scale=65536.0))[0].startswith("scaler not restored")
        assert check(Resumed(40), past, changed(whole, 40, learning_rate=5e-3))[0].startswith("learning rate")
        assert check(Resumed(40), past, changed(whole, 40, loss=lambda row: row.loss + 3))[0].startswith("loss ")


def test_numbers_that_are_not_finite_are_borne():
    before = curve(1, 60)
    dead = changed(before, 40, loss=math.nan)
    assert check(Resumed(40), before, dead) == ("loss not finite in 20 of 20 steps where it was",)
    sick = {row.step: row for row in changed(before, 0, loss=math.inf)}
    assert check(Resumed(40), sick, changed(before, 40)) == ()
    assert check(Resumed(40), {}, dead) == ()
    assert check(Resumed(40), before, []) == ()


def test_a_factor_on_the_learning_rate_is_divided_out():
    before = curve(1, 60)
    halved = changed(before, 40, learning_rate=lambda row: row.learning_rate / 2, learning_rate_factor=0.5)
    assert check(Resumed(40), before, halved) == ()
    assert check(Resumed(40), before, changed(before, 40, learning_rate=lambda row: row.learning_rate / 2))


def test_a_rate_that_other_skipped_steps_held_back_is_no_finding():
    """Without the bad batch no step is skipped, so the schedule is a step ahead of the stored curve from there on."""
    before = curve(1, 60)
    before |= {step: replace(row, loss_scale=512.0) for step, row in before.items() if step > 45}
    ahead = changed(curve(1, 60), 40, learning_rate=lambda row: row.learning_rate * (1.01 if row.step > 46 else 1.0))
    assert check(Resumed(40, DataMode.SKIP), before, ahead) == ()
    early = changed(curve(1, 60), 40, learning_rate=lambda row: row.learning_rate * 1.01)
    assert check(Resumed(40, DataMode.SKIP), before, early)[0].startswith("learning rate")

"""Every detector of the registry: its state is small and plain, and out of the database it goes on as if it had stayed."""

import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.domain.detectors import DETECTORS, DetectorKind, with_defaults
from server.domain.detectors.base import RANKS
from server.domain.points import Point
from trainer_agent.wire import series
from trainer_agent.wire.vocabulary import SegmentCause

OWN = {
    DetectorKind.SKIP_STREAK: series.OVERFLOW,
    DetectorKind.SKIP_SHARE: series.OVERFLOW,
    DetectorKind.LOSS_SCALE: series.LOSS_SCALE,
    DetectorKind.SLOWDOWN: series.TOKENS_PER_SECOND,
    DetectorKind.CREEP: series.GPU_MEMORY_BYTES,
    DetectorKind.STRAGGLER: series.OWN_SECONDS,
}
NEEDED = {DetectorKind.THRESHOLD: {"above": 1.0}, DetectorKind.CREEP: {"capacity": 1e3, "startup_points": 0.0}}
NUMBERS = st.one_of(
    st.sampled_from([0.0, 1.0, 1.0, 2.0, 65536.0, math.nan, math.inf, -math.inf]), st.floats(allow_nan=True, allow_infinity=True)
)


def settings_of(kind, ranks):
    filled = with_defaults(kind, NEEDED.get(kind, {}))
    return filled | {RANKS: float(ranks)} if DETECTORS[kind].across_ranks else filled


def out_of_the_database(detector, state):
    return detector.restore(json.loads(json.dumps(detector.stored(state), allow_nan=False)))


@st.composite
def streams(draw):
    """Points of a series and its companions over up to three segments and ranks, with values that come again and again."""
    values = draw(st.lists(NUMBERS, min_size=1, max_size=12))
    ranks, count = draw(st.integers(1, 3)), draw(st.integers(1, 400))
    turns = sorted(draw(st.lists(st.integers(1, 400), max_size=2)))
    chance = draw(st.randoms(use_true_random=False))
    return ranks, [
        (chance.randrange(ranks), 1 + sum(n >= turn for turn in turns), n, chance.choice(values), chance.random() < 0.3)
        for n in range(count)
    ]


def play(kind, stream, cut):
    """Verdicts and last states of a detector that stays and of one that is stored and restored before each `cut`th point."""
    detector, rows, filled = DETECTORS[kind], stream[1], settings_of(kind, stream[0])
    kept = restored = detector.start()
    pairs, segment = [], 1
    for rank, in_segment, n, value, of_companion in rows:
        if n % cut == 0:
            restored = out_of_the_database(detector, restored)
        if in_segment != segment and detector.begins is not None:
            kept, restored = (detector.begins(each, SegmentCause.RESTART) for each in (kept, restored))
        segment = in_segment
        point = Point(OWN.get(kind, series.LOSS), segment, rank if detector.across_ranks else 0, n, n, 1e9 + n, value)
        if of_companion and detector.observe is not None:
            seen = Point(detector.companions[n % len(detector.companions)], *[getattr(point, f) for f in FIELDS])
            kept, restored = (detector.observe(each, seen, filled) for each in (kept, restored))
            continue
        kept, said = detector.step(kept, point, filled)
        restored, said_after = detector.step(restored, point, filled)
        pairs.append((said, said_after))
    return pairs, kept, restored


FIELDS = ("segment", "rank", "seq", "step", "time", "value")


@pytest.mark.parametrize("kind", list(DetectorKind))
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(stream=streams(), cut=st.integers(1, 90))
def test_out_of_the_database_a_detector_gives_the_same_verdicts_from_then_on(kind, stream, cut):
    pairs, kept, restored = play(kind, stream, cut)
    for said, said_after in pairs:
        assert repr(said) == repr(said_after)
    stored = DETECTORS[kind].stored
    assert json.dumps(stored(kept), sort_keys=True) == json.dumps(stored(restored), sort_keys=True)


@pytest.mark.parametrize("kind", list(DetectorKind))
def test_what_is_stored_is_what_comes_back_from_json_so_that_an_unchanged_state_is_not_written_again(kind):
    rows = [(n % 2, 1, n, 1.0 + math.sin(n) / 3 + n / 100, n % 7 == 0) for n in range(300)]
    _, kept, _ = play(kind, (2, rows), 1000)
    stored = DETECTORS[kind].stored(kept)
    assert json.loads(json.dumps(stored, allow_nan=False)) == stored


@pytest.mark.parametrize("kind", list(DetectorKind))
def test_a_state_stays_small_however_long_the_run(kind):
    rows = [(n % 2, 1 + n // 3000, n, 1.0 + math.sin(n) + n / 1e4, n % 5 == 0) for n in range(6000)]
    detector = DETECTORS[kind]
    _, kept, _ = play(kind, (2, rows), 10_000)
    assert len(json.dumps(detector.stored(kept))) < 16_000


@pytest.mark.parametrize("kind", list(DetectorKind))
def test_each_setting_says_what_it_means_and_its_default_may_be_set(kind):
    for setting in DETECTORS[kind].settings.values():
        assert setting.meaning
        assert setting.default is None or setting.minimum <= setting.default <= setting.maximum
        assert not setting.whole or setting.default is None or setting.default == int(setting.default)

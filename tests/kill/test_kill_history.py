"""The checker finds what it is there to find: each history here has one sin, and a clean one has none."""

from dataclasses import replace

import pytest
from kill_history import Life, Stored, StoredPoint, Verdict, judge, read_lives

MILLISECOND = 1_000_000
SERIES = ("train/loss",)


def known(_: str, step: int) -> float:
    return float("nan") if step == 3 else step / 10


def life(died_at: int | None = 210 * MILLISECOND, acknowledged: tuple[int, ...] = (1, 4, 7)) -> Life:
    """A record, then ten steps, one every 20 ms."""
    calls = [(1, None, 0, 0)] + [(step + 1, step, 1, step * 20 * MILLISECOND) for step in range(1, 11)]
    return Life("run", "life", calls, list(acknowledged), died_at)


def stored(*but: int) -> Stored:
    return Stored([StoredPoint("train/loss", 1, step + 1, step, known("", step)) for step in range(1, 11) if step not in but])


def verdict(of: Life, what: Stored, told: int = 0) -> Verdict:
    return judge(of, what, known, SERIES, told)


def test_a_clean_history_has_no_sin():
    assert verdict(life(), stored()) == Verdict()
    assert verdict(life(None), stored()).is_clean


def test_what_was_acknowledged_and_is_not_there_is_found():
    assert verdict(life(), stored(2)).acknowledged_and_lost == 1
    assert verdict(life(), stored(2), told=1).is_clean


def test_an_acknowledgement_that_is_taken_back_is_found():
    assert verdict(life(acknowledged=(1, 7, 4)), stored()).went_back == 1


@pytest.mark.parametrize(
    "change",
    [{"value": 0.2000001}, {"value": -0.2}, {"step": 9}, {"seq": 40}, {"segment": 2}, {"seq": 12, "step": 12, "value": 1.2}],
)
def test_a_point_that_nobody_logged_is_found(change):
    false = stored()
    false.points[1] = replace(false.points[1], **change)
    assert verdict(life(), false).invented == 1


def test_the_call_that_was_under_way_at_the_kill_is_not_invented():
    more = stored()
    more.points.append(StoredPoint("train/loss", 1, 12, 11, known("", 11)))
    assert verdict(life(), more).is_clean
    assert verdict(life(None), more).invented == 1


def test_a_point_stored_twice_is_found():
    twice = stored()
    twice.points.append(twice.points[4])
    assert verdict(life(), twice).doubled == 1


def test_only_the_last_hundred_milliseconds_may_be_lost():
    assert verdict(life(), stored(8, 9, 10)) == Verdict(lost_at_the_end=3)
    assert verdict(life(), stored(6, 7, 8, 9, 10)) == Verdict(acknowledged_and_lost=0, lost_too_early=0, lost_at_the_end=5)
    assert verdict(life(acknowledged=(1, 2)), stored(4)).lost_too_early == 1
    assert verdict(life(acknowledged=(1, 2)), stored(4), told=1).is_clean
    assert verdict(life(None), stored(10)).lost_too_early == 1


def test_the_window_grows_by_the_time_in_which_the_process_was_given_none():
    stalled = life()
    stalled.calls = [
        (number, step, segment, at if number < 8 else at + 300 * MILLISECOND) for number, step, segment, at in stalled.calls
    ]
    stalled.died_at = 510 * MILLISECOND
    assert stalled.window() == 420 * MILLISECOND
    assert verdict(stalled, stored(6, 7, 8, 9, 10)).is_clean


def test_a_witness_file_is_read_up_to_the_line_that_breaks_off():
    text = "life run inc 5\nrecord 6\nlog 1 1 7\nack 2 8\nlog 2 2 9\nlog 3 2 1"
    (found,) = read_lives(text)
    assert found.calls == [(1, None, 0, 6), (2, 1, 1, 7), (3, 2, 2, 9)]
    assert found.acknowledged == [2]

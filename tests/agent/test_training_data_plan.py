import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_agent.data_plan import CannotSkip, Cut, DataPlan, Shape, apply, cut_for


def test_a_cut_takes_its_positions_out_and_fills_the_epoch_up_from_its_start():
    assert apply(range(8), [Cut(0, 2, 5)]) == [0, 1, 5, 6, 7, 0, 1, 5]


def test_a_later_cut_counts_in_the_order_that_the_earlier_left():
    assert apply(range(8), [Cut(0, 2, 4), Cut(0, 3, 4)]) == [0, 1, 4, 6, 7, 0, 1, 0]


@given(st.integers(1, 60), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=4))
def test_an_epoch_keeps_its_length_and_what_comes_before_a_cut(count, pairs):
    cuts = [Cut(0, min(pair), max(pair)) for pair in pairs]
    order = apply(range(count), cuts)
    assert len(order) == count
    before = min([cut.start for cut in cuts] + [count])
    assert order[:before] == list(range(count))[:before]


@pytest.mark.parametrize(
    ("first", "last", "shape", "cut"),
    [
        (3, 4, Shape(40, 10, 4, 1), Cut(0, 8, 16)),
        (13, 13, Shape(40, 10, 4, 1), Cut(1, 8, 12)),
        (2, 2, Shape(40, 10, 4, 3), Cut(0, 12, 24)),
        (4, 4, Shape(40, 10, 4, 3), Cut(0, 36, 40)),
        (3, 3, Shape(10, 3, 4, 1), Cut(0, 8, 10)),
    ],
)
def test_a_window_of_steps_is_a_range_of_samples(first, last, shape, cut):
    assert cut_for(first, last, shape) == cut


@pytest.mark.parametrize(("first", "last"), [(0, 3), (5, 4), (10, 11), (1, 10), (1, 20)])
def test_a_window_that_cannot_be_exact_is_refused(first, last):
    with pytest.raises(CannotSkip):
        cut_for(first, last, Shape(40, 10, 4, 1))


def test_a_plan_is_found_again_and_a_broken_one_is_not_taken_for_an_empty_one(tmp_path):
    plan = DataPlan.open(tmp_path)
    assert plan.cuts == ()
    plan.add(Cut(0, 2, 5))
    plan.add(Cut(1, 0, 4))
    assert DataPlan.open(tmp_path).cuts == (Cut(0, 2, 5), Cut(1, 0, 4))
    plan.clear()
    assert DataPlan.open(tmp_path).cuts == ()
    (tmp_path / "data_plan.json").write_text(json.dumps({"cuts": [{"epoch": 0}]}))
    with pytest.raises(ValueError, match="cannot be read"):
        DataPlan.open(tmp_path)

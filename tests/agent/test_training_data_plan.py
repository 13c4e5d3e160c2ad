import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_agent.data.plan import CannotSkip, Cut, DataPlan, Exclusion, Shape, apply, cuts_for


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
    ("first", "last", "shape", "cuts"),
    [
        (3, 4, Shape(10, 1), [Cut(0, 2, 4)]),
        (13, 13, Shape(10, 1), [Cut(1, 2, 3)]),
        (2, 2, Shape(10, 3), [Cut(0, 3, 6)]),
        (4, 4, Shape(10, 3), [Cut(0, 9, 10)]),
        (9, 12, Shape(10, 1), [Cut(0, 8, 10), Cut(1, 0, 2)]),
        (4, 5, Shape(10, 3), [Cut(0, 9, 10), Cut(1, 0, 3)]),
    ],
)
def test_a_window_of_steps_is_a_range_of_places_in_each_epoch_it_reaches_into(first, last, shape, cuts):
    assert cuts_for(first, last, shape) == tuple(cuts)


@pytest.mark.parametrize(("first", "last"), [(0, 3), (5, 4), (1, 10), (1, 20), (9, 21)])
def test_a_window_that_cannot_be_exact_is_refused(first, last):
    with pytest.raises(CannotSkip):
        cuts_for(first, last, Shape(10, 1))


def test_a_training_stands_at_a_place_of_an_epoch():
    assert [Shape(10, 3).place_of(step) for step in (0, 3, 4, 9)] == [(0, 0), (0, 9), (1, 0), (2, 3)]


def test_a_plan_is_found_again_and_a_broken_one_is_not_taken_for_an_empty_one(tmp_path):
    plan = DataPlan.open(tmp_path)
    assert plan.changes == ()
    changes = (Cut(0, 2, 5), Exclusion(0, 3, ((7, 9), (12, 12)), ("a",), 3), Cut(1, 0, 4))
    plan.add(changes[0])
    plan.add(*changes[1:])
    assert DataPlan.open(tmp_path).changes == changes
    assert DataPlan.open(tmp_path).excluded == {7, 8, 9, 12}
    plan.take_back(*changes[1:])
    assert DataPlan.open(tmp_path).changes == plan.changes == changes[:1]
    plan.clear()
    assert DataPlan.open(tmp_path).changes == ()
    (tmp_path / "data_plan.json").write_text(json.dumps({"version": 2, "changes": [{"kind": "cut", "epoch": 0}]}))
    with pytest.raises(ValueError, match="cannot be read"):
        DataPlan.open(tmp_path)


def test_a_plan_of_the_first_version_is_read(tmp_path):
    (tmp_path / "data_plan.json").write_text(json.dumps({"cuts": [{"epoch": 0, "start": 8, "stop": 12}]}))
    assert DataPlan.open(tmp_path).changes == (Cut(0, 8, 12, is_early=True),)


def test_what_was_left_out_is_left_out_also_after_a_rollback_to_before_it(tmp_path):
    plan = DataPlan.open(tmp_path)
    plan.add(Exclusion(1, 4, ((7, 9),)), Exclusion(0, 2, ((1, 1),)))
    assert plan.renewed(1, 6) == plan.renewed(1, 4) == ()
    assert plan.renewed(1, 2) == (Exclusion(1, 2, ((7, 9),)),)
    plan.add(*plan.renewed(1, 2))
    assert plan.renewed(1, 3) == ()
    assert plan.renewed(0, 0) == (Exclusion(0, 0, ((7, 9),)), Exclusion(0, 0, ((1, 1),)))


def test_a_window_of_many_epochs_is_refused_at_once_however_many():
    with pytest.raises(CannotSkip, match="a whole epoch"):
        cuts_for(3, 2**53 - 1, Shape(10, 2))

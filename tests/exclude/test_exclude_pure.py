"""The pure part: lists of batches in, lists of batches out."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer_agent.data.carried import Unweighted
from trainer_agent.data.exclusion import filled, ranges_of, samples_in, weighs, without
from trainer_agent.data.leaving_out import changes_for, named_samples
from trainer_agent.data.plan import CannotSkip, Cut, DataPlan, Exclusion, from_text, to_text
from trainer_agent.wire.commands import RollbackPayload
from trainer_agent.wire.vocabulary import DataMode


def rows_of(samples: int, batch: int, world: int = 1) -> list[tuple[list[int], ...]]:
    """The samples in order, dealt out one batch each in turn; what is too little for all ranks is left away."""
    batches = [list(range(at, min(at + batch, samples))) for at in range(0, samples, batch)]
    whole = len(batches) // world * world
    return [tuple(batches[at : at + world]) for at in range(0, whole, world)]


def plain(placed):
    """Numbers alone, a stand-in as the number with a minus (and one less, for 0)."""
    return [[[-1 - s if type(s) is Unweighted else s for s in batch] for batch in row] for _, row in placed]


def test_a_batch_loses_its_samples_and_a_step_that_is_left_empty_goes():
    left = without(enumerate(rows_of(8, 2)), {2, 4, 5}, 0, 1)
    assert [place for place, _ in left] == [0, 1, 3]
    assert plain(left) == [[[0, 1]], [[3]], [[6, 7]]]


def test_a_batch_left_empty_in_a_step_that_is_not_gets_a_stand_in_without_weight():
    left = without(enumerate(rows_of(12, 2)), {2, 3}, 0, 3)
    assert plain(left) == [[[0, 1]], [[-1, -2]], [[4, 5]], [[6, 7]], [[8, 9]], [[10, 11]]]
    assert not weighs(left[1][1][0])
    assert weighs(left[0][1][0])


def test_emptiness_is_decided_over_all_ranks():
    left = without(enumerate(rows_of(12, 2, world=2)), {2, 3, 8, 9, 10, 11}, 0, 1)
    assert plain(left) == [[[0, 1], [-1, -2]], [[4, 5], [6, 7]]]


def test_what_comes_before_the_target_stays_as_it_was():
    assert plain(without(enumerate(rows_of(8, 2)), {0, 1, 4}, 2, 1)) == [[[0, 1]], [[2, 3]], [[5]], [[6, 7]]]


def test_a_stand_in_that_is_left_out_itself_is_replaced():
    once = without(enumerate(rows_of(6, 2)), {2, 3}, 0, 3)
    assert plain(without(once, {0}, 0, 3)) == [[[1]], [[-5, -6]], [[4, 5]]]
    assert plain(without(once, {0, 1}, 0, 3)) == [[[-5, -6]], [[-5, -6]], [[4, 5]]]
    assert without(once, {0, 1, 4, 5}, 0, 3) == []


def test_an_epoch_is_filled_up_from_its_own_start_by_whole_steps():
    rows = rows_of(10, 2)
    left = without(enumerate(rows), {4, 5}, 1, 1)
    assert plain(enumerate(filled(left, without(enumerate(rows), {4, 5}, 0, 1), 5, 1))) == [
        [[0, 1]], [[2, 3]], [[6, 7]], [[8, 9]], [[0, 1]]
    ]  # fmt: skip


def test_a_short_step_that_comes_to_stand_before_others_keeps_what_counts_of_it():
    """Seven places of three are steps of 3, 3 and 1. Without the second, the third stands before what fills up."""
    rows = rows_of(14, 2)
    left = without(enumerate(rows), set(range(6, 12)), 0, 3)
    rows = filled(left, left, 7, 3)
    assert plain(enumerate(rows)) == [[[0, 1]], [[2, 3]], [[4, 5]], [[12, 13]], [[-13, -14]], [[-13, -14]], [[0, 1]]]


def test_a_step_cut_down_to_a_short_end_keeps_what_counts():
    left = without(enumerate(rows_of(14, 2)), {0, 1, *range(6, 12)}, 0, 3)
    assert plain(enumerate(filled(left, left, 7, 3)))[-1] == [[2, 3]]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_kept_samples_keep_their_order_no_left_out_one_comes_and_the_length_stays(data):
    world, size = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    samples, batch = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 4))
    rows = rows_of(samples, batch, world)
    drop = data.draw(st.sets(st.integers(0, 59), max_size=40))
    start = data.draw(st.integers(0, max(0, len(rows) // size))) * size
    left, filler = without(enumerate(rows), drop, start, size), without(enumerate(rows), drop, 0, size)
    result = filled(left, filler, len(rows), size)
    before, after = result[:start], result[start:]
    counted = [s for row in result for b in row for s in b if type(s) is not Unweighted]
    was = [s for at, row in enumerate(rows) for b in row for s in b if at < start or s not in drop]
    assert counted[: len(was)] == was  # each in its order, before anything that fills up
    assert before == rows[: len(before)]
    assert not drop & {int(s) for row in after for b in row for s in b}
    assert all(b for row in result for b in row)
    assert len(result) == len(rows) or not filler
    for at in range(0, len(after), size):
        assert any(weighs(b) for row in after[at : at + size] for b in row)
    for at, group in [(at, rows[at : at + size]) for at in range(start, len(rows), size)]:
        if not drop & {s for row in group for b in row for s in b}:
            assert [place for place in left if place[0] in range(at, at + size)] == list(enumerate(group, at))


@given(st.sets(st.integers(0, 200)))
def test_samples_are_kept_as_ranges(samples):
    ranges = ranges_of(samples)
    assert samples_in(ranges) == samples
    assert all(first[1] + 1 < second[0] for first, second in pairwise(ranges))


def test_changes_are_told_in_a_line():
    changes = (Cut(0, 2, 5), Exclusion(1, 3, ((7, 9),), ("a", "b"), 3))
    assert from_text(to_text(changes)) == changes
    assert from_text(to_text(())) == ()
    assert json.loads(to_text(changes))[1]["documents"] == ["a", "b"]


# --- what a command names


class Documents:
    def __init__(self, names):
        self.names = names

    def __len__(self):
        return len(self.names)

    def __getitem__(self, at):
        return {"x": at} if self.names[at] is None else {"x": at, "document_id": self.names[at]}


def test_a_document_is_all_of_its_samples():
    assert named_samples((3,), ("b",), Documents(["a", "b", "a", "a", "b"]), None, frozenset()) == {1, 3, 4}


@pytest.mark.parametrize(
    ("samples", "documents", "names", "already", "reason"),
    [
        ((), (), "ab", (), "names no samples"),
        ((2,), (), "ab", (), "has 2 samples, and none with the number 2"),
        ((-1,), (), "ab", (), "none with the number -1"),
        ((), ("c", "a"), "ab", (), "no sample is of the document 'c'"),
        ((), ("a",), [None, None], (), "give document_of="),
        ((0, 1), (), "ab", (), "all 2 samples"),
        ((0,), (), "ab", (1,), "all 2 samples"),
        ((), ("a", "b"), "ab", (), "all 2 samples"),
    ],
)
def test_what_cannot_be_left_out_is_refused_with_the_reason(samples, documents, names, already, reason):
    with pytest.raises(CannotSkip, match=reason):
        named_samples(samples, documents, Documents(list(names)), None, frozenset(already))


def test_a_data_set_that_fails_is_a_reason_too():
    def broken(number):
        raise RuntimeError("no such column")

    with pytest.raises(CannotSkip, match="no such column"):
        named_samples((), ("a",), Documents(list("ab")), broken, frozenset())


class Told:
    """A source that says what it is asked."""

    def cut(self, first, last):
        return (Cut(0, first - 1, last),)

    def place_of(self, step, directory):
        return 0, step

    def leave_out(self, samples, documents, epoch, place):
        return Exclusion(epoch, place, ranges_of(samples), documents)


def test_a_rollback_with_replay_keeps_out_what_was_left_out(tmp_path):
    plan = DataPlan.open(tmp_path)
    replay, exclude = RollbackPayload("c", 4, 2), RollbackPayload("c", 4, 2, DataMode.EXCLUDE, exclude_samples=(9,))
    assert changes_for(replay, 9, tmp_path, plan, Told()) == ()
    plan.add(*changes_for(exclude, 9, tmp_path, plan, Told()))
    assert plan.changes == (Exclusion(0, 4, ((9, 9),)),)
    assert changes_for(replay, 9, tmp_path, plan, Told()) == ()
    assert changes_for(RollbackPayload("c", 2, 3), 9, tmp_path, plan, Told()) == (Exclusion(0, 2, ((9, 9),)),)

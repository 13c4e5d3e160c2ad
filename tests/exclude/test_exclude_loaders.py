"""How the plan sits in a loader: the same batches on all ranks, dealt as accelerate deals them, through workers and resumes."""

import json

import pytest
import torch
from accelerate.data_loader import BatchSamplerShard, DataLoaderShard, skip_first_batches
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler

from trainer_agent.data import planned
from trainer_agent.data.carried import Unweighted
from trainer_agent.data.exclusion import ranges_of
from trainer_agent.data.plan import CannotSkip, Cut, DataPlan, Exclusion

NOTHING = Exclusion(0, 0, ((10_000, 10_000),))
"""So the plan applies, and changes nothing."""


def leaving_out(*samples, start=0):
    return Exclusion(0, start, ranges_of(samples))


def loader_of(batches, rank=0, world=1, split=False, even=True, **more):
    dealt = BatchSamplerShard(batches, world, rank, split, even) if world > 1 else batches
    return DataLoaderShard(range(1000), batch_sampler=dealt, **more)


def given(loader, *changes, accumulation=1, fills=True):
    """The batches of a loader after the changes, stand-ins as minus their number and one."""
    made = planned.install(loader, DataPlan(None, changes), accumulation, fills=fills)
    return [[-1 - each if type(each) is Unweighted else each for each in batch] for batch in made]


@pytest.mark.parametrize("samples", [16, 17, 21, 24, 3])
@pytest.mark.parametrize(("world", "split"), [(2, False), (3, False), (2, True)])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_plan_that_leaves_nothing_out_deals_as_accelerate_does(samples, world, split, drop_last):
    for rank in range(world):
        batches = BatchSampler(SequentialSampler(range(samples)), 4, drop_last)
        expected = [list(batch) for batch in BatchSamplerShard(batches, world, rank, split)]
        assert given(loader_of(batches, rank, world, split), NOTHING) == expected


def test_all_ranks_pass_over_a_step_that_is_empty_on_all_and_stand_in_for_one_that_is_not():
    dealt = [given(loader_of(BatchSampler(range(32), 4, False), rank, 2), leaving_out(*range(8, 20))) for rank in range(2)]
    assert dealt[0] == [[0, 1, 2, 3], [-21, -22, -23, -24], [24, 25, 26, 27], [0, 1, 2, 3]]
    assert dealt[1] == [[4, 5, 6, 7], [20, 21, 22, 23], [28, 29, 30, 31], [4, 5, 6, 7]]


def test_a_shuffled_epoch_is_drawn_once_and_as_without_a_plan():
    torch.manual_seed(3)
    plain = list(DataLoader(range(40), batch_size=4, shuffle=True, collate_fn=list))
    state = torch.get_rng_state()
    torch.manual_seed(3)
    loader = DataLoader(range(40), batch_size=4, shuffle=True, collate_fn=list)
    planned.install(loader, DataPlan(None, (leaving_out(7, start=3),)), 1, fills=True)
    assert list(loader) == plain[:3] + [[row for row in batch if row != 7] for batch in plain[3:]]
    assert torch.equal(torch.get_rng_state(), state)


def test_a_distributed_sampler_is_asked_for_all_of_its_ranks():
    for rank in range(2):
        sampler = DistributedSampler(range(16), 2, rank, shuffle=False)
        loader = DataLoader(range(16), batch_size=2, sampler=sampler)
        found = given(loader, leaving_out(0, 2, 4, 6, 5, 7), fills=False)
        assert found == [[[-2, -4], [8, 10], [12, 14]], [[1, 3], [9, 11], [13, 15]]][rank]


def test_workers_and_a_resume_in_the_middle_get_what_the_plan_leaves():
    loader = loader_of(BatchSampler(range(40), 4, False), collate_fn=list, num_workers=1)
    planned.install(loader, DataPlan(None, (Cut(0, 1, 2), leaving_out(*range(12, 16)))), 1, fills=True)
    batches = [list(range(at, at + 4)) for at in range(0, 40, 4)]
    expected = [batches[0], batches[2], *batches[4:], batches[0], batches[0]]  # each change fills up from the start
    assert list(skip_first_batches(loader, 3)) == expected[3:]


def test_the_epoch_reaches_the_plan_on_every_way():
    """An exclusion of a later epoch holds there, whoever tells it: the loader, a resumed one, or a script to the sampler."""
    late = Exclusion(1, 0, ((0, 3),))
    for world in (1, 2):
        loader = loader_of(BatchSampler(RandomSampler(range(16)), 4, False), world=world)
        made = planned.install(loader, DataPlan(None, (late,)), 1, fills=True)
        for tell in (loader.set_epoch, skip_first_batches(loader, 1).set_epoch, made.set_epoch, made.sampler.set_epoch):
            tell(0)
            assert made._epoch == 0 or tell(0)
            tell(1)
            assert made._epoch == 1
            assert not {0, 1, 2, 3} & {int(row) for batch in made for row in batch}


def test_an_epoch_keeps_its_length_in_the_trainer_and_is_shorter_in_a_loop():
    batches = BatchSampler(range(40), 4, False)
    assert len(given(loader_of(batches), leaving_out(*range(8, 16)))) == 10
    made = planned.install(loader_of(batches), DataPlan(None, (leaving_out(*range(8, 16)),)), 1, fills=False)
    assert len(list(made)) == 8
    assert [made.place_of(number) for number in range(9)] == [0, 1, *range(4, 10), None]


def test_a_share_tells_what_counts_of_a_step():
    made = planned.install(
        loader_of(BatchSampler(range(48), 4, False), 1, 2), DataPlan(None, (leaving_out(*range(12, 16)),)), 3, fills=True
    )
    list(made)
    share = made.share_of(2)
    assert (share.own, share.batches, share.ranks, share.world_size) == ({0: True, 1: False, 2: True}, 5, 2, 2)
    assert made.share_of(3) is None


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(8))


@pytest.mark.parametrize(
    ("loader", "reason"),
    [
        (lambda: DataLoader(Stream(), batch_size=2), "iterable"),
        (lambda: [1, 2, 3], "come from a list"),
        (lambda: DataLoader(range(8), batch_sampler=[[0, 1], [2, 3]]), "come from a list"),
        (lambda: loader_of(BatchSampler(range(8), 4, False), 0, 2, even=False), "even_batches=False"),
    ],
)
def test_a_loader_whose_order_cannot_be_changed_says_why(loader, reason):
    with pytest.raises(CannotSkip, match=reason):
        planned.dealing_of(loader())


def test_a_plan_of_the_first_version_counts_samples(tmp_path):
    """Its cuts were made in the order of samples, and filled a short last batch up."""
    (tmp_path / "data_plan.json").write_text(json.dumps({"cuts": [{"epoch": 0, "start": 4, "stop": 8}]}))
    loader = DataLoader(range(10), batch_size=4)
    made = planned.install(loader, DataPlan.open(tmp_path), 1, fills=True)
    assert list(made) == [[0, 1, 2, 3], [8, 9, 0, 1], [2, 3]]

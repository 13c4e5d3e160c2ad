"""Every batch carries the numbers of its samples, whatever loader, workers, data set and collator it comes from."""

import pickle
from typing import NamedTuple

import numpy as np
import pytest
import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.utils import send_to_device
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler
from transformers import BatchEncoding

from trainer_agent.data import samples
from trainer_agent.data.carried import LONGEST_DOCUMENT_ID, Carried, document_id
from trainer_agent.data.samples import Ids, Taking, Unweighted, documents_of, install, take, uninstall

COUNT, BATCH = 23, 4


class Numbers(Dataset):
    """Item i tells its number; `extra` is an attribute of the data set's own."""

    extra = "mine"

    def __init__(self, make=lambda i: {"x": torch.tensor([i]), "document_id": f"d{i // 5}"}):
        self.make, self.epoch = make, 0

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        assert type(index) is not Unweighted, "the data set is asked as ever"
        if isinstance(index, int) and index >= COUNT:
            raise IndexError(index)
        return self.make(index)

    def set_epoch(self, epoch):
        self.epoch = epoch


class InBlocks(Numbers):
    """As data sets do that fetch a batch at once; keys come as the sampler gives them."""

    def __getitems__(self, keys):
        assert isinstance(keys, list)
        return [self.make(int(key)) for key in keys]


class Stream(IterableDataset):
    def __iter__(self):
        yield from ({"x": torch.tensor([i]), "document_id": i // 5} for i in range(COUNT))


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


def dictionary(items):
    return {"x": torch.stack([item["x"] for item in items])}


def encoded(items):
    return BatchEncoding(dictionary(items))


def taking_apart(items):
    """Takes the items apart, as collators do."""
    return {"x": torch.stack([item.pop("x") for item in items]), "n": [item.pop("document_id") for item in items]}


def named(items):
    x = dictionary(items)["x"]
    return Pair(x, x)


def bare(items):
    return dictionary(items)["x"]


def seen_in(batch) -> list[int]:
    x = batch["x"] if isinstance(batch, dict | BatchEncoding) else batch[0] if isinstance(batch, tuple) else batch
    return x.flatten().tolist()


def drained(loader) -> list[tuple[object, Ids]]:
    return [take(batch) for batch in loader]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("collate", [None, dictionary, encoded, taking_apart, named, bare])
def test_a_batch_is_what_it_was_and_its_ids_are_the_samples_in_it(workers, collate):
    order = torch.Generator().manual_seed(3)
    loader = DataLoader(Numbers(), BATCH, shuffle=True, num_workers=workers, collate_fn=collate, generator=order)
    plain = list(DataLoader(Numbers(), BATCH, shuffle=True, collate_fn=collate, generator=torch.Generator().manual_seed(3)))
    assert install(loader, "document_id") == ""
    got = drained(loader)
    assert [len(ids.samples) for _, ids in got] == [4, 4, 4, 4, 4, 3]
    for (batch, ids), before in zip(got, plain, strict=True):
        assert type(batch) is type(before)
        assert seen_in(batch) == seen_in(before) == list(ids.samples)
        assert ids.documents == tuple(f"d{i // 5}" for i in ids.samples)
        assert ids.weighs


@pytest.mark.parametrize("data", [Numbers, InBlocks])
def test_the_data_set_is_still_the_users(data):
    mine = data()
    loader = DataLoader(mine, BATCH)
    install(loader)
    assert isinstance(loader.dataset, data)
    assert loader.dataset.extra == "mine"
    assert len(loader.dataset) == COUNT
    assert loader.dataset[3]["x"].item() == 3
    assert [item["x"].item() for item in loader.dataset][:3] == [0, 1, 2]
    loader.dataset.set_epoch(4)
    loader.dataset.extra = "changed"
    assert (mine.epoch, mine.extra) == (4, "changed")
    assert type(pickle.loads(pickle.dumps(Carried({"a": 1}, Ids((1,)))))) is Carried
    install(loader)
    assert loader.dataset.lossguard_inner is mine, "twice is once"
    uninstall(loader)
    assert loader.dataset is mine
    assert type(next(iter(loader))) is dict


def test_numpy_and_tensor_numbers_are_numbers_and_names_are_none():
    for keys in ([np.int64(3), np.int64(1)], [torch.tensor(3), torch.tensor(1)]):
        loader = DataLoader(InBlocks(), batch_sampler=[keys])
        install(loader)
        assert drained(loader)[0][1].samples == (3, 1)
    loader = DataLoader(Numbers(lambda name: {"x": torch.ones(1), "document_id": name}), batch_sampler=[["b", "a"]])
    install(loader)
    assert drained(loader)[0][1] == Ids((), ("b", "a"))


def test_a_batch_of_unweighted_samples_says_so():
    for data in (Numbers(), InBlocks()):
        loader = DataLoader(data, batch_sampler=[[Unweighted(5)], [Unweighted(5), 6]], num_workers=1)
        install(loader)
        assert [(ids.samples, ids.weighs) for _, ids in drained(loader)] == [((5,), False), ((5, 6), True)]


class Whole(Numbers):
    def __getitem__(self, keys):
        return {"x": torch.tensor(keys), "document_id": [f"d{key // 5}" for key in keys]}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_set_that_gives_whole_batches(workers):
    loader = DataLoader(Whole(), batch_size=None, sampler=BatchSampler(SequentialSampler(Whole()), 4, False), num_workers=workers)
    install(loader)
    got = drained(loader)
    assert [ids.samples for _, ids in got] == [tuple(seen_in(batch)) for batch, _ in got]
    assert got[1][1].documents == ("d0", "d1", "d1", "d1")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_with_one_reader_is_numbered_as_it_is_read_anew_each_epoch(workers):
    loader = DataLoader(Stream(), BATCH, num_workers=workers)
    install(loader)
    for _ in range(2):
        got = drained(loader)
        assert [list(ids.samples) for _, ids in got] == [seen_in(batch) for batch, _ in got]
        assert got[1][1].documents == ("0", "1", "1", "1")


def test_a_stream_with_several_readers_has_documents_but_no_numbers():
    loader = DataLoader(Stream(), BATCH, num_workers=2)
    install(loader)
    _, ids = drained(loader)[0]
    assert ids == Ids((), ("0", "0", "0", "0"))


@pytest.mark.parametrize("workers", [0, 2])
def test_accelerates_loaders_look_ahead_skip_and_place_batches_and_the_ids_stay_right(workers):
    loader = Accelerator(cpu=True).prepare(DataLoader(Numbers(), BATCH, shuffle=True, num_workers=workers))
    install(loader)
    for each in (loader, skip_first_batches(loader, 2)):
        got = drained(each)
        assert [list(ids.samples) for _, ids in got] == [seen_in(batch) for batch, _ in got]
        assert all(type(batch) is dict for batch, _ in got)
    assert len(got) == 4


def test_accelerates_dispatched_stream_has_no_ids_and_that_is_said(capsys):
    loader = Accelerator(cpu=True).prepare(DataLoader(Stream(), BATCH))
    samples._voice.forget("no ids " + install(loader))
    assert "dispatch_batches" in install(loader)
    assert "not recorded" in capsys.readouterr().err
    assert take(next(iter(loader)))[1] is None


def test_a_batch_sent_to_a_device_leaves_its_ids_where_they_are():
    for made in ({"x": torch.ones(2)}, (torch.ones(2), 5), torch.ones(2), BatchEncoding({"x": torch.ones(2)})):
        sent = send_to_device(Carried(made, Ids((1, 2))), torch.device("meta"), non_blocking=True)
        batch, ids = take(sent)
        assert type(batch) is type(made)
        assert ids == Ids((1, 2))
        first = batch["x"] if isinstance(batch, dict | BatchEncoding) else batch[0] if isinstance(batch, tuple) else batch
        assert first.device.type == "meta"


def test_who_looks_into_the_loader_on_their_own_finds_a_batch():
    loader = DataLoader(Numbers(), BATCH)
    install(loader)
    batch = next(iter(loader))
    assert isinstance(batch, dict)
    assert sorted(batch) == ["document_id", "x"]
    assert "x" in batch
    assert dict(**batch)["x"].shape == (4, 1)
    one = Carried(torch.tensor([1.0, 2.0]), Ids((1, 2)))
    assert torch.mul(one, 2).sum().item() == 6


def test_a_function_names_the_documents_and_one_that_fails_costs_only_the_documents(capsys):
    def of(number):
        return {0: "zero"}[number]

    loader = DataLoader(Numbers(), 1, sampler=[0, 1])
    install(loader, of)
    samples._voice.forget("documents")
    assert [ids for _, ids in drained(loader)] == [Ids((0,), ("zero",)), Ids((1,), None)]
    assert "documents" in capsys.readouterr().err


def test_workers_started_afresh_get_all_of_it():
    loader = DataLoader(Numbers(make), BATCH, num_workers=1, multiprocessing_context="spawn")
    install(loader, lambda number: number)  # which cannot be given to them
    got = drained(loader)
    assert [list(ids.samples) for _, ids in got] == [seen_in(batch) for batch, _ in got]


def make(index):
    return {"x": torch.tensor([index])}


def test_an_iterator_is_rid_of_the_ids_on_its_way():
    loader = DataLoader(Numbers(), BATCH)
    install(loader)
    told = []
    batches = list(Taking(iter(loader), lambda batch, ids: told.append((batch, ids.samples))))
    assert [batch for batch, _ in told] == batches
    assert [list(numbers) for _, numbers in told] == [seen_in(batch) for batch in batches]


class Columns(Numbers):
    column_names = ("x", "document_id")

    def select_columns(self, names):
        return Numbers(lambda i: {"document_id": f"c{i}"})

    def with_format(self, kind):
        return self


def test_all_documents_of_a_data_set():
    assert list(documents_of(Numbers()))[:6] == [(0, "d0"), (1, "d0"), (2, "d0"), (3, "d0"), (4, "d0"), (5, "d1")]
    assert list(documents_of(Numbers(), lambda number: number % 2))[:2] == [(0, "0"), (1, "1")]
    assert next(documents_of(Columns())) == (0, "c0")
    assert list(documents_of(Numbers(make))) == []


def test_a_long_id_is_the_same_wherever_it_is_made():
    long = "x" * 5000
    assert len(document_id(long)) == LONGEST_DOCUMENT_ID
    assert document_id(long) == document_id(long.encode())
    assert document_id(long + "y") != document_id(long)
    assert document_id(torch.tensor(7)) == document_id(np.int64(7)) == "7"


def test_nothing_is_drawn_from_a_random_state():
    states = []
    for watched in (False, True):
        torch.manual_seed(5)
        loader = DataLoader(Numbers(), BATCH, sampler=RandomSampler(Numbers()))
        if watched:
            install(loader)
        for _ in loader:
            pass
        states.append(torch.get_rng_state())
    assert torch.equal(*states)

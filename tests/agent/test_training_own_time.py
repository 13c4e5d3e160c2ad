"""A rank's own time: data and forward passes, without the backward pass in which ranks wait for each other."""

import torch

from trainer_agent.measuring.own_hooks import OwnHook
from trainer_agent.measuring.own_time import OwnTime


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Model(torch.nn.Module):
    """Takes its time over a forward pass."""

    def __init__(self, clock, seconds):
        super().__init__()
        self.clock, self.seconds = clock, seconds

    def forward(self, rows):
        self.clock.now += self.seconds
        return rows


def made(seconds=2.0):
    clock = Clock()
    model, own = Model(clock, seconds), OwnTime(clock)
    own.attach(model, OwnHook)
    return clock, model, own


def test_it_is_the_wait_for_data_and_the_forward_pass_and_not_what_comes_after():
    clock, model, own = made()
    clock.now += 3.0  # the data
    model(torch.ones(1))
    clock.now += 50.0  # backward, all-reduce, update
    assert own.take() == 5.0


def test_of_several_micro_batches_the_forward_passes_count_and_the_time_between_them_does_not():
    clock, model, own = made()
    for _ in range(3):
        model(torch.ones(1))
        clock.now += 10.0
    assert own.take() == 6.0


def test_what_a_rank_does_before_it_is_let_go_is_not_its_own():
    clock, model, own = made()
    model(torch.ones(1))
    own.take()
    clock.now += 30.0  # waits at the step's end, saves, evaluates
    own.free()
    clock.now += 1.0
    model(torch.ones(1))
    assert own.take() == 3.0


def test_an_evaluation_and_a_step_without_a_forward_pass_have_none():
    _, model, own = made()
    model.eval()
    model(torch.ones(1))
    assert own.take() is None


def test_it_says_nothing_before_it_is_attached_nor_after():
    clock, model, own = made()
    own.detach()
    model(torch.ones(1))
    assert own.take() is None
    never = OwnTime(clock)
    never.free()
    assert never.take() is None

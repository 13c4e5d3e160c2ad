"""The factor on a learning rate, in optimizers whose steps break off, nest or take closures."""

import pytest
import torch

from trainer_agent.commands.overrides import RateFactor


class Child(torch.optim.SGD):
    """Its step calls that of its parent."""

    def step(self, closure=None):
        return super().step(closure)


def made(kind=torch.optim.SGD, rate=0.5):
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)  # so that torch has its hooks in the parent's step, too
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = kind([weight], lr=rate)
    factor = RateFactor()
    factor.attach(optimizer)
    factor.factor = 0.25
    return weight, optimizer, factor


def moved(weight, optimizer) -> float:
    """How far a step with a gradient of 1 goes, which is the rate that it was made with."""
    before, weight.grad = weight.detach().clone(), torch.ones(1)
    optimizer.step()
    return float(before - weight.detach())


def broken(optimizer) -> None:
    def closure():
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"):
        optimizer.step(closure)


@pytest.mark.parametrize("rate", [0.5, torch.tensor(0.5)], ids=["number", "tensor"])
@pytest.mark.parametrize("kind", [torch.optim.SGD, Child])
def test_after_a_step_that_broke_off_the_factor_holds_as_before(kind, rate):
    weight, optimizer, factor = made(kind, rate)
    assert moved(weight, optimizer) == 0.125
    for _ in range(2):
        broken(optimizer)
        assert [moved(weight, optimizer), moved(weight, optimizer)] == [0.125, 0.125]
        assert optimizer.param_groups[0]["lr"] == 0.5
    broken(optimizer)
    factor.factor = 1.0
    assert moved(weight, optimizer) == 0.5


def test_a_schedule_that_went_on_after_a_step_that_broke_off_keeps_its_rate():
    weight, optimizer, _ = made()
    broken(optimizer)
    optimizer.param_groups[0]["lr"] = 0.25
    assert moved(weight, optimizer) == 0.0625
    assert optimizer.param_groups[0]["lr"] == 0.25

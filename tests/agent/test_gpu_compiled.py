"""A compiled model keeps its graphs under watch. The backend is dynamo's own: what is asked is what is compiled, not how."""

from types import SimpleNamespace

import pytest
import torch
import torch._dynamo
from training_kit import trainer

from trainer_agent.hf import LossGuardCallback, guarded_train
from trainer_agent.measuring.probes import Probes
from trainer_agent.policy import Policy
from trainer_agent.wire import series

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # dynamo looks at it
STEPS, MICRO_BATCHES = 3, 2


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch._dynamo.utils.clear_compilation_metrics()
    yield
    torch._dynamo.reset()


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = torch.nn.Embedding(64, 4), torch.nn.Linear(4, 4)

    def forward(self, input_ids, labels=None):
        return {"loss": self.head(self.table(input_ids)).pow(2).mean()}


def wrapped(model, **options):
    return torch.compile(model, **options)


def in_place(model, **options):
    model.compile(**options)
    return model


def within(model, **options):
    """A part of the model is called by a compiled function of the script's."""
    return torch.compile(lambda input_ids: model(input_ids=input_ids), **options)


def compiled_frames(model, call, errors, *, watched, look_inside=True):
    """Trains a little and gives how many frames were compiled, and what was seen."""
    probes = Probes(from_forward=True, on_error=errors.append)
    seen = []
    if watched:
        probes.attach(model, SimpleNamespace(scaler=None), look_inside=look_inside)
    for step in range(1, STEPS + 1):
        probes.begin_step()
        for _ in range(MICRO_BATCHES):
            call(input_ids=torch.randint(0, 16, (2, 4)))["loss"].backward()
        seen += probes.end_step(step)
    return len(torch._dynamo.utils.get_compilation_metrics()), seen


@pytest.mark.parametrize("way", [wrapped, in_place, within])
@pytest.mark.parametrize("given", ["model", "result"])
def test_hooks_are_no_part_of_what_is_compiled_and_break_no_whole_graph(way, given):
    """`fullgraph=True` raises in the user's own forward pass at the first thing that cannot be compiled."""
    errors = []
    plain = Small()
    frames, _ = compiled_frames(plain, way(plain, backend="eager", fullgraph=True), errors, watched=False)
    torch._dynamo.reset()
    torch._dynamo.utils.clear_compilation_metrics()
    model = Small()
    call = way(model, backend="eager", fullgraph=True)
    target = call if given == "result" and isinstance(call, torch.nn.Module) else model
    watched_frames, seen = compiled_frames(target, call, errors, watched=True, look_inside=way is not wrapped or target is call)
    assert watched_frames == frames
    assert not errors
    if way is not within:
        assert [reading.values[series.TOKENS_PER_SECOND] > 0 for reading in seen] == [True] * STEPS
        assert [series.LOSS in reading.values for reading in seen] == [True] * STEPS


@pytest.mark.parametrize("alone", [False, True])
def test_a_trainer_that_compiles_compiles_as_much_under_watch_as_without(tmp_path, monkeypatch, alone):
    monkeypatch.delenv("LOSSGUARD_URL", raising=False)
    frames = []
    for watched in (False, True):
        torch._dynamo.reset()
        torch._dynamo.utils.clear_compilation_metrics()
        setting = {"torch_compile": True, "torch_compile_backend": "eager", "gradient_accumulation_steps": 2}
        training = trainer(tmp_path / str(watched), model=Small(), remove_unused_columns=False, max_steps=2, **setting)
        if not watched:
            training.train()
        elif alone:
            training.add_callback(LossGuardCallback(Policy.watch_only()))
            training.train()
        else:
            guarded_train(training, Policy.watch_only())
        frames.append(len(torch._dynamo.utils.get_compilation_metrics()))
    assert frames[0] == frames[1] > 0

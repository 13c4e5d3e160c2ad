"""The agent never waits for a GPU. There is none here: see `gpu_stub` for what stands in its place."""

import math
import sys
from types import SimpleNamespace

import pytest
import torch
from gpu_stub import NOT_YET, Gpu, Stream
from torch.utils._python_dispatch import TorchDispatchMode
from training_kit import At, HalfTrainer, Tape, tape, trainer

from trainer_agent.config import Config
from trainer_agent.hf import guarded_train
from trainer_agent.measuring import landing
from trainer_agent.measuring.finite import nonfinite_tensor
from trainer_agent.measuring.probes import Probes
from trainer_agent.monitor import Monitor
from trainer_agent.policy import Policy
from trainer_agent.wire import series
from trainer_agent.wire.messages import RunStart
from trainer_agent.wire.vocabulary import CommandState

WATCH = Policy.watch_only()


@pytest.fixture
def gpu(monkeypatch) -> Gpu:
    return Gpu(monkeypatch)


@pytest.fixture
def taped(monkeypatch, tmp_path) -> Tape:
    return tape(monkeypatch, tmp_path)


class Scaler:
    """A loss scaler whose scale lies on the GPU."""

    def __init__(self, gpu, scale=1024.0):
        self._scale, self.gpu = gpu.tensor(scale), gpu

    def is_enabled(self):
        return True

    def get_scale(self):
        return self._scale.item()


def probes_on(gpu, errors=None, **optimizer):
    """Probes of a training whose scaler and learning rate lie on the GPU."""
    made = Probes(from_forward=False, on_error=(errors if errors is not None else []).append)
    scaler = Scaler(gpu)
    rate = optimizer.get("lr", gpu.tensor(0.5))
    made.attach(torch.nn.Linear(1, 1), SimpleNamespace(scaler=scaler, param_groups=[{"lr": rate}]))
    gpu.waits.clear()  # a training may wait once for its start
    return made, scaler, SimpleNamespace(param_groups=[{"lr": rate}])


def one_step(gpu, probes, optimizer, step, loss=None):
    probes.begin_step()
    probes.take_loss(gpu.tensor(float(step) if loss is None else loss))
    probes.take_norm(gpu.tensor(step / 2))
    probes.before_update(optimizer)
    return probes.end_step(step)


def test_no_step_waits_for_the_gpu_and_none_allocates_pinned_memory(gpu, figure):
    probes, _, optimizer = probes_on(gpu)
    readings = []
    one_step(gpu, probes, optimizer, 1)
    events = gpu.events
    for step in range(2, 101):
        readings += one_step(gpu, probes, optimizer, step)
        if step % 3 == 0:  # the GPU is up to three steps behind
            gpu.run()
    gpu.run()
    readings += one_step(gpu, probes, optimizer, 101)
    assert [reading.step for reading in readings] == list(range(1, 101))
    assert all(r.values[series.LOSS] == r.step and r.values[series.GRAD_NORM] == r.step / 2 for r in readings)
    assert all(r.values[series.LEARNING_RATE] == 0.5 and r.values[series.LOSS_SCALE] == 1024.0 for r in readings)
    figure("R46", "waits for a GPU on the training thread in 100 steps (stand-in)", len(gpu.waits), at_most=0)
    figure("R46", "allocations of pinned memory in 100 steps (stand-in)", gpu.pinned, at_most=1)
    assert gpu.events == events


def test_a_number_is_read_only_after_its_event_and_told_under_its_own_step(gpu):
    probes, scaler, optimizer = probes_on(gpu)
    assert one_step(gpu, probes, optimizer, 1, loss=math.nan) == []
    gpu.run()
    with torch.no_grad():
        scaler._scale.inner.fill_(512.0)  # the scaler skips step 2, in place
    (first,) = one_step(gpu, probes, optimizer, 2)
    assert math.isnan(first.values[series.LOSS])
    assert (first.values[series.LOSS_SCALE], first.values[series.OVERFLOW]) == (1024.0, 0.0)
    gpu.run()
    (second,) = one_step(gpu, probes, optimizer, 3)
    assert (second.step, second.values[series.LOSS_SCALE], second.values[series.OVERFLOW]) == (2, 1024.0, 1.0)
    assert second.facts.skipped
    assert not gpu.waits


def test_a_drain_waits_and_loses_nothing(gpu):
    probes, _, optimizer = probes_on(gpu)
    for step in (1, 2, 3):
        one_step(gpu, probes, optimizer, step)
    readings = probes.drain()
    assert [(r.step, r.values[series.LOSS]) for r in readings] == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert NOT_YET not in {value for r in readings for value in r.values.values()}
    assert set(gpu.waits) == {"Event.synchronize"}


def test_numbers_of_several_gpus_and_streams_are_each_copied_on_their_own(gpu):
    probes, _, optimizer = probes_on(gpu)
    side = Stream(torch.device("cuda:1"))
    probes.begin_step()
    with gpu.on(side):
        probes.take_loss(gpu.tensor(7.0, "cuda:1"))
    probes.take_norm(gpu.tensor(2.0, "cuda:0"))
    assert probes.end_step(1) == []
    gpu.run()  # all streams but the one at the side: its number is not there
    assert one_step(gpu, probes, optimizer, 2) == []
    gpu.run(side)
    (first,) = probes._read(wait=False)[:1]
    assert (first.values[series.LOSS], first.values[series.GRAD_NORM]) == (7.0, 2.0)
    assert not gpu.waits


def test_a_loss_that_is_overwritten_by_the_next_micro_batch_is_kept(gpu):
    """As under a CUDA graph, which writes each loss into the same place."""
    probes, _, _ = probes_on(gpu)
    place = gpu.tensor(1.0)
    probes.take_loss(place)
    place.inner.fill_(10.0)
    probes.take_loss(place)
    place.inner.fill_(100.0)
    probes.end_step(1)
    gpu.run()
    assert [r.values[series.LOSS] for r in probes._read(wait=False)] == [11.0]
    on_cpu = Probes(from_forward=False)
    on_cpu.attach(torch.nn.Linear(1, 1), SimpleNamespace(scaler=None))
    same = torch.tensor(1.0)
    on_cpu.take_loss(same)
    same.fill_(5.0)
    assert on_cpu.end_step(1)[0].values[series.LOSS] == 1.0


def test_a_gpu_that_falls_far_behind_costs_numbers_and_never_a_wait(gpu, monkeypatch):
    monkeypatch.setattr(landing, "SLOTS", slots := 8)
    errors = []
    probes, _, optimizer = probes_on(gpu, errors)
    for step in range(1, slots + 3):
        assert one_step(gpu, probes, optimizer, step) == []
    assert {type(error) for error in errors} == {landing.FarBehindError}
    assert len(errors) == 2
    gpu.run()
    readings = one_step(gpu, probes, optimizer, slots + 3)
    assert [r.step for r in readings] == list(range(1, slots + 4))
    assert [r.step for r in readings if series.LOSS not in r.values] == [slots + 1, slots + 2, slots + 3]
    assert all(series.STEP_SECONDS in r.values and r.facts.has_scaler for r in readings)
    one_step(gpu, probes, optimizer, slots + 4)
    gpu.run()
    assert one_step(gpu, probes, optimizer, slots + 5)[0].values[series.LOSS] == slots + 4
    assert not gpu.waits


def test_without_pinned_memory_the_step_goes_on_and_is_told_without_its_numbers(gpu):
    errors = []
    probes, _, optimizer = probes_on(gpu, errors)
    gpu.can_pin = False
    (reading,) = one_step(gpu, probes, optimizer, 1)
    assert series.LOSS not in reading.values
    assert series.STEP_SECONDS in reading.values
    assert len(errors) == 1
    gpu.can_pin = True
    one_step(gpu, probes, optimizer, 2)
    gpu.run()
    assert one_step(gpu, probes, optimizer, 3)[0].values[series.LOSS] == 2.0
    assert not gpu.waits


def test_a_norm_spread_over_processes_is_left_alone(gpu):
    class Spread(torch.Tensor):
        placements = ("partial",)

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise AssertionError(f"{func} of a tensor that all processes would have to read together")

    probes, _, _ = probes_on(gpu)
    probes.take_loss(torch.tensor(1.0).as_subclass(Spread))
    probes.take_norm(torch.tensor(1.0).as_subclass(Spread))
    assert not set(probes._numbers(probes._now)) & {series.LOSS, series.GRAD_NORM}


def test_log_and_the_writer_ask_nothing_of_a_tensor(gpu, tmp_path):
    start = RunStart(run_id="run", incarnation="a" * 32, project="p", name="n")
    monitor = Monitor(start, Config(), tmp_path)
    monitor.begin()
    monitor.log({"train/loss": gpu.tensor(1.0), "train/other": 2.0}, 1)
    monitor.flush(10)
    assert gpu.waits == []
    assert monitor._writer.unusable == 1
    assert monitor._writer.latest == {"train/other": 2.0}
    monitor._finish(5)


# --- a whole training


class Reads(TorchDispatchMode):
    """Counts the moments at which a tensor's value is asked for by the agent itself, whatever tensor it is."""

    ASKING = ("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "item")

    def __init__(self):
        super().__init__()
        self.asked, self.all = [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in self.ASKING:
            self.all += 1
            frame = sys._getframe(1)
            while frame and "/torch/" in frame.f_code.co_filename:
                frame = frame.f_back
            if frame and "/trainer_agent/" in frame.f_code.co_filename:
                self.asked.append(f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_code.co_name}")
        return func(*args, **kwargs or {})


class Moved:
    """Lets every number that the probes take lie on the stand-in GPU, which is one step behind."""

    def __init__(self, gpu, monkeypatch):
        self.gpu, self.at, self.waits = gpu, 0, {}
        take_loss, take_norm, numbers, end = Probes.take_loss, Probes.take_norm, Probes._numbers, Probes.end_step

        def behind(probes, step):
            self.at = step
            for stream in gpu.streams():  # what was queued for the step before is done now
                gpu.run(stream)
            return end(probes, step)

        def moved(probes, gathered):
            found = numbers(probes, gathered)
            scale = found.get("scale_after")
            return found | ({"scale_after": landing.far(gpu.tensor(scale))} if isinstance(scale, torch.Tensor) else {})

        monkeypatch.setattr(Probes, "take_loss", lambda p, loss: take_loss(p, gpu.tensor(loss)))
        monkeypatch.setattr(Probes, "take_norm", lambda p, norm: take_norm(p, gpu.tensor(norm)))
        monkeypatch.setattr(Probes, "_numbers", moved)
        monkeypatch.setattr(Probes, "end_step", behind)


def test_a_whole_training_asks_for_no_value_between_its_saves(gpu, taped, tmp_path, monkeypatch, figure):
    Moved(gpu, monkeypatch)
    training = trainer(tmp_path, kind=HalfTrainer, fp16=True, max_steps=12, logging_steps=100)
    with Reads() as reads:
        guarded_train(training, WATCH)
    losses = taped.series(series.LOSS)
    assert list(losses) == list(range(1, 13))
    assert all(math.isfinite(loss) and loss != NOT_YET for loss in losses.values())
    assert len(taped.series(series.LOSS_SCALE)) == 12
    assert reads.all > 0  # the Trainer's own
    # at the end of the training, when the last step is waited for
    assert gpu.waits in ([], ["Event.synchronize"])
    figure("R46", "values the agent asks for in a training of 12 steps", len(reads.asked), at_most=0)


def test_a_rollback_loses_no_step_that_is_still_on_the_gpu(gpu, taped, tmp_path, monkeypatch):
    Moved(gpu, monkeypatch)
    training = trainer(tmp_path, At(5, lambda **_: taped.rollback(2)), kind=HalfTrainer, fp16=True, max_steps=8, save_steps=2)
    guarded_train(training)
    assert [report.state for report in taped.reports][-1] is CommandState.SUCCEEDED
    assert list(taped.series(series.LOSS, 1)) == [1, 2, 3, 4, 5]  # and step 5 saves nothing
    assert list(taped.series(series.LOSS, 2)) == [3, 4, 5, 6, 7, 8]


# --- weights before a save


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float16, torch.float64])
def test_weights_of_every_kind_can_be_looked_at(dtype):
    sound, sick = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    for model in (sound, sick):
        model.weight = torch.nn.Parameter(torch.ones(3, 3).to(dtype), requires_grad=False)
    sick.weight.data[1, 1] = math.nan
    assert nonfinite_tensor(sound) is None
    assert nonfinite_tensor(sick) == "weight"


def test_weights_that_are_kept_outside_memory_are_not_asked():
    with torch.device("meta"):
        model = torch.nn.Linear(3, 3)
    assert nonfinite_tensor(model) is None

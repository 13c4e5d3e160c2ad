"""What is read of the GPU beside the training. NVML is not here, so a stand-in answers as NVML does, failures included."""

# ruff: noqa: N802  the names of NVML

import sys
import threading
import types
from types import SimpleNamespace

import pytest
import torch
from training_kit import until

from trainer_agent.measuring.system import Source, SystemSampler, gpu_source
from trainer_agent.wire import series

UUIDS = ["GPU-00000000-aaaa", "GPU-11111111-bbbb", "GPU-22222222-cccc", "MIG-33333333-dddd"]


class Nvml(types.ModuleType):
    """Three GPUs and a slice, as the driver counts them. `failing` names the questions that fail."""

    NVML_TEMPERATURE_GPU = 0

    class NVMLError(Exception):
        pass

    def __init__(self, failing=()):
        super().__init__("pynvml")
        self.failing, self.asked = set(failing), []

    def _ask(self, name):
        self.asked.append(name)
        if name in self.failing or "all" in self.failing:
            raise self.NVMLError(name)

    def nvmlInit(self):
        self._ask("init")

    def nvmlDeviceGetHandleByUUID(self, uuid):
        self._ask("handle")
        if uuid not in UUIDS:
            raise self.NVMLError("Not Found")
        return UUIDS.index(uuid)

    def nvmlDeviceGetMemoryInfo(self, handle):
        self._ask("memory")
        return SimpleNamespace(used=(handle + 1) << 30)

    def nvmlDeviceGetUtilizationRates(self, handle):
        self._ask("load")
        return SimpleNamespace(gpu=75)

    def nvmlDeviceGetTemperature(self, handle, sensor):
        self._ask("temperature")
        return 61

    def nvmlDeviceGetTemperatureV(self, handle, sensor):
        self._ask("new temperature")
        return 62

    def nvmlDeviceGetPowerUsage(self, handle):
        self._ask("power")
        return 412_500


@pytest.fixture
def machine(monkeypatch):
    """torch sees what CUDA_VISIBLE_DEVICES=2,0 leaves: its GPU 0 is the driver's 2."""

    def make(nvml, visible=("22222222-cccc", "00000000-aaaa")):
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=visible[index]))
        return nvml

    return make


def test_the_gpu_that_torch_uses_is_the_one_that_is_read(machine):
    machine(Nvml())
    assert gpu_source(0)() == {
        series.GPU_MEMORY_BYTES: float(3 << 30),
        series.GPU_UTILIZATION_RATIO: 0.75,
        series.GPU_TEMPERATURE_CELSIUS: 61.0,
        series.GPU_POWER_WATTS: 412.5,
    }
    assert gpu_source(1)()[series.GPU_MEMORY_BYTES] == float(1 << 30)


def test_a_slice_of_a_divided_gpu_is_found_by_its_own_name(machine):
    machine(Nvml(), visible=["33333333-dddd", "MIG-33333333-dddd"])
    assert gpu_source(0)()[series.GPU_MEMORY_BYTES] == gpu_source(1)()[series.GPU_MEMORY_BYTES] == float(4 << 30)


@pytest.mark.parametrize(
    ("failing", "left"),
    [
        ({"load"}, {series.GPU_MEMORY_BYTES, series.GPU_TEMPERATURE_CELSIUS, series.GPU_POWER_WATTS}),
        ({"memory", "power"}, {series.GPU_UTILIZATION_RATIO, series.GPU_TEMPERATURE_CELSIUS}),
        ({"temperature", "new temperature", "load"}, {series.GPU_MEMORY_BYTES, series.GPU_POWER_WATTS}),
        ({"memory", "load", "temperature", "new temperature", "power"}, set()),
    ],
)
def test_a_number_that_cannot_be_read_does_not_hide_the_others(machine, failing, left):
    machine(Nvml(failing))
    assert set(gpu_source(0)()) == left


def test_where_the_old_question_for_the_temperature_is_gone_the_new_one_is_asked(machine):
    machine(Nvml({"temperature"}))
    assert gpu_source(0)()[series.GPU_TEMPERATURE_CELSIUS] == 62.0


@pytest.mark.parametrize("failing", [{"init"}, {"handle"}])
def test_where_nvml_does_not_answer_the_host_memory_is_told_and_nvml_is_asked_no_more(machine, failing):
    nvml = machine(Nvml(failing))
    source = Source(lambda: 0)
    assert set(source()) == {series.HOST_MEMORY_BYTES}
    asked = len(nvml.asked)
    assert set(source()) == {series.HOST_MEMORY_BYTES}
    assert len(nvml.asked) == asked


def test_the_real_nvml_of_a_machine_without_a_driver_or_with_one_raises_nothing():
    assert gpu_source(0) is None or callable(gpu_source(0))


def test_a_training_on_the_cpu_leaves_the_gpu_of_the_machine_alone(machine, monkeypatch):
    nvml = machine(Nvml())

    def touched(*_):
        raise AssertionError("CUDA was asked, and may have been started by it")

    for name in ("is_available", "current_device", "device_count", "init", "_lazy_init", "get_device_properties"):
        monkeypatch.setattr(torch.cuda, name, touched)
    assert set(Source(lambda: None)()) == {series.HOST_MEMORY_BYTES}
    assert not nvml.asked


def test_a_model_that_comes_to_its_gpu_later_is_followed_there(machine):
    machine(Nvml())
    at = []
    source = Source(lambda: at[0] if at else None)
    assert set(source()) == {series.HOST_MEMORY_BYTES}
    at.append(1)
    assert source()[series.GPU_MEMORY_BYTES] == float(1 << 30)


def test_an_nvml_that_hangs_holds_up_neither_the_training_nor_its_end():
    asked, go_on = threading.Event(), threading.Event()

    def hangs():
        asked.set()
        go_on.wait(30)
        return {"system/gpu_power_watts": 1.0}

    sampler = SystemSampler(hangs, period_seconds=0.01)
    sampler.start()
    assert asked.wait(60)
    assert sampler.take() == {}
    sampler.stop()
    go_on.set()
    until(lambda: not sampler._thread.is_alive())

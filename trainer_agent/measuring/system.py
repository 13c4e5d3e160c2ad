"""How full and how hot the machine is: the GPU through NVML where the model lies on one, else the memory of this process.

A thread of its own takes one sample a second, because NVML may take its time. CUDA itself is asked nothing: not to start, where
a training on the CPU leaves it alone, and not to wait. The GPU is found by its UUID, because NVML counts all GPUs of a machine
and `CUDA_VISIBLE_DEVICES` hides some from torch. Host memory is named host memory.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil  # type: ignore[import-untyped]  # ships no types
import torch

from trainer_agent.wire import series

PERIOD_SECONDS = 1.0

Sample = dict[str, float]


class SystemSampler:
    """Takes samples in the background; `take` hands out each of them once.

    `gpu` gives the number of the model's GPU, as torch counts them, and None as long as it lies on none.
    """

    def __init__(
        self,
        read: Callable[[], Sample] | None = None,
        period_seconds: float = PERIOD_SECONDS,
        *,
        gpu: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._read = read or Source(gpu)
        self._period_seconds = period_seconds
        self._newest: Sample | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lossguard-system", daemon=True)

    def start(self) -> None:
        """Begins to sample."""
        self._thread.start()

    def take(self) -> Sample:
        """The newest sample, empty when it was taken already. Thread: training; never waits."""
        newest, self._newest = self._newest, None
        return newest or {}

    def stop(self) -> None:
        """Ends the thread; does not wait for it."""
        self._over.set()

    def _run(self) -> None:
        while True:
            with suppress(Exception):  # a machine that cannot be read is no reason to stop, nor to say so each second
                self._newest = self._read()
            if self._over.wait(self._period_seconds):
                return


class Source:
    """Reads the GPU from the moment the model lies on one; this process's memory before that, and where NVML does not answer."""

    def __init__(self, gpu: Callable[[], int | None]) -> None:
        self._gpu = gpu
        self._read = _host_source()
        self._is_settled = False

    def __call__(self) -> Sample:
        """One sample. Thread: any but the training's."""
        if not self._is_settled and (index := self._gpu()) is not None:
            self._is_settled = True  # a driver without its library does not grow one: asked once
            self._read = gpu_source(index) or self._read
        return self._read()


def _host_source() -> Callable[[], Sample]:
    process = psutil.Process()
    return lambda: {series.HOST_MEMORY_BYTES: float(process.memory_info().rss)}


def gpu_source(index: int) -> Callable[[], Sample] | None:
    """What reads the GPU of this number; None where NVML does not answer, as in a container without the driver's library."""
    try:
        import pynvml  # type: ignore[import-untyped]  # ships no types

        pynvml.nvmlInit()
        handle = _handle(pynvml, str(torch.cuda.get_device_properties(index).uuid))
    except Exception:
        return None
    gauges: dict[str, Callable[[], float]] = {
        series.GPU_MEMORY_BYTES: lambda: float(pynvml.nvmlDeviceGetMemoryInfo(handle).used),
        series.GPU_UTILIZATION_RATIO: lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100.0,
        series.GPU_TEMPERATURE_CELSIUS: lambda: _temperature(pynvml, handle),
        series.GPU_POWER_WATTS: lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000.0,
    }
    return lambda: _read_each(gauges)


def _handle(nvml: Any, uuid: str) -> Any:
    """The device of a UUID, which CUDA tells without its first letters; a slice of a divided GPU has others."""
    if uuid.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(uuid)
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")


def _temperature(nvml: Any, handle: Any) -> float:
    try:
        return float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
    except (AttributeError, nvml.NVMLError):  # the older question, on its way out
        return float(nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU))


def _read_each(gauges: dict[str, Callable[[], float]]) -> Sample:
    """What can be read: a slice of a GPU has no utilization, a virtual one no power, and neither hides the memory."""
    sample: Sample = {}
    for name, read in gauges.items():
        with suppress(Exception):
            sample[name] = read()
    return sample

"""How full the machine is: GPU memory and load through NVML where there is a GPU, the memory of this process where there is none.

A thread of its own takes one sample a second, because NVML may take its time. Host memory is named host memory.
"""

import threading
from collections.abc import Callable
from contextlib import suppress

import psutil  # type: ignore[import-untyped]  # ships no types
import torch

from .wire import series

PERIOD_SECONDS = 1.0

Sample = dict[str, float]


class SystemSampler:
    """Takes samples in the background; `take` hands out each of them once."""

    def __init__(self, read: Callable[[], Sample] | None = None, period_seconds: float = PERIOD_SECONDS) -> None:
        self._read = read or choose_source()
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


def choose_source() -> Callable[[], Sample]:
    """NVML for the GPU that torch uses; else the resident memory of this process."""
    gpu = _gpu_source() if torch.cuda.is_available() else None
    return gpu or _host_source()


def _host_source() -> Callable[[], Sample]:
    process = psutil.Process()
    return lambda: {series.HOST_MEMORY_BYTES: float(process.memory_info().rss)}


def _gpu_source() -> Callable[[], Sample] | None:
    """None where NVML does not answer, as in a container without the driver's library."""
    try:
        import pynvml  # type: ignore[import-untyped]  # ships no types

        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
    except Exception:
        return None

    def read() -> Sample:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        load = pynvml.nvmlDeviceGetUtilizationRates(handle)
        return {series.GPU_MEMORY_BYTES: float(memory.used), series.GPU_UTILIZATION_RATIO: load.gpu / 100.0}

    return read

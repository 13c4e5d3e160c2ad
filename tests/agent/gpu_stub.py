"""Tensors that say they live on a GPU, on a machine that has none.

They compute on the CPU, but they keep two books a real GPU has no book of: what would have made the program wait (`waits`), and
what is still under way. A copy into pinned memory comes true, and its event with it, only when `run` lets that stream go on;
until then the memory holds a number that is no result. Whoever reads too early is found out by that number.
"""

import contextlib
from collections import deque
from dataclasses import dataclass, field

import torch
from torch.utils._pytree import tree_map

NOT_YET = -12345.678
BLOCKING = {"item", "tolist", "cpu", "numpy", "nonzero", "equal", "is_nonzero", "__float__", "__bool__", "__int__", "__index__"}


@dataclass(eq=False)
class Stream:
    """Work in order: copies that are not done yet, and the events behind them."""

    device: torch.device
    queue: deque = field(default_factory=deque)


class Event:
    """As `torch.cuda.Event`: bound to the device it is first recorded on."""

    def __init__(self, gpu):
        self.gpu, self.stream, self.pending = gpu, None, 0
        gpu.events += 1

    def record(self, stream=None):
        stream = stream or self.gpu.current_stream()
        assert self.stream is None or self.stream.device == stream.device, "an event belongs to one device"
        self.stream = stream
        self.pending += 1
        stream.queue.append(self._reached)

    def _reached(self):
        self.pending -= 1

    def query(self):
        return self.pending == 0

    def synchronize(self):
        if self.pending:
            self.gpu.waits.append("Event.synchronize")
        while self.pending:
            self.stream.queue.popleft()()


class OnGpu(torch.Tensor):
    """A tensor on a GPU of `gpu`; `inner` holds its numbers."""

    @staticmethod
    def __new__(cls, inner, device, gpu):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=device)

    def __init__(self, inner, device, gpu):
        self.inner, self.gpu = inner, gpu

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func.__name__ in BLOCKING:
            first = args[0]
            first.gpu.waits.append(func.__name__)
            return func(*tree_map(cls._numbers, args), **kwargs or {})
        return super().__torch_function__(func, types, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        found = []
        tree_map(lambda x: found.append(x) if isinstance(x, cls) else None, (args, kwargs))
        gpu, (device, *others) = found[0].gpu, dict.fromkeys(tensor.device for tensor in found)
        if others:
            raise RuntimeError(f"Expected all tensors to be on the same device, but found {device} and {others[0]}")
        to = kwargs.pop("device", None)
        if func is torch.ops.aten.copy_.default and not isinstance(args[0], cls):
            return gpu.copy(args[0], args[1].inner, non_blocking=len(args) > 2 and args[2])
        if to is not None and to.type == "cpu":
            gpu.waits.append("to cpu")
            return func(*tree_map(cls._numbers, args), **kwargs)
        result = func(*tree_map(cls._numbers, args), **kwargs)
        return tree_map(lambda x: cls(x, device, gpu) if isinstance(x, torch.Tensor) else x, result)

    @staticmethod
    def _numbers(value):
        return value.inner if isinstance(value, OnGpu) else value


class Gpu:
    """Puts itself in the place of the GPUs of `torch.cuda`, as far as they are asked here."""

    def __init__(self, monkeypatch):
        self.waits: list[str] = []
        self.events = self.pinned = 0
        self.can_pin = True
        self._pinned_memory: list[torch.Tensor] = []
        self._default: dict[torch.device, Stream] = {}
        self._current: list[Stream] = []
        self._empty = torch.empty
        monkeypatch.setattr(torch, "empty", self.empty)
        monkeypatch.setattr(torch.cuda, "Event", lambda: Event(self))
        monkeypatch.setattr(torch.cuda, "stream", self.on)
        monkeypatch.setattr(torch.cuda, "current_stream", self.current_stream)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: self.waits.append("synchronize"))

    def tensor(self, value, device="cuda:0") -> OnGpu:
        inner = value.detach().clone() if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.float32)
        return OnGpu(inner, torch.device(device), self)

    def empty(self, *args, **kwargs):
        if not kwargs.pop("pin_memory", False):
            return self._empty(*args, **kwargs)
        if not self.can_pin:
            raise RuntimeError("CUDA error: out of memory")
        self.pinned += 1
        made = self._empty(*args, **kwargs).fill_(NOT_YET)
        self._pinned_memory.append(made)
        return made

    def copy(self, to, numbers, *, non_blocking):
        if not non_blocking or not any(self._shares(to, memory) for memory in self._pinned_memory):
            self.waits.append("copy to memory that is not pinned" if non_blocking else "blocking copy")
            return to.copy_(numbers)
        to.fill_(NOT_YET)
        self.current_stream().queue.append(lambda: to.copy_(numbers))
        return to

    @staticmethod
    def _shares(one, other):
        return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()

    def current_stream(self, device=None) -> Stream:
        wanted = torch.device(device if device is not None else "cuda:0")
        if self._current and (device is None or self._current[-1].device == wanted):
            return self._current[-1]
        return self._default.setdefault(wanted, Stream(wanted))

    @contextlib.contextmanager
    def on(self, stream):
        self._current.append(stream)
        try:
            yield
        finally:
            self._current.pop()

    def streams(self) -> list[Stream]:
        return list(self._default.values())

    def run(self, *streams: Stream) -> None:
        """Lets all that is queued come true."""
        for stream in streams or self.streams():
            while stream.queue:
                stream.queue.popleft()()

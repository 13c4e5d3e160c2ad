"""Numbers on their way from a GPU to this process, without anybody waiting for them.

    send -> Flight -> has_landed? -> values

Each number is copied on the stream that computes it, in order with that, by the GPU itself into pinned memory, and an event
behind the copy says when it is there. Memory and events are made once for a GPU, at its first step; a step allocates nothing
that has to be pinned. Knows nothing of what the numbers mean.

Thread: training. Nothing here waits but `Flight.wait`.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

SLOTS = 256
"""Steps that may be under way on one GPU. Work is queued about a thousand launches ahead and a step has several of them, so the
queue itself stops a training before this does."""
WIDTH = 8
"""Numbers of one step from one stream."""


class FarBehindError(RuntimeError):
    """The GPU is further behind than there is memory for: the numbers of this step on it are passed over."""

    def __init__(self) -> None:
        super().__init__(f"the GPU is more than {SLOTS} steps behind; the numbers it holds of some steps are passed over")


@dataclass(slots=True)
class Far:
    """A number on a GPU, and the stream that computes it. `value` has one element."""

    value: torch.Tensor
    stream: Any


def far(value: torch.Tensor) -> Far:
    """The number with the stream it is being computed on now; asks the GPU nothing."""
    return Far(value, torch.cuda.current_stream(value.device))


@dataclass(slots=True)
class _Slot:
    row: torch.Tensor  # pinned, shape (WIDTH,), float64
    event: Any


@dataclass(slots=True)
class _Part:
    """What one stream has sent: `names` are the first numbers of the slot."""

    names: tuple[str, ...]
    slot: _Slot
    home: "deque[_Slot]"


@dataclass(slots=True)
class Flight:
    """The numbers of one step."""

    parts: list[_Part] = field(default_factory=list)

    def has_landed(self) -> bool:
        """Whether all of them are there. Asks, and never waits."""
        return all(part.slot.event.query() for part in self.parts)

    def wait(self) -> None:
        """Waits for the GPU: for moments at which a training waits for it anyway, such as a save."""
        for part in self.parts:
            part.slot.event.synchronize()

    def values(self) -> dict[str, float]:
        """The numbers, once they have landed. Gives the memory back, so it can be asked once."""
        read: dict[str, float] = {}
        for part in self.parts:
            read.update(zip(part.names, part.slot.row.tolist(), strict=False))
            part.home.append(part.slot)
        self.parts = []
        return read


class Landing:
    """The pinned memory of one training, and the events of its slots."""

    def __init__(self) -> None:
        self._free: dict[torch.device, deque[_Slot]] = {}

    def send(self, numbers: Mapping[str, Far]) -> Flight:
        """Lets the GPUs copy the numbers, as they will be once what computes them is done.

        Raises:
            FarBehindError: so many steps are under way that there is no memory left.
            RuntimeError: of CUDA.
        """
        flight = Flight()
        for stream in {number.stream: None for number in numbers.values()}:
            values = {name: number.value for name, number in numbers.items() if number.stream == stream}
            flight.parts.append(self._copy(stream, values))
        return flight

    def _copy(self, stream: Any, values: Mapping[str, torch.Tensor]) -> _Part:
        home = self._slots(next(iter(values.values())).device)
        if not home:
            raise FarBehindError
        slot = home.popleft()
        try:
            with torch.cuda.stream(stream):
                packed = torch.stack([value.double().reshape(()) for value in values.values()])
                slot.row[: len(values)].copy_(packed, non_blocking=True)
                slot.event.record(stream)
        except Exception:
            home.appendleft(slot)
            raise
        return _Part(tuple(values), slot, home)

    def _slots(self, device: torch.device) -> "deque[_Slot]":
        if device not in self._free:
            rows = torch.empty((SLOTS, WIDTH), dtype=torch.float64, pin_memory=True)
            self._free[device] = deque(_Slot(row, torch.cuda.Event()) for row in rows)  # type: ignore[no-untyped-call]
        return self._free[device]

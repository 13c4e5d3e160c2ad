"""The ranks of one training, and the only module that may use a collective.

    of_this_process -> share, gather, vote -> leave             any of them -> apart, for good

Ranks that part at a step hang in each other's collectives, so whatever is done to a training is done by all ranks at one step
boundary, and what is to be done travels with the message. It goes over a gloo group of our own on the CPU, beside whatever the
training uses. Every wait here has a limit. When one is over, or a peer is gone, this rank is *apart*: no further call waits, the
others notice at their next call, and the training is left to itself. A peer that died makes the training's own collectives
fail as they would without us.

Nothing here knows a transport: a rank whose server hangs is as quick as the others.
"""

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from .guest.interrupts import let_pass

LIMIT_SECONDS = 180.0
"""How long a rank waits for the others at a boundary, where they all come from the same gradient all-reduce.

A callback of the user's on one rank may take its time before ours. That a process is gone is known at once.
"""
START_SECONDS = 600.0
"""How long it waits for them at the start, where one may still prepare data that the others wait for."""
START_TOGETHER_SECONDS = 60.0
"""How long where the trainer has just brought all ranks together."""
TICK_SECONDS = 1.0
"""So often rank 0 tells the others to wait on."""
MOST_BYTES = 1 << 24
WAIT = -1

T = TypeVar("T")

_number = count(1)


class Apart(Exception):  # noqa: N818  reads as what it says
    """The ranks can no longer agree, and will not try again. The text says why."""


@dataclass(frozen=True, slots=True)
class Vote:
    """Whether any rank has news, and the highest rank that is sick; None when none is."""

    news: bool
    sick_rank: int | None


class Ranks:
    """One process among the ranks of its training. Costs nothing where it is alone. Thread: training, all of it.

    Every method but `leave` and `gone` is a collective: all ranks call it, in the same order.
    """

    def __init__(self, rank: int = 0, world_size: int = 1, group: Any = None, problem: str = "") -> None:
        self.rank, self.world_size = rank, world_size
        self.problem = problem
        """Why the ranks cannot agree; empty while they can."""
        self._group = group
        self._processes: list[tuple[str, int]] = []

    @classmethod
    def of_this_process(cls, *, start_seconds: float = START_SECONDS, limit_seconds: float = LIMIT_SECONDS) -> "Ranks":
        """The ranks of the default process group; alone where there is none. Never raises: see `problem`."""
        if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() < 2:
            return cls()
        rank, world_size = dist.get_rank(), dist.get_world_size()
        try:
            _meet(rank, world_size, start_seconds)
            ranks = cls(rank, world_size, dist.new_group(backend="gloo", timeout=timedelta(seconds=limit_seconds)))
            found = ranks.gather(f"{os.getpid()} {socket.gethostname()}".encode())
        except Exception as error:
            let_pass(error)
            return cls(rank, world_size, problem=f"the ranks did not find together at the start: {_first_line(error)}")
        ranks._processes = [(host, int(pid)) for pid, host in (each.decode().split(" ", 1) for each in found)]
        return ranks

    @classmethod
    def apart(cls, problem: str) -> "Ranks":
        """Those of a process that never met the others, and does not try again; alone where there are no others."""
        if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() < 2:
            return cls()
        return cls(dist.get_rank(), dist.get_world_size(), problem=problem)

    @property
    def is_alone(self) -> bool:
        """Whether the training has one process."""
        return self.world_size == 1

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which takes commands and speaks for the run."""
        return self.rank == 0

    @property
    def on_one_machine(self) -> bool:
        """Whether all ranks run on the same host."""
        return len({host for host, _ in self._processes}) <= 1

    def vote(self, step: int, *, news: bool, sick: bool = False) -> Vote:
        """Whether any rank has news at this boundary, and which one is sick: one small all-reduce.

        Raises:
            Apart
        """
        mine = [int(news), self.rank + 1 if sick else 0, step, -step]
        if self.is_alone:
            return _counted(mine)
        told = torch.tensor(mine, dtype=torch.int64)
        self._within(lambda: dist.all_reduce(told, op=dist.ReduceOp.MAX, group=self._group))
        highest = told.tolist()
        if highest[2] != -highest[3]:
            self._part(f"one rank is at step {highest[2]} and another at step {-highest[3]}")
        return _counted(highest)

    def share(self, value: bytes | None = None) -> bytes:
        """What rank 0 gives, on every rank; the others give nothing.

        Raises:
            Apart
        """
        if self.is_alone:
            return value or b""
        mine = (value or b"") if self.leads else b""
        length = self._announce(len(mine))
        while length == WAIT:
            length = self._announce(0)
        body = _octets(mine, self._checked(length))
        if body.numel():
            self._within(lambda: dist.broadcast(body, group_src=0, group=self._group))
        return bytes(body.numpy())

    def wait_on(self) -> None:
        """Rank 0 tells the others, which are in `share`, that it is still at it.

        Raises:
            Apart
        """
        if not self.is_alone:
            self._announce(WAIT)

    def while_they_wait(self, job: Callable[[], T]) -> T:
        """What `job` gives on rank 0, while the others are in `share`.

        It runs in a thread, because they wait no longer than a limit without a word; where there is one process, here.

        Raises:
            Apart, and what the job raises
        """
        if self.is_alone:
            return job()
        done: list[tuple[T | None, Exception | None]] = []
        thread = threading.Thread(target=lambda: done.append(_tried(job)), name="lossguard-rank-0", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(TICK_SECONDS)
                self.wait_on()
        finally:
            thread.join()
        result, error = done[0]
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # None only where the job gives it

    def _announce(self, length: int) -> int:
        told = torch.tensor([length], dtype=torch.int64)
        self._within(lambda: dist.broadcast(told, group_src=0, group=self._group))
        return int(told)

    def gather(self, value: bytes) -> list[bytes]:
        """What each rank gives, by rank, on every rank.

        Raises:
            Apart
        """
        if self.is_alone:
            return [value]
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world_size)]
        mine = torch.tensor([len(value)], dtype=torch.int64)
        self._within(lambda: dist.all_gather(lengths, mine, group=self._group))
        longest = self._checked(max(int(each) for each in lengths))
        bodies = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.world_size)]
        if longest:
            self._within(lambda: dist.all_gather(bodies, _octets(value, longest), group=self._group))
        return [bytes(body.numpy())[: int(length)] for body, length in zip(bodies, lengths, strict=True)]

    def gone(self) -> list[int]:
        """The ranks of this machine whose process is no more. No collective; looks at the process table."""
        lost = self._gone()
        if not lost and not self.is_alone:
            time.sleep(0.02)  # a connection may be down a moment before its process is
        return lost or self._gone()

    def _gone(self) -> list[int]:
        here = socket.gethostname()
        return [rank for rank, (host, pid) in enumerate(self._processes) if host == here and _is_gone(pid)]

    def leave(self, problem: str = "this rank has left") -> None:
        """Takes no further part; the others notice at their next call."""
        if self.is_alone:
            return
        self.problem = self.problem or problem
        group, self._group = self._group, None
        if group is not None:
            with suppress(Exception):
                dist.destroy_process_group(group)

    def _checked(self, length: int) -> int:
        if not 0 <= length <= MOST_BYTES:
            self._part(f"a message of {length} bytes came, of {MOST_BYTES} at most")
        return length

    def _within(self, collective: Any) -> None:
        """Runs a collective, whose limit is the group's."""
        if self.problem or self._group is None:
            raise Apart(self.problem or "this rank has left")
        try:
            collective()
        except Exception as error:
            let_pass(error)
            self._part(self._why(error))

    def _why(self, error: Exception) -> str:
        lost = self.gone()
        return named(lost) if lost else _plain(error)

    def _part(self, problem: str) -> None:
        self.leave(problem)
        raise Apart(problem)


def _counted(highest: list[int]) -> Vote:
    return Vote(bool(highest[0]), highest[1] - 1 if highest[1] else None)


def named(lost: list[int]) -> str:
    """`rank 2 is gone`, for one or several."""
    return f"rank {lost[0]} is gone" if len(lost) == 1 else f"ranks {', '.join(map(str, lost))} are gone"


def _meet(rank: int, world_size: int, seconds: float) -> None:
    """Waits until every rank has come here, and has one answer for all: the first rank to go on or give up decides.

    So a training in which only some ranks are watched is held up once, and no rank is left alone in the making of the group.
    """
    shared: Any = dist.distributed_c10d._get_default_store()  # noqa: SLF001  there is no public way to it
    store = torch._C._distributed_c10d.PrefixStore(f"lossguard/{next(_number)}", shared)  # noqa: SLF001  as above
    store.set(f"here/{rank}", "1")
    with suppress(dist.DistStoreError):
        store.wait([f"here/{each}" for each in range(world_size)], timedelta(seconds=seconds))
        store.compare_set("answer", "", "go")
    if store.compare_set("answer", "", "no") != b"go":
        raise TimeoutError(f"not all of {world_size} ranks came within {seconds:g} s")


def _octets(value: bytes, length: int) -> torch.Tensor:
    """`value` as a tensor of `length` bytes, filled up with zeros."""
    return (
        torch.frombuffer(bytearray(value.ljust(length, b"\0")), dtype=torch.uint8)
        if length
        else torch.zeros(0, dtype=torch.uint8)
    )


def _tried(job: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return job(), None
    except Exception as error:
        return None, error


def _plain(error: Exception) -> str:
    """What gloo says, in words for people."""
    text = _first_line(error)
    if "Timed out" in text:
        return "a rank did not come to the step boundary in time"
    return "a rank has left" if "closed by peer" in text or "reset by peer" in text else text


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _is_gone(pid: int) -> bool:
    """Whether a process has ended; a zombie has."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0] in "ZX"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False

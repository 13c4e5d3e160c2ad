"""How a training begins on all of its ranks: they find together, and take up one run under one id.

Rank 0 reads and writes the run's folder; the others are told. A rank that cannot begin leaves, so that the others notice and go
on without waiting for it.
"""

import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .data_plan import DataPlan
from .identity import Identity
from .policy import Policy
from .ranks import START_SECONDS, Apart, Ranks
from .voice import Voice

EVERY_BESIDE_NETWORK = 10


@dataclass(frozen=True, slots=True)
class Opening:
    """What all ranks know before the first step."""

    ranks: Ranks
    identity: Identity
    agree_every: int = 1

    @property
    def voice(self) -> Voice | None:
        """For the monitor: the ranks beside rank 0 leave to it what concerns all of them. None is the usual one."""
        if self.ranks.leads:
            return None
        voice = Voice()
        voice.hush("page", "config", "unset", "transport", "left")
        return voice


def meet(
    directory: Path, policy: Policy, choose_run: Callable[[], str | None], *, start_seconds: float = START_SECONDS
) -> Opening:
    """The ranks, and the run of this `.lossguard` folder. `choose_run` gives the id wanted, on rank 0; None takes what is there.

    All ranks call it. Where they do not find together, rank 0 goes on by itself, able to do nothing to the training.

    Raises:
        Apart: on another rank, which then knows no run.
    """
    ranks = Ranks.of_this_process(start_seconds=start_seconds)
    if ranks.is_alone or (ranks.problem and ranks.leads):
        return Opening(ranks, Identity.open(directory, choose_run()))
    if ranks.problem:
        raise Apart(ranks.problem)
    try:
        return _lead(ranks, directory, policy, choose_run) if ranks.leads else _follow(ranks, directory)
    except Exception:
        ranks.leave()
        raise


def _lead(ranks: Ranks, directory: Path, policy: Policy, choose_run: Callable[[], str | None]) -> Opening:
    identity = Identity.open(directory, choose_run())
    every = policy.agree_every or (1 if ranks.on_one_machine else EVERY_BESIDE_NETWORK)
    try:
        ranks.share(json.dumps({"every": every, "identity": identity.to_bytes().decode()}).encode())
    except Apart:  # said by the session, whose capabilities these are
        return Opening(ranks, identity)
    return Opening(ranks, identity, every)


def _follow(ranks: Ranks, directory: Path) -> Opening:
    told = json.loads(ranks.share())
    return Opening(ranks, Identity.of_rank_0(told["identity"].encode(), directory), told["every"])


def process() -> dict[str, Any]:
    """Host and process id, for the run's start."""
    return {"host": socket.gethostname(), "pid": os.getpid()}


def open_plan(directory: Path, *, keep: bool, leads: bool) -> DataPlan:
    """The plan of a run that is taken up again; an empty one for a new run, and rank 0 empties the file too."""
    try:
        plan = DataPlan.open(directory) if keep or leads else DataPlan.empty(directory)
    except ValueError as error:
        Voice().once("data plan", f"{error}; batches that were skipped before may come again")
        return DataPlan.empty(directory)
    if not keep and leads:
        plan.clear()
    return plan

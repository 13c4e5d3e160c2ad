"""Three ranks that are told all kinds of commands at random at many boundaries. No trainer: only the ranks.

    python commands_ranks.py FOLDER BOUNDARIES

Each rank writes FOLDER/RANK.json: what was decided at each boundary, also those inside a pause, and the overrides then in force.
"""

import json
import os
import random
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist

from trainer_agent.checkpoints.rollback import Offer, Refused, Target
from trainer_agent.commands.agreement import Agreement, Ways
from trainer_agent.commands.control import Control
from trainer_agent.commands.decisions import Act
from trainer_agent.commands.journal import Journal, JournalState, Overrides
from trainer_agent.policy import Policy
from trainer_agent.ranks import Ranks
from trainer_agent.wire.commands import Command, RollbackPayload
from trainer_agent.wire.messages import CheckpointSaved, Report
from trainer_agent.wire.vocabulary import CheckpointState, CommandKind, Phase

RANKS = 3
FACTS = CheckpointSaved("checkpoint-1", 1, 1, 0.0, CheckpointState.COMPLETE)
KINDS = list(CommandKind)


class Monitor:
    """Commands come at random, and what is said of them is kept."""

    def __init__(self, made: random.Random) -> None:
        self.made, self.said, self.phases, self.number = made, [], set(), 0

    def record(self, record):
        if isinstance(record, Report):
            self.said.append([record.command_id, str(record.state)])

    def set_phase(self, phase):
        self.phases.add(phase)

    def take_command(self):
        return self.some() if self.made.random() < 0.5 else None

    def wait_for_command(self, timeout_seconds):
        time.sleep(self.made.random() * 0.002)
        return self.some() if self.made.random() < 0.7 else None

    def some(self):
        self.number += 1
        kind = self.made.choice(KINDS)
        payload = RollbackPayload("checkpoint-1", 1, self.number + 1) if kind is CommandKind.ROLLBACK else None
        value = self.made.choice([0.5, 1.0, None, 2.0])
        return Command(f"c{self.number}", kind, "i", 1, 60.0, 60.0, rollback=payload, value=value)


def work(rank: int, folder: Path, boundaries: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), RANKS), rank=rank, world_size=RANKS)
    ranks = Ranks.of_this_process(limit_seconds=60.0)
    assert not ranks.problem, ranks.problem
    everyones, monitor = random.Random(1), Monitor(random.Random(7))
    now, refuses, book, longest = {"overrides": Overrides()}, [False], [], 0.0

    def see(offer: Offer) -> Target:
        if refuses[0]:
            raise Refused("it is not there")
        return Target(offer.command_id, offer.payload, FACTS, folder, offer.left_step)

    def follow(decision) -> None:
        monitor.set_phase(Phase.PAUSED if decision.act is Act.PAUSE else Phase.TRAINING)
        if decision.overrides is not None:
            now["overrides"] = decision.overrides

    control = Control(
        monitor,
        Policy(),
        tuple(CommandKind),
        find=lambda order, step: Target(order.command_id, order.rollback, FACTS, folder, step),
        check=lambda target: None,
        idle=ranks.wait_on,
        apply=lambda overrides: now.update(overrides=overrides),
        journal=Journal(folder / "journal.json" if rank == 0 else None, JournalState("run")),
    )
    ways = Ways(see=see, undo=lambda target: None, apart=lambda step, problem: book.append(problem), settle=follow)
    agreement = Agreement(ranks, control, ways)
    for step in range(1, boundaries + 1):
        refuses[0] = everyones.randrange(6) == rank > 0
        time.sleep(random.Random(rank * 1000 + step).random() * 0.003)
        decision, began = replace(agreement.at_boundary(step, None, sick=False)), time.monotonic()
        while True:
            longest = max(longest, time.monotonic() - began)
            target = decision.target.command_id if decision.target else None
            book.append([step, str(decision.act), decision.reason, decision.saves, decision.again, target, str(now["overrides"])])
            if not decision.again:
                break
            decision = agreement.at_boundary(step, None, sick=False)
    told = {"book": book, "longest": longest, "said": monitor.said, "phases": sorted(monitor.phases), "problem": ranks.problem}
    (folder / f"{rank}.json").write_text(json.dumps(told))
    os._exit(0)


def main() -> None:
    folder = Path(sys.argv[1])
    children = []
    for rank in range(RANKS):
        child = os.fork()
        if child == 0:
            try:
                work(rank, folder, int(sys.argv[2]))
            finally:
                os._exit(1)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


main()

"""Four ranks that agree at many boundaries, with delays, commands, deaths and refusals at random. No trainer: only the ranks.

    python agreeing.py FOLDER BOUNDARIES,KILL_AT ...

Each rank writes FOLDER/KILL_AT/RANK.json: what was decided at each boundary and how long the longest took. Rank 3 kills itself
before boundary KILL_AT, unless that is 0.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from trainer_agent.checkpoints.rollback import Offer, Refused, Target
from trainer_agent.commands.agreement import Agreement, Ways
from trainer_agent.commands.control import Control
from trainer_agent.measuring.guard import Death, DeathCause
from trainer_agent.policy import Policy
from trainer_agent.ranks import Ranks
from trainer_agent.wire.commands import Command, RollbackPayload
from trainer_agent.wire.messages import CheckpointSaved, Report
from trainer_agent.wire.vocabulary import CheckpointState, CommandKind

RANKS = 4
FACTS = CheckpointSaved("checkpoint-1", 1, 1, 0.0, CheckpointState.COMPLETE)


class Monitor:
    """Commands come from a list, and what is said of them is kept."""

    def __init__(self):
        self.next, self.said = None, []

    def record(self, record):
        if isinstance(record, Report):
            self.said.append([record.command_id, str(record.state), record.reason])

    def set_phase(self, phase):
        pass

    def take_command(self):
        command, self.next = self.next, None
        return command

    def wait_for_command(self, timeout_seconds):
        return self.take_command()


def command(number, made):
    kind = made.choice([CommandKind.STOP, CommandKind.ROLLBACK])
    payload = RollbackPayload("checkpoint-1", 1, number + 1) if kind is CommandKind.ROLLBACK else None
    return Command(f"c{number}", kind, "i", 1, 60.0, 60.0, rollback=payload)


def work(rank, folder, boundaries, kill_at):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), RANKS), rank=rank, world_size=RANKS)
    ranks = Ranks.of_this_process(limit_seconds=20.0)
    assert not ranks.problem, ranks.problem
    everyones, own = random.Random(1), random.Random(100 + rank)
    monitor, refuses, parted, book, longest = Monitor(), False, [], [], 0.0

    def see(offer: Offer) -> Target:
        if refuses:
            raise Refused("it is not there")
        return Target(offer.command_id, offer.payload, FACTS, folder, offer.left_step)

    control = Control(
        monitor,
        Policy(),
        tuple(CommandKind),
        find=lambda order, step: Target(order.command_id, order.rollback, FACTS, folder, step),
        check=lambda target: None,
        idle=lambda: None,
    )
    ways = Ways(see=see, undo=lambda target: None, apart=lambda step, problem: parted.append(problem))
    agreement = Agreement(ranks, control, ways)
    for step in range(1, boundaries + 1):
        ordered, dead, refusing = everyones.random() < 0.5, everyones.randrange(12), everyones.randrange(8)
        refuses = refusing == rank and rank > 0
        if rank == 0 and ordered:
            monitor.next = command(step, own)
        death = Death(step, DeathCause.LOSS, "the loss is not finite") if dead == rank else None
        time.sleep(own.random() * 0.004)
        if rank == 3 and step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        began = time.monotonic()
        decision = agreement.at_boundary(step, death, sick=death is not None)
        longest = max(longest, time.monotonic() - began)
        book.append([step, str(decision.act), decision.reason, decision.target.command_id if decision.target else None])
    told = {"book": book, "longest": longest, "parted": parted, "said": monitor.said}
    (folder / f"{rank}.json").write_text(json.dumps(told))
    os._exit(0)


def main():
    for turn in sys.argv[2:]:
        boundaries, kill_at = map(int, turn.split(","))
        folder = Path(sys.argv[1], str(kill_at))
        folder.mkdir(parents=True)
        launch(folder, boundaries, kill_at)


def launch(folder, boundaries, kill_at):
    """Forked, because importing torch four times costs more than the rest."""
    children = []
    for rank in range(RANKS):
        child = os.fork()
        if child == 0:
            try:
                work(rank, folder, boundaries, kill_at)
            finally:
                os._exit(1)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()

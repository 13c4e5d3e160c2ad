"""One rank of the subject under torchrun, in the Trainer and by hand: straight, and with a rollback that rank 0 is told of.

    torchrun --nproc-per-node 2 exact_rank.py FOLDER

Each rank prints what differs between the two, by integration, as one JSON line.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from exact_kit import At, ByHand, differences, flat, hf_training
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler
from training_kit import Rows, Tape, TapedMonitor

from trainer_agent.hf import guarded_train
from trainer_agent.loop import watch
from trainer_agent.training import opening

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, folder = dist.get_rank(), Path(sys.argv[1])
taped = Tape()
opening.Monitor = type("Taped", (TapedMonitor,), {"tape": taped})
RANKED = {"ddp_backend": "gloo"}
SHORT, FROM, TO = 20, 15, 10


def order(**_: object) -> None:
    if rank == 0:
        taped.rollback(TO)


def in_the_trainer() -> list[str]:
    """An epoch is 11 steps on two ranks: from step 15, in the second, back to 10, in the first."""
    setting = {"max_steps": SHORT, "save_steps": 5, **RANKED}
    straight, book = hf_training(folder / f"straight-{rank}", **setting)
    straight.train()
    book.track.weights = flat(straight.model)
    training, again = hf_training(folder / "hf", At(FROM, order), **setting)
    guarded_train(training)
    again.track.weights = flat(training.model)
    return differences(again.track, book.track.again(TO, FROM))


def by_hand() -> list[str]:
    def made() -> ByHand:
        training = ByHand(order=DistributedSampler(Rows(88), shuffle=True, seed=3))
        torch.manual_seed(100 + rank)  # dropout of its own
        training.model = DistributedDataParallel(training.model)
        return training

    def batches(training: ByHand):
        for epoch in range(2):
            training.loader.sampler.set_epoch(epoch)
            for batch in training.loader:
                if len(training.track.steps) == SHORT:
                    return
                yield batch

    straight = made()
    wanted = straight.train(batches(straight))
    again = made()
    parts = {"model": again.model, "optimizer": again.optimizer, "scheduler": again.scheduler, "scaler": again.scaler}
    with watch(**parts, output_dir=folder / "loop", save_every=5) as run:
        found = again.train(run.batches(again.loader, max_steps=SHORT), run, {FROM: order})
    return differences(found, wanted.again(TO, FROM))


told = {"rank": rank, "trainer": in_the_trainer(), "by hand": by_hand()}
told["reports"] = [f"{each.state} {each.reason}".strip() for each in taped.reports]
print(json.dumps(told), flush=True)
dist.destroy_process_group()

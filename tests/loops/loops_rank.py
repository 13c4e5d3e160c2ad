"""One rank of a hand-written training under torchrun: rolled back at one step and stopped at another, told so by a fake reply.

    torchrun ... loops_rank.py OUTPUT_DIR

Each rank prints the steps it took with their losses as one JSON line, and what its session reported.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from trainer_agent.loop import watch
from trainer_agent.monitor import Monitor
from trainer_agent.training import opening
from trainer_agent.wire.commands import Command, RollbackPayload
from trainer_agent.wire.messages import Reply, Report
from trainer_agent.wire.vocabulary import CommandKind

made: list["Told"] = []
reports: list[tuple[str, str, int | None, str]] = []


class Told(Monitor):
    """The real one, which can be given a command."""

    def begin(self) -> None:
        made.append(self)
        super().begin()

    def record(self, record):
        if isinstance(record, Report):
            reports.append((record.command_id, record.state, record.step, record.reason))
        super().record(record)

    def command(self, name, kind, **rollback):
        payload = RollbackPayload(new_segment=self.segment + 1, **rollback) if rollback else None
        made_for = (self.start.incarnation, self.segment, 600.0, 600.0)
        self._on_reply(Reply(next_seq=1, commands=(Command(name, kind, *made_for, rollback=payload),)))


opening.Monitor = Told
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)  # each rank has dropout of its own
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
rows = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
data = TensorDataset(rows)
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=True, seed=3))
taken = []
with watch(model, optimizer, output_dir=Path(sys.argv[1]), save_every=4) as run:
    for (batch,) in run.batches(loader, max_steps=40):
        loss = model(batch).square().mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        run.step_ended(loss=loss, grad_norm=norm)
        taken.append((run.step + 1, loss.item()))
        if rank == 0 and len(taken) == 11:
            made[0].command("back", CommandKind.ROLLBACK, checkpoint_id="checkpoint-8", target_step=8)
        if rank == 0 and len(taken) == 16:
            made[0].command("stop", CommandKind.STOP)
print(json.dumps({"rank": rank, "taken": taken, "reports": reports, "stopped": run.stopped}), flush=True)
dist.destroy_process_group()

"""A training loop of accelerate with gradient accumulation, under the watch of LossGuard.

    python examples/accelerate_loop.py --out out/accelerate        the same again with --resume goes on after a crash
    python examples/accelerate_loop.py --slow 0.2                  slow enough to click on Stop or Roll back

The lines marked LossGuard are all there is of it; behind one of them stands the line that it replaced. A small GRU learns to go
on with random walks, which are made here. On a GPU it computes in fp16 with the scaler of accelerate.
"""

import argparse
import hashlib
import math
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from trainer_agent.loop import watch  # LossGuard

WALKS, LENGTH, PLACES, WIDTH, BATCH, ACCUMULATION = 640, 24, 32, 32, 8, 2
LEARNING_RATE, EVAL_EVERY_BATCHES = 3e-3, 80


class Walker(nn.Module):
    """Places in, logits of the next places out."""

    def __init__(self):
        super().__init__()
        self.places = nn.Embedding(PLACES, WIDTH)
        self.memory = nn.GRU(WIDTH, WIDTH, num_layers=2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(WIDTH, PLACES)

    def forward(self, x):  # shape (batch, time)
        """Shape (batch, time, PLACES)."""
        return self.head(self.memory(self.places(x))[0])


def make_walks(seed):
    """Walks on a ring, one place to the left or to the right each time."""
    made = torch.Generator().manual_seed(seed)
    steps = torch.randint(0, 2, (WALKS, LENGTH), generator=made) * 2 - 1
    return TensorDataset((torch.randint(0, PLACES, (WALKS, 1), generator=made) + steps.cumsum(1)) % PLACES)


def loss_of(model, walks):
    """The mean loss of the next places."""
    return F.cross_entropy(model(walks[:, :-1]).reshape(-1, PLACES), walks[:, 1:].reshape(-1))


@torch.no_grad()
def evaluate(model, walks):
    """The loss over walks that are not trained on."""
    model.eval()
    loss = loss_of(model, walks[:64]).item()
    model.train()
    return loss


def main():
    """Train, and say what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("out/accelerate"))
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--slow", type=float, default=0.0, help="seconds to wait for each batch")
    parser.add_argument("--nan-at", type=int, help="the batch whose loss is made NaN, counted from 0")
    options = parser.parse_args()
    epochs, precision = options.epochs, "fp16" if torch.cuda.is_available() else "no"
    accelerator = Accelerator(mixed_precision=precision, gradient_accumulation_steps=ACCUMULATION)
    torch.manual_seed(1337)
    model = Walker()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)
    loader = DataLoader(make_walks(1), batch_size=BATCH, shuffle=True)
    kept_back = make_walks(2).tensors[0].to(accelerator.device)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    run = watch(model, optimizer, schedule, output_dir=options.out, save_every=20, resume=options.resume)  # LossGuard
    batches = run.batches(loader, epochs=epochs)  # LossGuard, in place of: batches = (b for _ in range(epochs) for b in loader)
    for number, (walks,) in enumerate(batches):
        with accelerator.accumulate(model):
            loss = loss_of(model, walks)
            if number == options.nan_at:
                loss = loss * math.nan
            accelerator.backward(loss)
            norm = accelerator.clip_grad_norm_(model.parameters(), 1.0) if accelerator.sync_gradients else None
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        run.step_ended(loss=loss, grad_norm=norm)  # LossGuard
        if number % EVAL_EVERY_BATCHES == 0:
            kept_back_loss = evaluate(model, kept_back)
            print(f"batch {number}: loss {kept_back_loss:.4f} on walks kept back", flush=True)
            run.log({"eval/loss": kept_back_loss})  # LossGuard
        time.sleep(options.slow)
    weights = hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())).hexdigest()
    print(f"trained; the weights are {weights}")


if __name__ == "__main__":
    main()

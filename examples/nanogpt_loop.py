"""A small GPT and its training loop, written by hand in the style of nanoGPT, under the watch of LossGuard.

    python examples/nanogpt_loop.py --out out/nanogpt              the same again with --resume goes on after a crash
    python examples/nanogpt_loop.py --slow 0.2                     slow enough to click on Stop or Roll back

The lines marked LossGuard are all there is of it; behind one of them stands the line that it replaced. Batches are drawn at
random from a file of tokens, the bytes of the documentation that every Python brings along. On a GPU it computes in fp16 with a
GradScaler.
"""

import argparse
import hashlib
import math
import time
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from trainer_agent.loop import watch  # LossGuard

VOCABULARY, BLOCK, BATCH, WIDTH, HEADS, LAYERS, DROPOUT = 256, 32, 8, 32, 2, 2, 0.1
LEARNING_RATE, WARMUP, EVAL_EVERY, EVAL_BATCHES = 1e-3, 20, 50, 4


class Block(nn.Module):
    """Attention to what came before, then a small network."""

    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(DROPOUT))

    def forward(self, x):  # shape (batch, time, WIDTH)
        """The same shape."""
        shape = (*x.shape[:2], HEADS, WIDTH // HEADS)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(self.before(x)).split(WIDTH, dim=2))
        dropout = DROPOUT if self.training else 0.0
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout).transpose(1, 2).reshape(x.shape)
        x = x + self.out(seen)
        return x + self.mlp(self.between(x))


class GPT(nn.Module):
    """Bytes in, logits and loss out; the weights of the two ends are one."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(BLOCK, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, x, y):
        """Logits of shape (batch, time, VOCABULARY), and the mean loss."""
        hidden = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        logits = self.head(self.norm(self.blocks(hidden)))
        return logits, F.cross_entropy(logits.view(-1, VOCABULARY), y.view(-1))


def write_tokens(folder):
    """The text as bytes in two files of uint16."""
    data = np.frombuffer("\n".join(topics[key] for key in sorted(topics)).encode(), dtype=np.uint8).astype(np.uint16)
    data[: len(data) * 9 // 10].tofile(folder / "train.bin")
    data[len(data) * 9 // 10 :].tofile(folder / "val.bin")


def get_batch(folder, split, device):
    """Random pieces of the text, and the same one byte further on."""
    data = np.memmap(folder / f"{split}.bin", dtype=np.uint16, mode="r")
    starts = torch.randint(len(data) - BLOCK, (BATCH,))
    x = torch.stack([torch.from_numpy(data[i : i + BLOCK].astype(np.int64)) for i in starts])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + BLOCK].astype(np.int64)) for i in starts])
    return x.to(device), y.to(device)


@torch.no_grad()
def estimate_loss(model, folder, device, context):
    """The mean loss over a few batches of the text kept back."""
    model.eval()
    with context:
        losses = [model(*get_batch(folder, "val", device))[1].item() for _ in range(EVAL_BATCHES)]
    model.train()
    return sum(losses) / len(losses)


def learning_rate(step):
    """Up in a line, then down in a half wave."""
    return LEARNING_RATE * min(1.0, (step + 1) / WARMUP) * (0.55 + 0.45 * math.cos(math.pi * min(1.0, step / 2000)))


def main():
    """Train, and say what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("out/nanogpt"))
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--slow", type=float, default=0.0, help="seconds to wait in each step")
    parser.add_argument("--nan-at", type=int, help="the step whose loss is made NaN")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, options.dtype or ("float16" if device == "cuda" else "float32"))
    options.out.mkdir(parents=True, exist_ok=True)
    write_tokens(options.out)
    torch.manual_seed(1337)
    model = GPT().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95))
    scaler = torch.amp.GradScaler(device, enabled=dtype is torch.float16)
    context = torch.autocast(device, dtype=dtype, enabled=dtype is not torch.float32)
    run = watch(model, optimizer, scaler=scaler, output_dir=options.out, save_every=25, resume=options.resume)  # LossGuard
    for step in run.steps(options.steps, random_batches=True):  # LossGuard, in place of: for step in range(options.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        if step % EVAL_EVERY == 0:
            val_loss = estimate_loss(model, options.out, device, context)
            print(f"step {step}: val loss {val_loss:.4f}", flush=True)
            run.log({"eval/loss": val_loss})  # LossGuard
        with context:
            _, loss = model(*get_batch(options.out, "train", device))
        if step + 1 == options.nan_at:
            loss = loss * math.nan
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        run.step_ended(loss=loss, grad_norm=norm)  # LossGuard
        time.sleep(options.slow)
    weights = hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())).hexdigest()
    print(f"trained; the weights are {weights}")


if __name__ == "__main__":
    main()

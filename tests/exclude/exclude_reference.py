"""A training by hand that goes on from a checkpoint of the Trainer. Knows no LossGuard."""

import torch
from exclude_kit import SETTING, Quick, trainer
from safetensors.torch import load_file


class Reference:
    """A training by hand that goes on from a checkpoint of the Trainer, on micro-batches that are given. Knows no LossGuard."""

    def __init__(self, folder, data, steps, max_norm=1.0):
        self.data, self.max_norm = data, max_norm
        self.made = trainer(folder / "by-hand", kind=Quick, data=data, **SETTING | {"max_steps": steps})
        self.made.create_optimizer_and_scheduler(steps)
        self.model, self.optimizer, self.schedule = self.made.model, self.made.optimizer, self.made.lr_scheduler
        self.scaler = torch.amp.GradScaler("cpu", growth_interval=3)
        self.losses, self.norms, self.rates, self.scales = [], [], [], []

    def load(self, checkpoint, rank=None):
        stored = load_file(checkpoint / "model.safetensors")
        self.model.load_state_dict(stored, strict=False)
        for part, name in ((self.optimizer, "optimizer.pt"), (self.schedule, "scheduler.pt"), (self.scaler, "scaler.pt")):
            part.load_state_dict(torch.load(checkpoint / name, weights_only=False))
        rng = torch.load(checkpoint / ("rng_state.pth" if rank is None else f"rng_state_{rank}.pth"), weights_only=False)
        torch.set_rng_state(rng["cpu"])
        self.model.train()

    def step(self, micro_batches):
        """One update over the micro-batches: the mean over all of their tokens."""
        items = torch.tensor(sum(self.rows(batch).numel() for batch in micro_batches))  # as the Trainer counts them
        self.update([self.backward(batch, items) for batch in micro_batches])

    def rows(self, batch):
        return torch.stack([self.data[row]["input_ids"] for row in batch])

    def backward(self, batch, items, ranks=1):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = self.model(input_ids=self.rows(batch), labels=self.rows(batch), num_items_in_batch=items).loss
        self.scaler.scale(loss * ranks).backward()
        return loss.detach() * ranks

    def update(self, losses):
        self.scaler.unscale_(self.optimizer)
        self.norms.append(float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)))
        self.rates.append(self.schedule.get_last_lr()[0])
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()
        self.model.zero_grad()
        self.losses.append(float(sum(losses, torch.tensor(0.0))))
        self.scales.append(self.scaler.get_scale())

"""A training whose data loader makes workers after the start. With torch alone, because what is spawned imports it all again."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ends_plain import open_monitor
from torch.utils.data import DataLoader, Dataset


class Logging(Dataset):
    """A data set that logs where it is read, as people do."""

    monitor: Any = None

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        if self.monitor is not None:
            self.monitor.log({"data/index": float(index)}, index)
        return index


def load_data(job: dict, folder: Path, leaving: Callable[[], None]) -> None:
    """A data loader whose workers are made after the start, again for each epoch, while the writer is busy."""
    warnings.simplefilter("ignore")  # more workers than cores: as people have them
    rows = Logging()
    with open_monitor(job, folder) as monitor:
        if job["way"] == "fork":
            rows.monitor = monitor  # what is spawned gets a copy of the data set, and a monitor cannot be copied
        workers = 4 if job["way"] == "fork" else 1
        for epoch in range(5 if job["way"] == "fork" else 1):
            loader = DataLoader(rows, batch_size=8, num_workers=workers, multiprocessing_context=job["way"], timeout=120)
            for number, _ in enumerate(loader):
                monitor.log({"train/loss": 1.0}, epoch * 8 + number + 1)
        leaving()

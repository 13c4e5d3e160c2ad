"""A training process to be killed: logs steps, and writes down each number after `log()` has come back."""

import sys
import time
from pathlib import Path

from trainer_agent.config import Config
from trainer_agent.monitor import Monitor, new_incarnation
from trainer_agent.wire.messages import RunStart, SegmentStarted
from trainer_agent.wire.vocabulary import EndReason, SegmentCause

folder, url, count, pause, leave = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
monitor = Monitor(RunStart("run", new_incarnation(), "p", "n"), Config(url or None, "t" if url else None), folder / ".lossguard")
monitor.begin()
monitor.record(SegmentStarted(1, 0, SegmentCause.START, time.time()))
with (folder / "logged.txt").open("a", buffering=1) as witness:
    for step in range(1, count + 1):
        monitor.log({"train/loss": 1.0 / step, "train/grad_norm": float("inf")}, step)
        witness.write(f"{monitor.start.incarnation} {step} {time.time()}\n")
        time.sleep(pause)
if leave == "raise":
    raise ValueError("the training's own")
if leave == "exit":
    sys.exit(3)
if leave == "end":
    monitor.end(EndReason.FINISHED, count)

"""A training process that goes wrong as it is told: steps, then blocks, leaves, or goes on until it is ended.

Arguments: folder, url, token, run id, what to do after the steps (`blocks`, `leaves`, `goes_on`), seconds between heartbeats.
"""

import sys
import time
from pathlib import Path

from trainer_agent.config import Config
from trainer_agent.monitor import Monitor, new_incarnation
from trainer_agent.sending import sender
from trainer_agent.wire.messages import RunStart, SegmentStarted
from trainer_agent.wire.vocabulary import EndReason, Phase, SegmentCause

folder, url, token, run_id, then, beat = Path(sys.argv[1]), *sys.argv[2:6], float(sys.argv[6])
sender.HEARTBEAT_SECONDS = beat
monitor = Monitor(RunStart(run_id, new_incarnation(), "p", run_id), Config(url, token), folder / ".lossguard")
monitor.begin()
monitor.record(SegmentStarted(1, 0, SegmentCause.START, time.time()))
monitor.set_phase(Phase.TRAINING)
step = 0
while then == "goes_on" or step < 25:
    step += 1
    monitor.log({"train/loss": 1.0}, step)
    time.sleep(0.1)
monitor.flush(30)
(folder / "through").touch()
if then == "leaves":
    monitor.end(EndReason.FINISHED, step)
    sys.exit(0)
while True:  # a collective that never ends: no bytecode of the loop's own runs, the agent's threads do
    time.sleep(3600)

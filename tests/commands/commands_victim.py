"""Lives of one training that are cut short: each a process of its own, forked so that torch is imported once.

    python commands_victim.py FOLDER

For each case of `CASES` a run in FOLDER/CASE: the first life is told a command, and kills itself at a crash label; the second
goes on with `resume_from_checkpoint=True`. What each life saw stands in FOLDER/CASE/told-N.jsonl, a line each, written before
anything else can happen: steps, segments, reports, the end.
"""

import json
import os
import sys
import traceback
from pathlib import Path

from training_kit import At, Book, HalfTrainer, Tape, TapedMonitor, trainer

from trainer_agent.hf import guarded_train
from trainer_agent.training import opening
from trainer_agent.wire import codec, crash
from trainer_agent.wire.commands import Command, RollbackPayload
from trainer_agent.wire.messages import Reply, Report, RunEnded, SegmentStarted
from trainer_agent.wire.vocabulary import CommandKind, DataMode

ROLLBACK = (
    "journal.before_write",
    "rollback.intended",
    "rollback.planned",
    "rollback.half_loaded",
    "rollback.opened",
    "rollback.first_step_done",
    "rollback.answered",
)
STOP = ("journal.before_write", "stop.intended", "stop.saved", "stop.answered")
CASES = {f"rollback {label}": ("rollback", label) for label in ROLLBACK} | {f"stop {label}": ("stop", label) for label in STOP}
STEPS, ORDERED_AT = 9, 7


class Life:
    """What one process of the run sees, on the disk at once."""

    def __init__(self, folder: Path, number: int) -> None:
        self.handle = os.open(folder / f"told-{number}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(self, **what) -> None:
        os.write(self.handle, json.dumps(what).encode() + b"\n")


def live(folder: Path, number: int, kind: str, label: str) -> None:
    life, tape = Life(folder, number), Tape()

    class Told(TapedMonitor):
        def record(self, record):
            if isinstance(record, SegmentStarted | Report | RunEnded):
                life.tell(**codec.to_json(record))
            super().record(record)

    Told.tape = tape
    opening.Monitor = Told

    class Steps(Book):
        def on_step_end(self, args, state, control, **kwargs):
            super().on_step_end(args, state, control, **kwargs)
            life.tell(step=state.global_step, rows=self.rows[state.global_step])

    def order(**_):
        at = tape.monitor
        payload = RollbackPayload("checkpoint-4", 4, 2, DataMode.SKIP, learning_rate_factor=0.5, first_sign_step=5)
        payload = payload if kind == "rollback" else None
        command = Command("c1", CommandKind(kind), at.start.incarnation, at.segment, 600.0, 600.0, rollback=payload)
        at._on_reply(Reply(next_seq=1, commands=(command,)))
        if label:
            crash.arm(label)

    told = At(ORDERED_AT, order) if number == 1 else At(0, order)
    made = trainer(folder, Steps(), told, kind=HalfTrainer, fp16=True, max_steps=STEPS, save_steps=2, dropout=0.1)
    guarded_train(made, resume_from_checkpoint=number > 1)
    life.tell(through=made.state.global_step)


def main() -> None:
    for case, (kind, label) in CASES.items():
        folder = Path(sys.argv[1], case)
        folder.mkdir(parents=True)
        for number in (1, 2):
            child = os.fork()
            if child == 0:
                try:
                    live(folder, number, kind, label)
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
            _, status = os.waitpid(child, 0)
            (folder / f"status-{number}").write_text(str(os.waitstatus_to_exitcode(status)))


main()

"""Whole trainings to be killed: a tiny GPT-2 in the Trainer, or a loop by hand, under a real server that gives it a command.

    python kill_trainings.py        the orders and answers of `kill_victims`, with the act "whole"

Steps 1 to 14, a checkpoint every 2 with a limit of 1, and at the beginning of step 9 a command: a rollback to step 4 that skips
what came after it, or a stop. What a life sees stands in FOLDER/told-N.jsonl, a line each, before anything else can happen.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("", "agent", "loops")]

import forked
import httpx2
import kill_victims
import torch
from loops_kit import Training as ByHand
from loops_kit import loader
from training_kit import At, Book, HalfTrainer, Rows, trainer

from trainer_agent.checkpoints import retention, saves
from trainer_agent.commands import journal
from trainer_agent.hf import guarded_train, saving
from trainer_agent.monitor import Monitor
from trainer_agent.sending import inbox
from trainer_agent.training import opening
from trainer_agent.wire import codec, crash
from trainer_agent.wire.commands import Command
from trainer_agent.wire.messages import Reply, Report, RunEnded, SegmentStarted

STEPS, ORDERED_AT, TARGET = 14, 9, 4
PATIENCE = 60.0


class Life:
    """What one process of the run sees, on the disk at once."""

    def __init__(self, order: dict) -> None:
        self.order, self.folder = order, Path(order["folder"])
        self.folder.mkdir(parents=True, exist_ok=True)
        self.number = 1 + len(list(self.folder.glob("told-*.jsonl")))
        self.monitor: Monitor | None = None
        self._handle = os.open(self.folder / f"told-{self.number}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def tell(self, **what: object) -> None:
        os.write(self._handle, json.dumps(what).encode() + b"\n")

    def command(self, **_: object) -> None:
        """Gives the command as a person does, and returns once the trainer has it."""
        order = self.order
        if self.number > 1 or not order.get("command") or (self.folder / "command.json").exists():
            return
        assert self.monitor is not None
        run_id = self.monitor.start.run_id
        headers = {"Authorization": f"Bearer {order['operator']}", "Idempotency-Key": run_id, "X-LossGuard": "1"}
        with httpx2.Client(base_url=order["url"], headers=headers, trust_env=False, timeout=20) as api:

            def run() -> dict:
                return api.get(f"/api/runs/{run_id}").raise_for_status().json()

            def has_target() -> bool:
                assert (self.folder / "out" / f"checkpoint-{TARGET}").is_dir(), "the target was rotated away"
                return any(c["step"] == TARGET and c["state"] == "sound" for c in run()["checkpoints"])

            wait(has_target)
            more = {"checkpoint_id": f"checkpoint-{TARGET}", "data": "skip"} if order["command"] == "rollback" else {}
            body = {"kind": order["command"], "seen_segment": run()["segment"], **more}
            made = api.post(f"/api/runs/{run_id}/commands", json=body).raise_for_status().json()
            (self.folder / "command.json").write_text(json.dumps(made | {"incarnation": self.monitor.start.incarnation}))
            wait(lambda: self.monitor._inbox.waiting)
        crash.arm(order.get("at", ""), self.folder / "reached.txt")

    def late_reply(self) -> None:
        """An answer that a network has held back until now: the command, made for the process before this one."""
        made = json.loads((self.folder / "command.json").read_text())
        rollback = None
        if made["rollback"] is not None:
            known = {"checkpoint_id", "target_step", "new_segment", "data"}
            rollback = {name: value for name, value in made["rollback"].items() if name in known}
        told = {"command_id": made["command_id"], "kind": made["kind"], "segment": made["segment"], "rollback": rollback}
        limits = {"deliver_within_seconds": 600.0, "execute_within_seconds": 600.0}
        command = codec.from_json(Command, told | limits | {"incarnation": made["incarnation"]})
        assert self.monitor is not None
        self.monitor._on_reply(Reply(next_seq=1, commands=(command,)))


def wait(look: object) -> None:
    until = time.monotonic() + PATIENCE
    while not look():  # type: ignore[operator]
        assert time.monotonic() < until, "it did not come in time"
        time.sleep(0.01)


def whole(order: dict) -> None:
    kill_victims.plant(order.get("fault", ""))
    retention.UNKNOWN_LEAD = 1  # or nothing were old enough to be removed in so short a training
    life = Life(order)
    os.environ["LOSSGUARD_URL"], os.environ["LOSSGUARD_TOKEN"] = order["url"], order["token"]

    class Told(Monitor):
        def begin(self) -> None:
            life.monitor = self
            super().begin()

        def record(self, record: object) -> None:
            if isinstance(record, SegmentStarted | Report | RunEnded):
                life.tell(**codec.to_json(record))
            super().record(record)  # type: ignore[arg-type]

        def end(self, *given: object, timeout_seconds: float = PATIENCE) -> None:
            """The end of the run is with the server when the process is over, however busy the machine."""
            super().end(*given, timeout_seconds=timeout_seconds)  # type: ignore[arg-type]

    opening.Monitor = Told  # type: ignore[misc]
    if not order.get("command"):
        crash.arm(order.get("at", "") if life.number == 1 else "", life.folder / "reached.txt")
    INTEGRATIONS[order["integration"]](life)


def in_the_trainer(life: Life) -> None:
    class Steps(Book):
        def on_step_end(self, args, state, control, **kwargs):  # type: ignore[no-untyped-def]
            super().on_step_end(args, state, control, **kwargs)
            life.tell(step=state.global_step, rows=self.rows[state.global_step])

        def on_step_begin(self, args, state, control, **kwargs):  # type: ignore[no-untyped-def]
            if life.order.get("late_reply") and life.number == 2 and state.global_step == STEPS - 2:
                life.late_reply()

    made = trainer(
        life.folder / "out",
        Steps(),
        At(ORDERED_AT, life.command),
        kind=HalfTrainer,
        data=Rows(200),
        fp16=True,
        max_steps=STEPS,
        save_steps=2,
        save_total_limit=1,
        dropout=0.1,
    )
    guarded_train(made, resume_from_checkpoint=life.number > 1)
    life.tell(through=made.state.global_step, digest=digest(made.model))


def by_hand(life: Life) -> None:
    training = ByHand()
    with training.watch(life.folder / "out", save_every=2, keep=1, resume=life.number > 1, total_steps=STEPS) as run:
        for (batch,) in run.batches(loader(), max_steps=STEPS):
            if run.step + 1 == ORDERED_AT:
                life.command()
            if life.order.get("late_reply") and life.number == 2 and run.step == STEPS - 2:
                life.late_reply()
            loss, norm = training.update(batch)
            run.step_ended(loss=loss, grad_norm=norm)
            life.tell(step=run.step + 1, rows=training.rows_of[-1])
    life.tell(through=run.step, digest=digest(training.model))


def digest(model: torch.nn.Module) -> str:
    found = hashlib.sha256()
    for weight in model.parameters():
        found.update(weight.detach().numpy().tobytes())
    return found.hexdigest()


INTEGRATIONS = {"trainer": in_the_trainer, "by hand": by_hand}


# --- faults, planted here and not in the product ---


def no_fence() -> None:
    inbox._misdirected = lambda _state, _command: ""


def no_journal() -> None:
    journal.Journal._write = lambda *_: None  # type: ignore[method-assign]


def manifest_first() -> None:
    """The mark is set before the data are there, with the facts that the checkpoint before had."""
    coming = saves.Saves.coming

    def came(self: saves.Saves, step: int) -> None:
        coming(self, step)
        directory = self.catalogue.path_of_step(step)
        known = sorted(directory.parent.glob("checkpoint-*/lossguard.json"), key=lambda path: path.stat().st_mtime)
        if known:
            content = json.loads(known[-1].read_text())
            content["checkpoint"] |= {"checkpoint_id": directory.name, "step": step}
            directory.mkdir(exist_ok=True)
            (directory / "lossguard.json").write_text(json.dumps(content))

    saves.Saves.coming = came  # type: ignore[method-assign]


def rotation_unguarded() -> None:
    """The Trainer keeps its limit, and rotates as it always did."""
    saving.Limit.take = lambda *_: None  # type: ignore[method-assign]


def full_disk_once() -> None:
    """The disk is full when step 6 is saved for the second time, which is after the rollback."""
    save, seen = torch.save, set()

    def saved(what: object, file: object, **more: object) -> None:
        path = Path(str(getattr(file, "name", file)))
        key = (path.parent.name, path.name)
        if path.parent.name.endswith("-6") and key in seen:
            seen.clear()
            raise OSError(28, "No space left on device")
        seen.add(key)
        save(what, file, **more)

    torch.save = saved


kill_victims.FAULTS |= {
    "full disk once": full_disk_once,
    "no fence": no_fence,
    "no journal": no_journal,
    "manifest first": manifest_first,
    "rotation unguarded": rotation_unguarded,
}
kill_victims.ACTS["whole"] = whole

if __name__ == "__main__":
    torch.set_num_threads(1)
    forked.warm_up()
    kill_victims.main()

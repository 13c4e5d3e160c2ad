"""Trainings that leave in every way: `python ends_victim.py ORDER.json`. One interpreter imports, and forks for each job.

A job is {name, where, way, url, token, folder, run}. `where`: monitor (plain), hf (guarded_train), callback (the bare one). Its
child leaves by falling off the end of this script, as a script of its own would, so that an uncaught exception, `sys.exit` and
the functions of `atexit` are the interpreter's own.
"""

import atexit
import gc
import json
import os
import signal
import sys
import time
from pathlib import Path

place: list[Path] = []
atexit.register(lambda: leave_mark(place[0], "left") if place else None)  # the first to be registered is the last to be called

order = json.loads(Path(sys.argv[1]).read_text())
jobs = order["jobs"]
if __name__ == "__main__" and any(job["where"] != "monitor" for job in jobs):
    import ends_hf
import ends_plain  # noqa: E402  the mark above comes first

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job hands on that it is ignored
HANDLERS = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}


def leave_mark(folder: Path, name: str) -> None:
    """Written just before the way out is taken: what comes after it is the end's."""
    (folder / name).write_text(str(time.monotonic()))


def child(job: dict) -> None:
    folder = Path(job["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    place.append(folder)
    for number, name in ((1, "out"), (2, "err")):
        handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
        os.close(handle)
    train = ends_plain.train if job["where"] == "monitor" else ends_hf.WHERE[job["where"]]
    train(job, folder, lambda: leave_mark(folder, "leaving"))
    for number, handler in HANDLERS.items():
        assert signal.getsignal(number) is handler, "a signal handler of LossGuard's"


def left_by(folder: Path) -> dict:
    """What it wrote, and the seconds from the way out taken to the end of all that runs at exit."""
    marks = [float(path.read_text()) for name in ("leaving", "left") if (path := folder / name).exists()]
    return {"seconds": marks[-1] - marks[0], "out": (folder / "out").read_text(), "err": (folder / "err").read_text()}


def main() -> bool:
    """False in a child, which then leaves as a script does."""
    waiting, running, results = list(jobs), {}, {}
    while waiting or running:
        while waiting and len(running) < order["at_once"]:
            job = waiting.pop(0)
            pid = os.fork()
            if pid == 0:
                child(job)
                return False
            running[pid] = job
        pid, status = os.waitpid(-1, 0)
        job = running.pop(pid)
        results[job["name"]] = {"status": os.waitstatus_to_exitcode(status)} | left_by(Path(job["folder"]))
    Path(order["results"]).write_text(json.dumps(results))
    return True


if __name__ == "__main__":  # and not in what multiprocessing spawns
    gc.freeze()  # or each child copies all that was imported when it first collects, and takes it apart at its end
    main()

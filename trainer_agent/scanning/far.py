"""The pass over many bytes, made where it does not meet the training.

A thread beside the training shares the interpreter with it. One of low priority is the worst neighbour on a busy machine: when
it is handed the interpreter and no core, the training waits for it to get one. So what takes longer than a moment is done by a
process of its own, at the lowest priority; a little is done here at once, which costs less than to start one. Where no process
can be had, or it dies, everything is done here.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path

from .one_pass import Cancelled, Region, Scanned, scan

FAR_BYTES = 64 << 20
"""From here on a process is started: it takes as long to start as a pass over so much."""
LOWEST_PRIORITY = 19
LOOK_SECONDS = 0.1
"""How often it is asked whether there is something better to do."""

Jobs = Mapping[str, tuple[Path, Sequence[Region]]]


def scan_all(jobs: Jobs, give_up: Callable[[], bool] = lambda: False) -> dict[str, Scanned]:
    """One pass over each file; what was found, by the names given.

    Raises:
        CutShort, Cancelled, OSError
    """
    found: dict[str, Scanned] = {}
    if os.name == "posix" and sum(path.stat().st_size for path, _ in jobs.values()) >= FAR_BYTES:
        with suppress(OSError, ValueError):  # no process, or one that broke off
            found.update(_far(jobs, give_up))
    for name, (path, regions) in jobs.items():
        if name not in found:
            found[name] = scan(path, regions, give_up)
    return found


def _far(jobs: Jobs, give_up: Callable[[], bool]) -> Iterator[tuple[str, Scanned]]:
    """What the process has found, as it comes."""
    with _started() as process:
        try:
            assert process.stdin is not None
            told = [(str(path), [(r.offset, r.size, astuple(r.floats)) for r in regions]) for path, regions in jobs.values()]
            process.stdin.write(json.dumps(told).encode() + b"\n")
            process.stdin.flush()
            for name, line in zip(jobs, _lines(process, give_up), strict=False):
                if (answer := json.loads(line)) is not None:
                    yield name, Scanned(*answer)
        finally:
            process.kill()


def _started() -> "subprocess.Popen[bytes]":
    """Python with the parts that look at bytes, and without the user's signals and threads of a library for numbers."""
    root = str(Path(__file__).resolve().parents[2])
    lowered = f"import os; os.setpriority(os.PRIO_PROCESS, 0, {LOWEST_PRIORITY})"  # before the long imports
    code = f"{lowered}; import sys; sys.path.insert(0, {root!r}); from trainer_agent.scanning.process import main; main()"
    variables = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return subprocess.Popen(  # noqa: S603  this very interpreter
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=variables,
        process_group=0,  # out of the way of Ctrl-C; not a session, whose processes Linux sets on a par with all of ours
    )


def _lines(process: "subprocess.Popen[bytes]", give_up: Callable[[], bool]) -> Iterator[bytes]:
    """What it says, line by line, until it says no more."""
    assert process.stdout is not None
    said = b""
    while not give_up():
        if select.select([process.stdout], [], [], LOOK_SECONDS)[0]:
            more = os.read(process.stdout.fileno(), 1 << 16)
            if not more:
                return
            *lines, said = (said + more).split(b"\n")
            yield from lines
    raise Cancelled

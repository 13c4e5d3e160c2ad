"""Programs in processes of their own, forked from one that has imported everything: what takes long is to import torch.

    started = forked.popen([sys.executable, "script.py", ...], env=..., out=path)     as subprocess.Popen, and
    done = forked.run([sys.executable, "-m", "server", ...], env=..., seconds=60)     as subprocess.run, with its answers
    said = forked.output([sys.executable, "-m", "server", ...], env=...)              of a program that must end well

A program is given as for the interpreter, by its path, with -m or with -c. It is the main module of its process, and has its own
files, threads and signals. At its end its threads are waited for and what it registered with `atexit` is called; what it holds
is not taken apart, which takes a second where torch is imported. What is about flags (-W), or about how the interpreter starts
or ends, does not belong here, nor what is about the hashes of strings, whose seed all of them share. Run as a program, this file
is the process that forks: orders come on stdin, a line each.
"""

import atexit
import ctypes
import gc
import importlib
import itertools
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
GPT2 = "transformers.models.gpt2.modeling_gpt2"
TRAININGS = ("trainer_agent.hf", "trainer_agent.loop", "transformers.trainer", GPT2, "torch.distributed.run")
IMPORTED = {"torch": TRAININGS, "server": ("server.__main__",)}
PATIENCE = 300.0
"""Seconds after which no process was forked; far above what the imports take on a busy machine."""


class Process:
    """A forked program; its names are those of `subprocess.Popen`."""

    def __init__(self, forks: "Forks", pid: int) -> None:
        self.pid, self._forks = pid, forks

    @property
    def returncode(self) -> int | None:
        return self._forks.ended.get(self.pid)

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        with self._forks.changed:
            if not self._forks.changed.wait_for(lambda: self.returncode is not None, timeout):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            return self._forks.ended[self.pid]

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it has ended, and is not told yet
            if self.returncode is None:
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forks:
    """The process that forks, seen from the tests. For several threads at once."""

    def __init__(self, what: str) -> None:
        one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), *IMPORTED[what]],
            env=kept | one_thread | {"TRANSFORMERS_VERBOSITY": "error"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C is for the tests
        )
        self.changed, self.ended = threading.Condition(), dict[int, int]()
        self._numbers, self._pids = itertools.count(1), dict[int, int]()
        threading.Thread(target=self._listen, daemon=True).start()
        atexit.register(self._close)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            number, pid, status = json.loads(line)
            with self.changed:
                if status is None:
                    self.ended.pop(pid, None)  # of one before it that had the same number
                    self._pids[number] = pid
                else:
                    self.ended[pid] = status
                self.changed.notify_all()

    def start(self, order: dict) -> Process:
        with self.changed:
            number = next(self._numbers)
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(order | {"number": number}).encode() + b"\n")
            self._process.stdin.flush()
            assert self.changed.wait_for(lambda: number in self._pids, PATIENCE), "no process was forked"
            return Process(self, self._pids[number])

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait(PATIENCE)


@cache
def _forks(what: str) -> Forks:
    return Forks(what)


def popen(
    command: Sequence[object],
    *,
    env: Mapping[str, str],
    out: Path,
    err: Path | None = None,
    cwd: Path = ROOT,
    ranks: int = 0,
    new_session: bool = False,
    what: str = "",
) -> Process:
    """Starts a program that writes to the end of the file `out`, and its errors to `err` or there too.

    Args:
        ranks: it is started so many times, by torchrun's launcher.
        what: has been imported, of `IMPORTED`; unset: the server for its own commands, else torch.
    """
    interpreter, *words = map(str, command)
    assert interpreter == sys.executable
    order = {"words": words, "env": dict(env), "cwd": str(cwd), "out": str(out), "err": str(err or out), "ranks": ranks}
    what = what or ("server" if words[:2] == ["-m", "server"] else "torch")
    return _forks(what).start(order | {"new_session": new_session})


def run(
    command: Sequence[object], *, env: Mapping[str, str], seconds: float = 300.0, cwd: Path = ROOT, ranks: int = 0
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, and gives its status and what it wrote.

    Raises:
        subprocess.TimeoutExpired: it has not ended after so many seconds; it is killed.
    """
    with tempfile.TemporaryDirectory(prefix="lossguard-forked-") as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = popen(command, env=env, out=out, err=err, cwd=cwd, ranks=ranks)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(list(command), status, out.read_text(), err.read_text())


def output(command: Sequence[object], *, env: Mapping[str, str]) -> str:
    """What a program that must end well has written."""
    done = run(command, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# --- the process that forks ---


def take_orders() -> dict:
    """Forks for each order, and tells the end of each process. Comes back in the forked ones only, with their order."""
    woken, wakes = os.pipe()
    for end in (woken, wakes):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    answers, buffer, children = os.dup(1), b"", dict[int, int]()
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            with suppress(BlockingIOError):
                os.read(woken, 4096)
        if 0 in ready:
            more = os.read(0, 1 << 16)
            if not more:
                _leave(children)
            buffer += more
        *lines, buffer = buffer.split(b"\n")
        for order in map(json.loads, lines):
            if (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                for handle in (woken, wakes, answers):
                    os.close(handle)
                return order
            children[pid] = order["number"]
            os.write(answers, json.dumps([order["number"], pid, None]).encode() + b"\n")
        for pid in list(children):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                end = [children.pop(pid), pid, os.waitstatus_to_exitcode(status)]
                with suppress(BrokenPipeError):
                    os.write(answers, json.dumps(end).encode() + b"\n")


def _leave(children: dict[int, int]) -> None:
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os._exit(0)


def become(order: dict) -> None:
    """This process is that of the program from here on."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if sys.platform == "linux":  # should the forking process be killed
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if order["new_session"]:
        os.setsid()
    for handle, path in enumerate((os.devnull, order["out"], order["err"])):
        opened = os.open(path, (os.O_WRONLY | os.O_CREAT | os.O_APPEND) if handle else os.O_RDONLY, 0o644)
        os.dup2(opened, handle)
        os.close(opened)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    time.tzset()
    sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def execute(words: Sequence[str]) -> None:
    """The program, as the interpreter would run it."""
    for name in ("numpy.random", "torch"):  # they begin anew in each process; `random` does so by itself
        if name in sys.modules:
            sys.modules[name].seed()
    kind, *arguments = words
    if kind == "-m":
        sys.argv = arguments
        sys.modules.pop(f"{arguments[0]}.__main__", None)
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = ModuleType("__main__")
    if kind == "-c":
        name, source, sys.argv = "<string>", arguments[0], ["-c", *arguments[1:]]
    else:
        name, source, sys.argv = kind, Path(kind).read_text(), [kind, *arguments]
        main.__file__ = kind
        sys.path.insert(0, str(Path(kind).resolve().parent))
    exec(compile(source, name, "exec"), vars(main))


def launch(ranks: int, words: Sequence[str]) -> None:
    """torchrun's launcher, which forks its ranks."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    settings = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        run_id="tests",
        start_method="fork",
        max_restarts=0,
    )
    elastic_launch(settings, execute)(list(words))


def to_its_end(order: dict) -> int:
    """Runs the program; gives its exit status, below 0 for the signal that it is to die by."""
    try:
        if order["ranks"]:
            launch(order["ranks"], order["words"])
        else:
            execute(order["words"])
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        print(left.code, file=sys.stderr)
        return 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def warm_up() -> None:
    """What transformers works out at a process's first save, which takes as long as a small training."""
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    get_checkpoint_conversion_mapping("gpt2")


def main() -> None:
    for name in sys.argv[1:]:
        importlib.import_module(name)
    if "torch" in sys.modules:
        warm_up()
    gc.freeze()  # or each process copies all of it when it first collects
    order = take_orders()
    become(order)
    status = to_its_end(order)
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main()

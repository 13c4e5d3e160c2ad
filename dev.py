"""The project's commands, with nothing but Python: `python3 dev.py demo | test | serve | lint | soak | bench | setup`.

Each has what it needs installed first (see `dev_setup.py`), and runs. Owns how things are started; refuses to know what they do.
Everything here is the standard library, and the file stays readable for an old Python, so that the first thing an old Python
says is what to do.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - this file also meets older ones
    import os
    import shutil

    for _name in ("python3.14", "python3.13", "python3.12", "python3.11"):
        _newer = shutil.which(_name)
        if _newer and os.system('"%s" -c "import sys; sys.exit(sys.version_info < (3, 11))"' % _newer) == 0:  # noqa: S605, UP031
            os.execv(_newer, [_newer] + sys.argv)  # noqa: S606, RUF005
    sys.exit("LossGuard needs Python 3.11 or newer; this is %s. Install one, then: python3.11 dev.py" % sys.version.split()[0])  # noqa: UP031

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from typing import NoReturn

from dev_setup import BIN, CONTAINS, PYTHON, ROOT, VENV, SetupError, call, chromium, say, setup

if os.name == "nt":
    sys.exit("The server and the demo need Linux or macOS; on Windows run this inside WSL.")

PARTS = (
    ("e2e", "packaging", "faults", "liveness", "ends", "kill", "demo"),
    ("agent", "benchmarks", "checkpoints", "commands", "exact", "exclude", "ledger", "loops", "ranks", "retention"),
)
"""The folders of tests that run beside all others: those that start whole programs, and those that train."""

LONG_FORMS = (
    *("kill", "faults", "ends", "ranks", "retention", "issuing", "judging", "liveness", "backtest", "services"),
    *("agent", "benchmarks", "api", "outbound"),
)
"""The folders whose tests do more, or hold to tighter limits, in the soak."""


def demo(arguments: list[str]) -> int:
    """A tiny GPT-2 dies on a bad document, and is saved: see examples/demo.py."""
    setup("demo")
    _become([PYTHON, ROOT / "examples" / "demo.py", *arguments], _quiet_training())


def serve(arguments: list[str]) -> int:
    """The server; see `python3 dev.py serve --help`."""
    setup("server")
    _become([PYTHON, "-m", "server", "serve", *arguments], dict(os.environ))


def lint(_arguments: list[str]) -> int:
    """Style, format, types and layers."""
    setup("test")
    checks: list[list[object]] = [
        [BIN / "ruff", "check", "."],
        [BIN / "ruff", "format", "--check", "."],
        [PYTHON, "-m", "mypy"],
        [BIN / "lint-imports", "--no-cache"],
    ]
    failed = [str(check[0]) for check in checks if not call(check)]
    return 1 if failed else 0


def test(arguments: list[str]) -> int:
    """Everything a change needs; with arguments, only what pytest is told by them."""
    setup("test")
    environment = _quiet_training() | {"CHROMIUM": chromium()}
    return _run(_pytest(arguments), environment) if arguments else _all_tests(environment)


def _all_tests(environment: dict[str, str]) -> int:
    """Three parts at a time, on two cores too, because they wait a good deal. Each starts what it needs, a PostgreSQL too."""
    parts = [[f"tests/{folder}" for folder in part] for part in PARTS]
    others = [f"--ignore={folder}" for part in parts for folder in part]
    with contextlib.ExitStack() as stack:
        begun = []
        for part in parts:
            log = stack.enter_context(tempfile.TemporaryFile())
            started = subprocess.Popen(_pytest(part), cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
            begun.append((part, stack.enter_context(started), log))
        failed = lint([])
        failed = _run(_pytest(others), environment) or failed
        for part, process, log in begun:
            say(f"and {', '.join(part)}:")
            failed = process.wait() or failed
            log.seek(0)
            sys.stdout.flush()
            shutil.copyfileobj(log, sys.stdout.buffer)
    return failed


def _pytest(what: Sequence[str]) -> list[str]:
    return [str(PYTHON), "-m", "pytest", *what]


def soak(arguments: list[str]) -> int:
    """The demo, unattended, for three seeds, the inspection of a large model, then kills, faults and ranks at length."""
    setup("test")
    demo_py = ROOT / "examples" / "demo.py"
    codes = [
        _run([PYTHON, demo_py, "--headless", "--json", "--seed", str(seed), *arguments], _quiet_training()) for seed in range(3)
    ]
    say("soak: " + ", ".join(f"seed {seed} {'failed' if code else 'passed'}" for seed, code in enumerate(codes)))
    codes.append(_run([PYTHON, "-m", "benchmarks.checkpoint_scan", "--large", "--json"], _quiet_training()))
    return max(*codes, _soak_tests())


def _soak_tests() -> int:
    """The tests that have a long form: crash labels several times, random kills and lives, faults, forks, and ranks."""
    long = {"LOSSGUARD_SOAK": "1", "KILL_ROUNDS": "4", "KILL_RANDOM": "200", "ENDS_FORKS": "1000", "ENDS_RECORDS": "1000000"}
    code = _run(_pytest([f"tests/{folder}" for folder in LONG_FORMS]), _quiet_training() | long)
    say(f"soak: kills, faults, ends and ranks {'failed' if code else 'passed'}")
    return code


def bench(arguments: list[str]) -> int:
    """One benchmark by name; without a name, the list of them."""
    names = sorted(path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py"))
    if not arguments or arguments[0] not in names:
        say(f"name a benchmark: {', '.join(names) or 'there is none yet'}")
        return 2
    setup("test")
    return _run([PYTHON, "-m", f"benchmarks.{arguments[0]}", *arguments[1:]], _quiet_training())


def prepare(arguments: list[str]) -> int:
    """Install only. Takes server, demo or test (the default)."""
    extra = arguments[0] if arguments else "test"
    if extra not in CONTAINS:
        raise SetupError(f"setup takes one of {', '.join(CONTAINS)}, not {extra!r}")
    setup(extra)
    if extra == "test":
        say(f"browser: {chromium()}")
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]]
COMMANDS = {"demo": demo, "test": test, "serve": serve, "lint": lint, "soak": soak, "bench": bench, "setup": prepare}


def main(arguments: list[str]) -> int:
    """The exit status of the command named first."""
    if not arguments or arguments[0] not in COMMANDS:
        wanted = bool(arguments) and arguments[0] in {"-h", "--help", "help"}
        lines = [f"  {name:6} {(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()]
        say("\n".join(["usage: python3 dev.py COMMAND [arguments]", *lines]))
        return 0 if wanted else 2
    try:
        return COMMANDS[arguments[0]](arguments[1:])
    except SetupError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130


def _quiet_training() -> dict[str, str]:
    """One thread for torch, no hub, and none of the user's own LossGuard settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
    if kept.pop("PYTHONDONTWRITEBYTECODE", ""):  # as images set it: each process would compile transformers anew, for 7 s
        kept.setdefault("PYTHONPYCACHEPREFIX", str(VENV / "bytecode"))
    return kept | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def _run(command: Sequence[object], environment: dict[str, str]) -> int:
    return subprocess.run([str(part) for part in command], cwd=ROOT, env=environment, check=False).returncode


def _become(command: Sequence[object], environment: dict[str, str]) -> NoReturn:
    """Run in place of this process, so that Ctrl-C and signals reach the program itself."""
    os.chdir(ROOT)
    sys.stdout.flush()
    os.execve(str(command[0]), [str(part) for part in command], environment)  # noqa: S606


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

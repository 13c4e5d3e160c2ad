"""The trackers measured beside LossGuard, each in a virtual environment of its own, at a pinned version.

They lie in `$LOSSGUARD_BENCH_DIR`, else in `~/.cache/lossguard-bench`, are installed on the first run and used again after it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks._harness import say

PINNED = {"trackio": "trackio==0.43.0", "wandb": "wandb==0.31.0"}
INSTALL_SECONDS = 600


def python_of(peer: str) -> Path | None:
    """The interpreter that has the peer, installed now if need be; None when that fails, which is said."""
    python = f"py{sys.version_info[0]}{sys.version_info[1]}"
    venv = folder() / f"{PINNED[peer].replace('==', '-')}-{python}"
    interpreter = venv / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    stamp = venv / "installed"
    if stamp.exists() and interpreter.exists():
        return interpreter
    say(f"installing {PINNED[peer]} into {venv}")
    shutil.rmtree(venv, ignore_errors=True)
    venv.parent.mkdir(parents=True, exist_ok=True)
    if not any(all(map(_succeeds, way)) for way in _ways(venv, interpreter, PINNED[peer])):
        say(f"{PINNED[peer]} could not be installed: its bars are not met")
        return None
    stamp.touch()
    return interpreter


def folder() -> Path:
    """Where the environments lie."""
    return Path(os.environ.get("LOSSGUARD_BENCH_DIR") or Path.home() / ".cache" / "lossguard-bench")


def _ways(venv: Path, python: Path, what: str) -> list[list[list[str]]]:
    """With uv, else with venv and pip: the commands of each."""
    ways = [[[sys.executable, "-m", "venv", str(venv)], [str(python), "-m", "pip", "install", "-q", what]]]
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if uv:
        make = [uv, "venv", "-q", "--clear", "--python", sys.executable, str(venv)]
        ways.insert(0, [make, [uv, "pip", "install", "-q", "--python", str(python), what]])
    return ways


def _succeeds(command: list[str]) -> bool:
    environment = dict(os.environ)
    if index := environment.get("PIP_INDEX_URL"):
        environment.setdefault("UV_DEFAULT_INDEX", index)
    try:
        done = subprocess.run(  # noqa: S603
            command, env=environment, check=False, stdin=subprocess.DEVNULL, stdout=sys.stderr, timeout=INSTALL_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        say(str(error))
        return False
    return done.returncode == 0

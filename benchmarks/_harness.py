"""What every benchmark shares: its options, the machine it ran on, its bars, its last words, and a real server beside it.

    def main() -> int:
        options = parse("benchmarks.mine", "What it measures.")
        bars = [at_most("median over the bare append", ratio, 4.0)]
        return finish("mine", options, results, bars)

A bar is a figure with a limit. One whose figure is missing or no number is not met: a comparison that did not take place must
not look like one that was won.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure held to its limit; the name says which way. `value` is None where nothing could be measured."""

    name: str
    value: float | None
    limit: float
    ok: bool | None
    """None where the machine cannot have the figure at all, with the reason in `why`: neither met nor missed."""
    why: str = ""


def at_most(name: str, value: float | None, limit: float) -> Bar:
    """A bar that the figure may not pass."""
    known = _known(value)
    return Bar(f"{name} (at most)", known, limit, ok=known is not None and known <= limit)


def at_least(name: str, value: float | None, limit: float) -> Bar:
    """A bar that the figure has to reach."""
    known = _known(value)
    return Bar(f"{name} (at least)", known, limit, ok=known is not None and known >= limit)


def not_here(name: str, limit: float, why: str) -> Bar:
    """A bar for another kind of machine than this one. Only for what cannot exist here; what did not work is missed."""
    return Bar(name, None, limit, ok=None, why=why)


def _known(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def parser(benchmark: str, what: str) -> argparse.ArgumentParser:
    """The options every benchmark has; add its own."""
    made = argparse.ArgumentParser(prog=f"python -m benchmarks.{benchmark}", description=what)
    made.add_argument("--quick", action="store_true", help="fewer samples, done within 50 seconds")
    made.add_argument("--json", action="store_true", help="end with one JSON object instead of a table")
    return made


def parse(benchmark: str, what: str, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """`quick` and `json`, for a benchmark without options of its own."""
    return parser(benchmark, what).parse_args(arguments)


def finish(
    benchmark: str, options: argparse.Namespace, results: dict[str, Any], bars: Sequence[Bar], on: dict[str, Any] | None = None
) -> int:
    """Prints what came out; the exit status: 1 when a bar is not met. `on` is what else there is to know of the machine."""
    if options.json:
        whole = {"benchmark": benchmark, "machine": machine() | (on or {}), "results": results, "bars": _plain(bars)}
        print(json.dumps(strict(whole), allow_nan=False))
    else:
        print("\n".join(lines(results, bars)))
    return 1 if any(bar.ok is False for bar in bars) else 0


def _plain(bars: Sequence[Bar]) -> list[dict[str, Any]]:
    """The bars as they are printed: a reason only where there is one."""
    return [{key: value for key, value in asdict(bar).items() if key != "why" or value} for bar in bars]


def lines(results: dict[str, Any], bars: Sequence[Bar]) -> list[str]:
    """The results and bars as text."""
    told = _flat("", results)
    for bar in bars:
        value = "not measured" if bar.value is None else f"{bar.value:.4g}"
        sign = {True: "ok  ", False: "FAIL", None: "--  "}[bar.ok]
        told.append(f"{sign} {bar.name:<72} {value:>12}   limit {bar.limit:g}{f'   ({bar.why})' if bar.why else ''}")
    return told


def _flat(path: str, value: Any) -> list[str]:
    """One line for each innermost dictionary or value, under its path."""
    if isinstance(value, dict) and any(isinstance(item, dict) for item in value.values()):
        return [line for key, item in value.items() for line in _flat(f"{path} {key}".strip(), item)]
    pairs = [f"{key} {_short(item)}" for key, item in value.items()] if isinstance(value, dict) else [_short(value)]
    return [f"{path:<32} {'   '.join(pairs)}"] if pairs else []


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def strict(value: Any) -> Any:
    """The value with its non-finite numbers as words, for strict JSON."""
    if isinstance(value, dict):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def machine() -> dict[str, Any]:
    """What it ran on, and how busy that was: the load averages say whether the absolute times mean anything."""
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
    }


def _cpu_name() -> str:
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in told if line.startswith("model name")), platform.processor())


def say(text: str) -> None:
    """To stderr, so that the JSON stays alone on stdout."""
    print(text, file=sys.stderr, flush=True)


def quiet_environment(**more: str) -> dict[str, str]:
    """An environment without the user's own LossGuard settings, one thread for torch, and this checkout importable."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
    return kept | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)} | more


@dataclass(frozen=True, slots=True)
class Server:
    """A LossGuard server in another process."""

    url: str
    token: str


@contextmanager
def server(folder: Path, start_seconds: float = 60.0, **settings: str) -> Iterator[Server]:
    """A real server with an empty database in `folder` and these `LOSSGUARD_*` settings, ended with the block.

    Raises:
        RuntimeError: it does not start; the message ends with its log.
    """
    ready_file, log = folder / "ready.json", folder / "server.log"
    command = [sys.executable, "-m", "server", "serve", "--port", "0", "--ready-file", str(ready_file)]
    variables = quiet_environment(LOSSGUARD_DATA_DIR=str(folder / "data"), **settings)
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=variables, stdout=out, stderr=subprocess.STDOUT)  # noqa: S603
    try:
        deadline = time.monotonic() + start_seconds
        while not ready_file.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)
        ready = json.loads(ready_file.read_text())
        yield Server(ready["url"], Path(ready["agent_token_file"]).read_text().strip())
    finally:
        end(process)


def operator(folder: Path) -> str:
    """A token of a person for the server in `folder`."""
    command = [sys.executable, "-m", "server", "token", "create", "--role", "operator", "--name", "benchmark"]
    variables = quiet_environment(LOSSGUARD_DATA_DIR=str(folder / "data"))
    return subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603


def end(process: "subprocess.Popen[Any]") -> None:
    """Ends a process of ours, by force where it does not listen."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

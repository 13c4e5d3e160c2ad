"""What is left of a whole training that was killed, and how it goes on: the checks of the sweep over saves and commands."""

import json
import time
from dataclasses import dataclass
from pathlib import Path

import httpx2
from kill_kit import Forks, reached

from trainer_agent.checkpoints.directories import read_manifest
from trainer_agent.checkpoints.inspection import changed_file
from trainer_agent.checkpoints.rollback import unfit
from trainer_agent.wire.crash import LABELS

GROUPS = ("save.", "manifest.", "rotate.", "journal.", "rollback.", "stop.", "batch.", "request.", "ack.")
SWEPT = tuple(label for label in LABELS if label.startswith(GROUPS))
ENDED = {"finished", "stopped", "failed"}
LIMIT_SECONDS = 30.0


@dataclass(frozen=True)
class Whole:
    """One training to be killed: where, under which integration, told what."""

    integration: str
    command: str = ""
    at: str = ""
    fault: str = ""
    late_reply: bool = False


@dataclass(frozen=True)
class Site:
    """A server and who may ask it."""

    url: str
    token: str
    operator: str

    def run(self, run_id: str) -> dict:
        headers = {"Authorization": f"Bearer {self.operator}"}
        answer = httpx2.get(f"{self.url}/api/runs/{run_id}", headers=headers, trust_env=False, timeout=20)
        return answer.raise_for_status().json()


def told(folder: Path, life: int) -> list[dict]:
    path = folder / f"told-{life}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def steps(lines: list[dict]) -> list[tuple[int, tuple[int, ...]]]:
    return [(line["step"], tuple(line["rows"])) for line in lines if set(line) == {"step", "rows"}]


def sound(folder: Path, run_id: str) -> tuple[list[str], list[str]]:
    """The checkpoints that can be seen and are fit, and what is wrong with those that cannot be trusted."""
    fit, wrong = [], []
    for directory in sorted((folder / "out").glob("checkpoint-*")):
        facts = read_manifest(directory, run_id)
        if facts is None:
            continue
        fault = changed_file(facts, directory)
        if fault:
            wrong.append(f"{directory.name}: {fault}")
        elif not unfit(facts, None, needs_scaler=True):
            fit.append(directory.name)
    return fit, wrong


class Trainings:
    """Starts lives of whole trainings, and looks at what they left."""

    def __init__(self, forks: Forks, site: Site, folder: Path) -> None:
        self._forks, self._site, self._folder = forks, site, folder
        self._count = 0

    def folder(self) -> Path:
        self._count += 1
        return self._folder / f"whole-{self._count}"

    def live(self, folder: Path, whole: Whole) -> int:
        """One life; its exit status."""
        site = self._site
        order = {"folder": str(folder), "url": site.url, "token": site.token, "operator": site.operator}
        more = {"integration": whole.integration, "command": whole.command, "late_reply": whole.late_reply}
        more |= {"at": whole.at, "fault": whole.fault, "log": str(folder.with_suffix(".log"))}
        return self._forks.wait(self._forks.start("whole", **order, **more))

    def undisturbed(self, whole: Whole) -> "Outcome":
        folder = self.folder()
        assert self.live(folder, whole) == 0, log(folder)
        return Outcome(folder, self.run_of(folder), 0.0)

    def killed(self, whole: Whole) -> "Outcome":
        """Killed at its label, looked at, gone on with."""
        folder = self.folder()
        status = self.live(folder, whole)
        assert status == -9, f"{whole}: left with {status}: {log(folder)}"
        run_id = json.loads((folder / "out" / ".lossguard" / "run.json").read_text())["run_id"]
        fit, wrong = sound(folder, run_id)
        assert not wrong, f"{whole}: seen, and not to be trusted: {wrong}"
        began = time.monotonic()
        status = self.live(folder, whole)
        assert status == 0, f"{whole}: the next life left with {status}: {log(folder)}"
        run = self.run_of(folder)
        return Outcome(folder, run, time.monotonic() - began, fit)

    def again(self, whole: Whole) -> int:
        """Stopped, then started again by somebody; how many of the two lives were stopped by the command."""
        folder = self.folder()
        for _ in range(2):
            assert self.live(folder, whole) == 0, log(folder)
        ends = [line for life in (1, 2) for line in told(folder, life) if line.get("type") == "RunEnded"]
        return sum(line["reason"] == "stopped_by_command" for line in ends)

    def run_of(self, folder: Path) -> dict:
        """The run once the server knows how it ended."""
        run_id = json.loads((folder / "out" / ".lossguard" / "run.json").read_text())["run_id"]
        until = time.monotonic() + LIMIT_SECONDS
        while (run := self._site.run(run_id))["state"] not in ENDED and time.monotonic() < until:
            time.sleep(0.05)
        return run


@dataclass
class Outcome:
    """What came of one training."""

    folder: Path
    run: dict
    seconds: float
    fit: list[str] | None = None
    """The sound checkpoints when it was dead."""

    @property
    def digest(self) -> str:
        """Of the weights at its end."""
        (through,) = [line for life in (1, 2, 3) for line in told(self.folder, life) if "through" in line]
        return through["digest"]

    @property
    def rollbacks(self) -> list[dict]:
        lines = [line for life in (1, 2, 3) for line in told(self.folder, life)]
        return [line for line in lines if line.get("type") == "SegmentStarted" and line["cause"] == "rollback"]

    @property
    def command(self) -> dict | None:
        (command,) = self.run["commands"] or [None]
        return command

    @property
    def reached(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for label, count, _, _ in reached(self.folder / "reached.txt"):
            counts[label] = max(counts.get(label, 0), count)
        return counts


def log(folder: Path) -> str:
    path = folder.with_suffix(".log")
    return path.read_text()[-3000:] if path.exists() else ""


def judge(whole: Whole, found: Outcome, straight: Outcome, commanded: Outcome) -> str:
    """What is wrong with the outcome of a training that was killed; empty when nothing is."""
    segments = {line["segment"] for line in found.rollbacks}
    command = found.command
    if found.fit == [] and straight_had_one(found):
        return "no sound checkpoint was left"
    if found.seconds > LIMIT_SECONDS:
        return f"the right end state took {found.seconds:.0f} s"
    if command is None:
        same = found.run["state"] == "finished" and found.digest == straight.digest
        return "" if same else f"ended {found.run['state']}, or with other weights than undisturbed"
    if command["state"] not in {"succeeded", "expired", "rejected"}:
        return f"the command is {command['state']}: {command['outcome']}"
    if whole.command == "stop":
        wanted = "stopped" if command["state"] == "succeeded" else "finished"
        return "" if found.run["state"] == wanted else f"a stop that {command['state']} left the run {found.run['state']}"
    effects = len(segments)
    if effects != (command["state"] == "succeeded"):
        return f"a rollback that {command['state']} opened {effects} segments"
    like = commanded if effects else straight
    return "" if found.digest == like.digest else f"other weights than undisturbed, with {effects} effects"


def straight_had_one(found: Outcome) -> bool:
    """Whether the run had a sound checkpoint before it was killed: from the second save on it had the first."""
    taken = [step for step, _ in steps(told(found.folder, 1))]
    return bool(taken) and max(taken) >= 5

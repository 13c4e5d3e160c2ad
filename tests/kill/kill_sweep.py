"""The sweep: a victim for each crash label, killed there; then what it left is delivered, and the history is checked.

A label of the trainer kills a training; `lossguard sync` or the next start in its folder brings what it left. A label of the
server kills a server under a training; the server comes back and the training goes on to its end.
"""

import random
import signal
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from kill_history import Stored, Verdict, judge
from kill_kit import Forks, Server, closed_port, lives_of, reached, steps_of, wait_until
from kill_victims import SERIES, known

from trainer_agent.recording.salvage import scan
from trainer_agent.wire.crash import LABELS

KILLED = -signal.SIGKILL
ENDLESS = 20_000
SERVER_LABELS = tuple(label for label in LABELS if label.startswith("server."))
CHECKPOINT_LABELS = tuple(
    label for label in LABELS if label.partition(".")[0] in ("save", "manifest", "rotate", "journal", "rollback", "stop")
)
"""Reached by a training only, not by what is recorded and sent."""
TRAINER_LABELS = tuple(label for label in LABELS if label not in {*SERVER_LABELS, *CHECKPOINT_LABELS})


@dataclass(frozen=True)
class Case:
    """One victim: where it dies and what leads it there."""

    at: str
    before: str = ""
    """What a first victim leaves behind: "torn" or "damaged"."""
    order: dict = field(default_factory=dict)
    is_away: bool = False
    """Nobody answers while the victim lives."""
    may_drop: bool = False
    by: str = "sync"
    """Who delivers: "sync" or "start"."""


_FULL = {"max_bytes": 9000, "hot_entries": 64, "segment_bytes": 2000}
_SPECIAL = {
    "segment.before_cut_back": {"order": {"fault": "breaking write"}},
    "segment.cut_back": {"order": {"fault": "breaking write"}},
    "tail.before_cut": {"before": "torn"},
    "tail.cut": {"before": "torn"},
    "damage.before_keep": {"before": "damaged", "may_drop": True},
    "damage.kept": {"before": "damaged", "may_drop": True},
    "thin.before": {"order": _FULL, "is_away": True, "may_drop": True},
    "thin.done": {"order": _FULL, "is_away": True, "may_drop": True},
    "refused.before_keep": {"order": {"refused": True}},
    "refused.kept": {"order": {"refused": True}},
}
_ONCE = (
    "spool.",
    "identity.",
    "tail.",
    "damage.",
    "refused.",
    "end.",
    "announce.",
    "segment.before_cut_back",
    "segment.cut_back",
)
_TURNS = {"file.draft_written": (1, 3), "file.draft_synced": (2, 1), "file.renamed": (3, 1)}
"""The files in their order: the run's id, its first segment, the head of the spool."""


def trainer_cases(rounds: int = 1) -> list[Case]:
    """Each label of the trainer, so many times: at another turn and delivered the other way each time."""
    cases = []
    for place, label in enumerate(TRAINER_LABELS):
        for turn in range(rounds):
            count = 1 if label.startswith(_ONCE) else 2 + 3 * turn
            if label in _TURNS:
                count = _TURNS[label][turn % 2]
            special = dict(_SPECIAL.get(label, {}))
            order = {"steps": 90 if label.startswith("end.") else ENDLESS} | special.pop("order", {})
            by = ("sync", "start")[(place + turn) % 2]
            cases.append(Case(f"{label}:{count}", order=order, by=by, **special))
    return cases


@dataclass
class Fate:
    """What came of one victim's folder."""

    case: Case | None
    folder: Path
    problem: str = ""
    deaths: dict[str, int] = field(default_factory=dict)
    """By incarnation, in monotonic nanoseconds."""


class Sweep:
    """A server that stays, and trainings that die. For several threads at once."""

    def __init__(self, trainers: Forks, server: Server, folder: Path) -> None:
        self._forks, self._server, self._folder = trainers, server, folder
        self.fates: list[Fate] = []

    def run(self, cases: Iterable[Case | random.Random], at_once: int = 3) -> None:
        """A case dies at its label; a random source gives a moment instead."""
        with ThreadPoolExecutor(at_once) as pool:
            numbered = list(enumerate(cases, len(self.fates)))
            self.fates += pool.map(lambda each: self._one(self._folder / f"victim-{each[0]}", each[1]), numbered)

    def _one(self, folder: Path, what: Case | random.Random) -> Fate:
        fate = Fate(what if isinstance(what, Case) else None, folder)
        try:
            if isinstance(what, Case):
                self._die_at_label(fate, what)
                self._deliver(fate, what.by)
            else:
                self._die_at_random(fate, what)
                self._deliver(fate, what.choice(("sync", "start")))
        except AssertionError as error:
            fate.problem = f"{what.at if isinstance(what, Case) else 'random'}: {error}"
        return fate

    def _start(self, folder: Path, is_away: bool = False, act: str = "train", **order: object) -> int:
        url = closed_port() if is_away else self._server.url
        log = str(folder.with_suffix(".log"))
        return self._forks.start(act, folder=str(folder), url=url, token=self._server.token, log=log, **order)

    def _die_at_label(self, fate: Fate, case: Case) -> None:
        if case.before:
            self._leave_something(fate, case.before)
        pid = self._start(fate.folder, case.is_away, at=case.at, **case.order)
        label, _, count = case.at.partition(":")
        try:
            status = self._forks.wait(pid)
        finally:
            self._forks.kill(pid)
        assert status == KILLED, f"left with {status}: {fate.folder.with_suffix('.log').read_text()}"
        found = [each for each in reached(fate.folder / "reached.txt") if each[3] == pid]
        assert any(each[:2] == (label, int(count)) for each in found), "was not reached"
        self._note_death(fate, next(at for name, number, at, _ in found if (name, number) == (label, int(count))))

    def _die_at_random(self, fate: Fate, chance: random.Random) -> None:
        is_away, fault = chance.random() < 0.3, chance.choice(("", "", "torn write"))
        segment_bytes = chance.choice((500, 3000, 1 << 20))
        pid = self._start(fate.folder, is_away, steps=ENDLESS, fault=fault, segment_bytes=segment_bytes)
        wait_until("the first step", lambda: steps_of(fate.folder) or self._forks.ended(pid) is not None)
        time.sleep(chance.uniform(0.0, 0.5))
        died_at = time.monotonic_ns()
        assert self._forks.kill(pid) == KILLED, fate.folder.with_suffix(".log").read_text()
        calls = lives_of(fate.folder)[-1].calls
        self._note_death(fate, min(died_at, calls[-1][3]) if fault and calls else died_at)

    def _leave_something(self, fate: Fate, what: str) -> None:
        """A first victim, killed, and its spool hurt."""
        pid = self._start(fate.folder, is_away=True, steps=ENDLESS, segment_bytes=2000)
        wait_until("sixty steps", lambda: steps_of(fate.folder) > 60)
        died_at = time.monotonic_ns()
        assert self._forks.kill(pid) == KILLED
        self._note_death(fate, died_at)
        paths = sorted((fate.folder / ".lossguard").glob("spool/*/*.seg"))
        if what == "torn":
            data = paths[-1].read_bytes()
            with paths[-1].open("ab") as file:
                file.write(data[8:30])
        else:
            data = bytearray(paths[0].read_bytes())
            place = list(scan(bytes(data), 1))[4]
            data[place.end - 3] ^= 16
            paths[0].write_bytes(data)

    def _note_death(self, fate: Fate, at: int) -> None:
        for life in lives_of(fate.folder)[len(fate.deaths) :]:
            fate.deaths[life.incarnation] = at

    def _deliver(self, fate: Fate, by: str) -> None:
        if by == "start":
            self._wait(fate, self._start(fate.folder, steps=20, in_a_hurry=True))
        if by == "sync" or is_left(fate.folder):  # at its end a process does not wait for a server that is slow
            self._wait(fate, self._start(fate.folder, act="sync"))

    def _wait(self, fate: Fate, pid: int) -> None:
        status = self._forks.wait(pid)
        assert status == 0, f"delivering left with {status}: {fate.folder.with_suffix('.log').read_text()}"

    def verdicts(self) -> list[tuple[Fate, Verdict, int]]:
        """Each life's fate, verdict and the number of its calls. The server is killed for it."""
        stored = self._server.stored()
        found = []
        for fate in self.fates:
            for life in lives_of(fate.folder):
                life.died_at = fate.deaths.get(life.incarnation)
                kept = stored.get(life.incarnation, Stored())
                told = kept.dropped if fate.case and fate.case.may_drop else 0
                found.append((fate, judge(life, kept, known, SERIES, told), len(life.calls)))
        return found


def is_left(folder: Path) -> bool:
    """Whether records wait on disk."""
    return any(folder.glob(".lossguard/spool/*/*.seg"))


def server_cases(rounds: int = 1) -> list[str]:
    """Each label of the server, so many times, each time at another turn."""
    once = ("server.start", "server.seal")
    return [f"{label}:{1 if label.startswith(once) else 3 + 4 * turn}" for label in SERVER_LABELS for turn in range(rounds)]


def kill_server_at(forks: Forks, server: Server, folder: Path, at: str, fault: str = "", end_seconds: float = 30.0) -> Fate:
    """A training under which the server dies at a label and comes back. `at` may be seconds instead, for a moment."""
    fate, over = Fate(None, folder), folder.with_suffix(".over")
    if server.is_dead:
        server.start(fault)
    order = {"until": str(over), "steps": ENDLESS, "in_a_hurry": True, "pause": 0.004, "end_seconds": end_seconds}
    to = {"folder": str(folder), "url": server.url, "token": server.token, "log": str(folder.with_suffix(".log"))}
    try:
        if at.startswith("server."):
            server.arm(at)
        pid = forks.start("train", **to, **order)
        if not at.startswith("server."):
            wait_until("the first step", lambda: steps_of(folder) or forks.ended(pid) is not None)
            time.sleep(float(at))
            server.kill()
        wait_until("the server's death at the label", lambda: server.is_dead or forks.ended(pid) is not None)
        assert server.is_dead, "was not reached"
        server.start(fault)
        over.touch()
        assert forks.wait(pid) == 0, f"the training: {folder.with_suffix('.log').read_text()}"
        if is_left(folder):
            assert forks.wait(forks.start("sync", **to)) == 0, folder.with_suffix(".log").read_text()
    except AssertionError as error:
        fate.problem = f"{at}: {error}"
        forks.kill(pid)
    return fate

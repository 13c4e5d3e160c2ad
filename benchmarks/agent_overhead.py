"""What a call of `log()` costs the training thread: beside a bare append, and beside two other trackers.

    python -m benchmarks.agent_overhead [--quick] [--json]

Each subject runs in a process of its own: the bare append, LossGuard's agent in six states of its server and its disk, trackio
(local) and wandb (offline). In every round each makes a block of calls back to back (after some that are not measured) and a
block at the pace of a training, one call in 5 ms, then rests until its threads have worked off what came of it. So whatever else
the machine does meets all of them alike. A ratio is the median over the rounds of the block's median divided by the median of the
bare append's block of that round; a 99th percentile is taken over all calls. What exactly is timed: `_subject`.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import _bad_servers, _harness, _peers
from benchmarks._harness import Bar, at_least, at_most

WHAT = "The cost of log() to the training thread, in six states of server and disk, beside a bare append, trackio and wandb."
PACE_SECONDS = 0.005
SLOW_SECONDS = 3.0
REST_SECONDS = 0.06
UNMEASURED = 100
STATES = ("up", "hung", "refusing", "slow", "disk_full", "disk_stuck")
PEERS = {"trackio": 4.0, "wandb": 10.0}
"""How many times cheaper than it LossGuard has to be."""
COMPARED = ("hung", "up")
BACK_TO_BACK, PACED = "back_to_back", "paced"
MOST_OVER_BARE, MOST_HUNG_OVER_UP = 4.0, 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured: so many rounds, fewer on a machine that takes longer for them than `seconds`, but never under five.

    `calls` and `paced_calls` are those of one block. A peer, which takes far longer, makes a quarter of `calls`; the two states
    whose 99th percentiles are compared make four times the `paced_calls`.
    """

    rounds: int
    calls: int
    paced_calls: int
    seconds: float

    def goes_on(self, done: int, seconds: float) -> bool:
        """Whether there is another round."""
        return done < FEWEST_ROUNDS or (done < self.rounds and seconds < self.seconds)


FEWEST_ROUNDS = 5
QUICK, WHOLE = Plan(14, 500, 25, 24.0), Plan(60, 500, 40, 300.0)


@dataclass
class Subject:
    """A process that is measured. `blocks[pace][i]` are the nanoseconds of round i."""

    name: str
    process: "subprocess.Popen[str]"
    blocks: dict[str, list[list[int]]] = field(default_factory=lambda: {BACK_TO_BACK: [], PACED: []})

    def ask(self, **question: Any) -> dict[str, Any]:
        """The answer to a question.

        Raises:
            RuntimeError: the process has gone.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self.hear()

    def hear(self) -> dict[str, Any]:
        """The next thing it says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with {self.process.wait(10)}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def leave(self) -> None:
        """Lets it finish, without waiting for that."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def measure(self, plan: Plan) -> None:
        """One block of each pace, then a rest."""
        paced_calls = plan.paced_calls * 4 if self.name in COMPARED else plan.paced_calls
        paced = self.ask(calls=paced_calls, pace_seconds=PACE_SECONDS, unmeasured=1)
        self.blocks[PACED].append(paced["nanoseconds"])
        calls = plan.calls // 4 if self.name in PEERS else plan.calls
        flood = self.ask(calls=calls, pace_seconds=0, unmeasured=UNMEASURED)
        self.blocks[BACK_TO_BACK].append(flood["nanoseconds"])
        time.sleep(REST_SECONDS)


def run(plan: Plan) -> tuple[dict[str, Any], list[Bar]]:
    """The results, and the bars they are held to."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lossguard-overhead-")))
        subjects = {subject.name: subject for subject in _start_all(stack, folder)}
        began, done = time.monotonic(), 0
        while plan.goes_on(done, time.monotonic() - began):
            order = list(subjects.values())
            for subject in order if done % 2 else reversed(order):
                subject.measure(plan)
            done += 1
        facts = {name: subject.ask(facts_within_seconds=5.0 if name == "up" else 0.5) for name, subject in subjects.items()}
        for subject in subjects.values():
            subject.leave()
    blocks = {name: subject.blocks for name, subject in subjects.items()}
    return results_of(blocks, facts), bars_of(blocks, facts)


def _start_all(stack: ExitStack, folder: Path) -> list[Subject]:
    """All subjects, ready; a peer that cannot be had is left out."""
    server = stack.enter_context(_harness.server(folder))
    urls = dict.fromkeys(STATES, server.url) | {
        "hung": stack.enter_context(_bad_servers.hung()),
        "refusing": stack.enter_context(_bad_servers.refusing()),
        "slow": stack.enter_context(_bad_servers.slow(server.url, SLOW_SECONDS)),
    }
    started = [stack.enter_context(_started("bare", Path(sys.executable), "bare", {}))]
    for state in STATES:
        disk = state.removeprefix("disk_") if state.startswith("disk_") else "good"
        settings = {"url": urls[state], "token": server.token, "folder": str(folder / state), "disk": disk}
        started.append(stack.enter_context(_started(state, Path(sys.executable), "lossguard", settings)))
    for peer in PEERS:
        if (python := _peers.python_of(peer)) is not None:
            (folder / peer).mkdir()
            started.append(stack.enter_context(_started(peer, python, peer, {"folder": str(folder / peer)})))
    for subject in started:
        subject.hear()
    return started


@contextmanager
def _started(name: str, python: Path, kind: str, settings: dict[str, Any]) -> Iterator[Subject]:
    """A subject's process; at the end its input is closed, at which it finishes, and it is ended where it does not."""
    environment = _harness.quiet_environment()
    if kind in PEERS:
        del environment["PYTHONPATH"]
    command = [str(python), str(Path(__file__).with_name("_subject.py")), kind, json.dumps(settings)]
    process = subprocess.Popen(  # noqa: S603
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    subject = Subject(name, process)
    try:
        yield subject
        subject.leave()
        process.wait(20)
    except subprocess.TimeoutExpired:
        _harness.say(f"{name} did not leave within 20 s")
    finally:
        _harness.end(process)


# --- figures; pure from here on -------------------------------------------------------------------------------------------------

Blocks = dict[str, dict[str, list[list[int]]]]


def results_of(blocks: Blocks, facts: dict[str, Any]) -> dict[str, Any]:
    """Microseconds by subject and pace, and what the subjects said of their state."""
    microseconds: dict[str, dict[str, dict[str, float | None]]] = {
        name: {pace: _described(rounds) | {"over_bare": over(blocks, name, "bare", pace)} for pace, rounds in paces.items()}
        for name, paces in blocks.items()
    }
    return {"measured": "log({six scalars}, step), dict built inside; microseconds", "calls": microseconds, "facts": facts}


def _described(rounds: Sequence[Sequence[int]]) -> dict[str, float | None]:
    spans = sorted(span / 1000 for block in rounds for span in block)
    shares = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    known: dict[str, float | None] = {key: percentile(spans, share) for key, share in shares.items()}
    return known | {"max": spans[-1], "calls": len(spans)}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the ordered values lie."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def over(blocks: Blocks, name: str, other: str, pace: str) -> float | None:
    """How many times the other's median one has, as the median over the rounds; None when one of them is missing."""
    if name not in blocks or other not in blocks:
        return None
    pairs = zip(blocks[name][pace], blocks[other][pace], strict=True)
    return statistics.median(statistics.median(mine) / statistics.median(its) for mine, its in pairs)


def p99_over(blocks: Blocks, name: str, other: str, pace: str) -> float:
    """The ratio of the 99th percentiles over all calls."""
    mine, its = (sorted(span for block in blocks[each][pace] for span in block) for each in (name, other))
    return percentile(mine, 0.99) / percentile(its, 0.99)


def bars_of(blocks: Blocks, facts: dict[str, Any]) -> list[Bar]:
    """What was asked for. A peer that is missing is a bar that is not met."""
    bars = [at_least("states that were what they are called", sum(is_in_state(state, facts) for state in STATES), len(STATES))]
    for pace in (BACK_TO_BACK, PACED):
        ratios = {name: over(blocks, name, "bare", pace) for name in STATES}
        bars += [at_most(f"{pace}: median, {name}, over a bare append", ratio, MOST_OVER_BARE) for name, ratio in ratios.items()]
        bars.append(at_most(f"{pace}: p99, server hung over up", p99_over(blocks, *COMPARED, pace), MOST_HUNG_OVER_UP))
        for peer, times in PEERS.items():
            bars.append(at_least(f"{pace}: median of {peer} over LossGuard's", over(blocks, peer, "up", pace), times))
    return bars


def is_in_state(state: str, facts: dict[str, Any]) -> bool:
    """Whether a subject was in the state it is named after.

    A server that is up took all, one that is hung or refuses took nothing; a full disk is told of; from one that is stuck not
    even the end of a flush comes back. (What a slow server has by now is no matter.)
    """
    told = facts.get(state, {})
    if state == "disk_full":
        return bool(told.get("disk"))
    if state == "disk_stuck":
        return not told.get("delivered", True) and not told.get("disk")
    if state in {"hung", "refusing"}:
        return not told.get("delivered", True) and told.get("waiting_records", 0) > 0
    return not told.get("disk") and (state == "slow" or bool(told.get("delivered")))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, and gives the exit status."""
    options = _harness.parse("agent_overhead", WHAT, arguments)
    results, bars = run(QUICK if options.quick else WHOLE)
    return _harness.finish("agent_overhead", options, results, bars)


if __name__ == "__main__":
    sys.exit(main())

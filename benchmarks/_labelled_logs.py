"""Labelled training logs, and what a pack of alert rules makes of them.

The corpus is a folder with `index.csv`, one line a run: its label, where an expert would act (`onset_point`), from where on it is
too late (`fatal_point`), how the run was drawn; and a gzipped CSV a run: step, loss and what else was logged. Both points are
positions in the log, not steps.

- window: from a little before the onset (a tenth of the way there, at least 20 points, at most 100) to the fatal point.
- in time: an alert within the window; soon after: within 10 points more; ever: from the window's start to the end of the log.
- episode: alerts with at most 20 points without one between them.

Runs labelled ambiguous count nowhere.
"""

import csv
import gzip
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Final, Protocol

LATE: Final = 10
GAP: Final = 20
HEALTHY: Final = "healthy"
CLASSES: Final = ("diverged_nan", "exploded", "spike_recovered", "collapsed_zero", "plateau")

Logged = Mapping[str, float]
"""The values of one logged point by column; one that was not logged is absent."""


class Corpus(Exception):  # noqa: N818  what is wrong with the corpus, said to a person
    """The corpus cannot be read; the text says what to do."""


class Watcher(Protocol):
    """Something that is shown a run's points in order and names the alerts that fire at each."""

    def feed(self, step: float, logged: Logged) -> list[str]:
        """The alerts that fire at this point."""


@dataclass(frozen=True, slots=True)
class Run:
    """One labelled log. `onset` and `fatal` are positions in `points`, None for a run that is not unhealthy."""

    run_id: str
    label: str
    repository: str
    draw: str
    note: str
    onset: int | None
    fatal: int | None
    points: tuple[tuple[float, Logged], ...]

    @property
    def window(self) -> range:
        """The positions at which an alert is in time; empty for a healthy run."""
        if self.onset is None or self.fatal is None:
            return range(0)
        return range(max(0, self.onset - min(100, max(20, self.onset // 10))), self.fatal + 1)


def load(folder: Path) -> list[Run]:
    """All runs but the ambiguous ones.

    Raises:
        Corpus: there is none, or it cannot be read.
    """
    index = folder / "index.csv"
    if not index.is_file():
        raise Corpus(f"no labelled logs at {folder}: give the folder that holds index.csv and runs/ with --corpus")
    try:
        with index.open(newline="", encoding="utf-8") as file:
            return [_run(folder, row) for row in csv.DictReader(file) if row["label"] != "ambiguous"]
    except (OSError, KeyError, ValueError) as error:
        raise Corpus(f"the labelled logs at {folder} cannot be read: {error!r}") from error


def _run(folder: Path, row: Mapping[str, str]) -> Run:
    onset, fatal = (int(row[name]) if row[name] else None for name in ("onset_point", "fatal_point"))
    points = tuple(_points(folder / row["file"]))
    return Run(row["id"], row["label"], row["repo"], row["draw"], row["note"], onset, fatal, points)


def _points(path: Path) -> Iterator[tuple[float, Logged]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            step = float(row.pop("step"))
            yield step, {name: float(value) for name, value in row.items() if value}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one run: the positions of its alerts, and the names of those that came."""

    run: Run
    alerts: tuple[int, ...]
    names: tuple[str, ...]

    @property
    def in_time(self) -> bool:
        """Whether an alert came within the window."""
        return any(at in self.run.window for at in self.alerts)

    @property
    def soon(self) -> bool:
        """Whether one came within the window or shortly after."""
        window = self.run.window
        return any(window.start <= at < window.stop + LATE for at in self.alerts)

    @property
    def ever(self) -> bool:
        """Whether one came at all, from the window's start on."""
        return any(at >= self.run.window.start for at in self.alerts)

    @property
    def lead(self) -> int | None:
        """Points from the first alert in time to the fatal point."""
        first = next((at for at in self.alerts if at in self.run.window), None)
        return None if first is None else self.run.window.stop - 1 - first

    @property
    def episodes(self) -> int:
        """Episodes of a healthy run; of another, those before its window."""
        return episodes(at for at in self.alerts if self.run.label == HEALTHY or at < self.run.window.start)


def episodes(alerts: Iterable[int]) -> int:
    """How often it came up, where alerts close together are one."""
    found, last = 0, -math.inf
    for at in alerts:
        found, last = found + (at - last > GAP), at
    return found


def watch(make: Callable[[], Watcher], run: Run) -> Outcome:
    """Show a run to a fresh watcher."""
    watcher, alerts, names = make(), [], dict[str, None]()
    for at, (step, logged) in enumerate(run.points):
        if told := watcher.feed(step, logged):
            alerts.append(at)
            names.update(dict.fromkeys(told))
    return Outcome(run, tuple(alerts), tuple(names))


@dataclass(frozen=True, slots=True)
class Score:
    """What a pack is worth on a number of runs. Shares are None where there is no run of the kind."""

    classes: Mapping[str, Mapping[str, float | int | None]]
    """For each class: how many there are, and the shares seen in time, soon after, ever."""
    ever_but_plateaus: float | None
    recall_by_repository: float | None
    """Seen in time, averaged within each repository first: the runs of one are no independent samples."""
    lead_points: float | None
    random_episodes: int
    random_per_1000: float | None
    healthy_episodes: int
    healthy_runs_alarmed: int
    premature_episodes: int


def score(outcomes: Sequence[Outcome]) -> Score:
    """Sum up."""
    ill = [each for each in outcomes if each.run.label != HEALTHY]
    well = [each for each in outcomes if each.run.label == HEALTHY]
    random = [each for each in well if each.run.draw == "random"]
    found, leads = sum(each.episodes for each in random), [each.lead for each in ill if each.lead is not None]
    by_repository = defaultdict[str, list[bool]](list)
    for each in ill:
        by_repository[each.run.repository].append(each.in_time)
    points = sum(len(each.run.points) for each in random)
    return Score(
        classes={name: _class([each for each in ill if each.run.label == name]) for name in CLASSES},
        ever_but_plateaus=_share([each.ever for each in ill if each.run.label != "plateau"]),
        recall_by_repository=mean(mean(seen) for seen in by_repository.values()) if by_repository else None,
        lead_points=median(leads) if leads else None,
        random_episodes=found,
        random_per_1000=1000 * found / points if points else None,
        healthy_episodes=sum(each.episodes for each in well),
        healthy_runs_alarmed=sum(each.episodes > 0 for each in well),
        premature_episodes=sum(each.episodes for each in ill),
    )


def _class(outcomes: Sequence[Outcome]) -> dict[str, float | int | None]:
    return {
        "runs": len(outcomes),
        "in_time": _share([each.in_time for each in outcomes]),
        "soon_after": _share([each.soon for each in outcomes]),
        "ever": _share([each.ever for each in outcomes]),
    }


def _share(seen: Sequence[bool]) -> float | None:
    return mean(seen) if seen else None

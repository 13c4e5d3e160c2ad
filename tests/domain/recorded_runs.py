"""The two recorded runs of `data/`, as points of each series."""

import csv
from pathlib import Path

from server.domain.points import Point
from trainer_agent.wire import series

COLUMNS = {"loss": series.LOSS, "grad_norm": series.GRAD_NORM, "skipped": series.OVERFLOW}


def points_of(run: str, column: str) -> list[Point]:
    with (Path(__file__).parent / "data" / "recorded_runs.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["run"] == run]
    return [Point(COLUMNS[column], 1, 0, n, int(row["step"]), 1e9 + n, float(row[column])) for n, row in enumerate(rows, 1)]


def make_points(values, name=series.LOSS, first_step=1, segment=1):
    return [Point(name, segment, 0, n, first_step + n - 1, 1e9 + n, float(v)) for n, v in enumerate(values, 1)]

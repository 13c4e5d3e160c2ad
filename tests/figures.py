"""Figures: what a test measured, held to its limit and printed at the end of the run, one row each.

    def test_...(figure):
        figure("F11", "requests after the run was deleted", count, at_most=3)

Rows are named as in the fault table of `docs/faults.md`.
"""

import math
import os
from collections.abc import Callable

import pytest


def patience(seconds: float) -> float:
    """The limit to hold a promise about time to: the promise itself in the long form; here five times as long, so that what
    hangs is found and a machine that is busy with other things is not.
    """
    return seconds if os.environ.get("LOSSGUARD_SOAK") else 5 * seconds


_rows: list[tuple[str, str, str, str]] = []


@pytest.fixture
def figure() -> Callable[..., None]:
    """Takes a figure with its limit; a figure over its limit, under it, or not a number fails the test."""
    return take


def take(
    row: str, what: str, value: float, *, at_most: float | None = None, at_least: float | None = None, unit: str = ""
) -> None:
    """Writes the figure down, then checks it. Without a limit it is only printed."""
    limits = [f"<= {at_most:g}" if at_most is not None else "", f">= {at_least:g}" if at_least is not None else ""]
    _rows.append((row, what, f"{value:g} {unit}".strip(), " and ".join(filter(None, limits))))
    assert not math.isnan(value), f"{row} {what} is not a number"
    assert at_most is None or value <= at_most, f"{row} {what}: {value:g} is over {at_most:g} {unit}"
    assert at_least is None or value >= at_least, f"{row} {what}: {value:g} is under {at_least:g} {unit}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the rows."""
    if not _rows:
        return
    terminalreporter.section("figures")
    for row, what, value, limit in sorted(_rows, key=_order):
        terminalreporter.write_line(f"{row:<6} {what:<66} {value:>16}  {limit}")


def _order(row: tuple[str, str, str, str]) -> tuple[str, int, str]:
    digits = "".join(filter(str.isdigit, row[0])) or "0"
    return row[0].rstrip("0123456789"), int(digits), row[1]

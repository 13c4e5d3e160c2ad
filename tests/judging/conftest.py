"""The trainer of `tests/services` and the killed servers of `tests/kill`, for the tests of this folder."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("services", "kill", "outbound")]

from kill_kit import Forks  # noqa: E402  where it lies is said above


@pytest.fixture(scope="session")
def judges() -> Iterator[Forks]:
    """The process that forks servers to be killed."""
    forks = Forks("server", script=Path(__file__).with_name("scenario_server.py"))
    yield forks
    forks.close()

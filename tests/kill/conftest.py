"""The two processes that fork victims, once for all tests: what takes long is to import everything."""

from collections.abc import Iterator

import pytest
from kill_kit import Forks


@pytest.fixture(scope="session")
def trainers() -> Iterator[Forks]:
    forks = Forks()
    yield forks
    forks.close()


@pytest.fixture(scope="session")
def servers() -> Iterator[Forks]:
    forks = Forks("server")
    yield forks
    forks.close()

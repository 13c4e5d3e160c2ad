import sys
from pathlib import Path

import pytest

for folder in ("services", "api"):
    sys.path.append(str(Path(__file__).parents[1] / folder))


def _serving(backend, new_database_url, tmp_path_factory):
    from backtest_jobs import settings
    from served import Served

    return Served(settings(new_database_url, tmp_path_factory, backend))


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def served(request, new_database_url, tmp_path_factory):
    """A server, once on each database. Tests use runs of their own."""
    with _serving(request.param, new_database_url, tmp_path_factory) as served:
        yield served


@pytest.fixture(scope="module")
def one_served(new_database_url, tmp_path_factory):
    """A server on SQLite, for what has nothing to do with the database."""
    with _serving("sqlite", new_database_url, tmp_path_factory) as served:
        yield served

from pathlib import Path

import pytest
from served import Served

from server.settings import Settings

BACKENDS = ("sqlite", "postgresql")


def settings(new_database_url, tmp_path_factory, backend: str, **more) -> Settings:
    data_dir: Path = tmp_path_factory.mktemp("data")
    return Settings(data_dir=data_dir, database_url=new_database_url(backend), port=0, **more)


@pytest.fixture(scope="module", params=BACKENDS)
def served(request, new_database_url, tmp_path_factory):
    """A server that may send webhooks to loopback, once on each database. Tests use runs of their own."""
    with Served(settings(new_database_url, tmp_path_factory, request.param, allow_private_webhooks="true")) as served:
        yield served


@pytest.fixture(scope="module")
def strict(new_database_url, tmp_path_factory):
    """A server with the default settings, on SQLite."""
    with Served(settings(new_database_url, tmp_path_factory, "sqlite")) as served:
        yield served

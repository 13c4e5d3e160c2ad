"""One server for all tests of ends: it calls a run lost after three seconds."""

from collections.abc import Iterator

import pytest
from ends_kit import RealServer, hung_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    server = RealServer(tmp_path_factory.mktemp("ends-server"), lost_after=3.0)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def hung() -> Iterator[str]:
    with hung_server() as url:
        yield url

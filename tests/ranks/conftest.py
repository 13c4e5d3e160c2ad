"""A real server for the tests of ranks."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import forked
import httpx2
import pytest
from ranks_kit import Site, Torchrun, environment, poll, start


@pytest.fixture(scope="session")
def ranks_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("ranks-site")
    ready_file = folder / "ready.json"
    variables = environment(LOSSGUARD_DATA_DIR=str(folder / "data"))
    command = [sys.executable, "-m", "server", "serve", "--port", "0", "--ready-file", str(ready_file)]
    server = forked.popen(command, env=variables, out=folder / "server.log")
    try:
        poll("the server", lambda: ready_file.exists() or server.poll() is not None)
        assert server.poll() is None, (folder / "server.log").read_text()
        ready = json.loads(ready_file.read_text())
        variables["LOSSGUARD_PORT"] = str(urlsplit(ready["url"]).port)
        make = [sys.executable, "-m", "server", "token", "create", "--role", "operator", "--name", "tests"]
        operator = forked.output(make, env=variables)
        headers = {"Authorization": f"Bearer {operator}"}
        with httpx2.Client(base_url=ready["url"], headers=headers, trust_env=False, timeout=20) as api:
            yield Site(ready["url"], Path(ready["agent_token_file"]).read_text().strip(), api)
        text = (folder / "server.log").read_text()
        assert "Traceback" not in text, text
    finally:
        server.terminate()
        server.wait(timeout=20)


@pytest.fixture
def torchrun(ranks_site: Site, tmp_path: Path) -> Iterator[Callable[..., Torchrun]]:
    """Starts trainings under torchrun; what is left of them is ended with the test."""
    started: list[Torchrun] = []

    def begin(ranks: int, *trainings: dict) -> Torchrun:
        started.append(start(ranks_site, tmp_path / str(len(started)), ranks, *trainings))
        return started[-1]

    yield begin
    for each in started:
        each.end()

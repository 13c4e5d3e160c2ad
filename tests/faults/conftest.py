"""One real server for the tests of this folder, and the scripted one of `tests/agent`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))

from faults_kit import RealServer, began, new_monitor

from trainer_agent.wire.vocabulary import EndReason


@pytest.fixture(scope="session")
def fault_server(tmp_path_factory):
    server = RealServer(tmp_path_factory.mktemp("fault-server"))
    yield server
    server.close()


@pytest.fixture
def quick(monkeypatch):
    """Backoff in hundredths of a second, so that a fault is over soon."""
    monkeypatch.setattr("trainer_agent.sending.backoff.FIRST_SECONDS", 0.01)
    monkeypatch.setattr("trainer_agent.sending.backoff.LONGEST_SECONDS", 0.2)


@pytest.fixture
def watched(tmp_path):
    """Makes monitors that have begun, and ends them with the test."""
    made = []

    def make(url, token="secret", folder="out", **more):
        monitor = began(new_monitor(url, token, tmp_path / folder, **more))
        made.append(monitor)
        return monitor

    yield make
    for monitor in made:
        monitor.end(EndReason.FAILED, None, timeout_seconds=0.2)


SHORT_LIMIT = """
from datetime import timedelta
import server.domain.runs as runs, server.worker as worker
runs.LOST_AFTER, worker.PAUSE_SECONDS = timedelta(seconds=4), 2.0
"""


@pytest.fixture(scope="session")
def short_limit_server(tmp_path_factory):
    """A real server that calls a run lost after 4 s without a word, not 60."""
    server = RealServer(tmp_path_factory.mktemp("short-limit-server"), SHORT_LIMIT)
    yield server
    server.close()

"""The demo as its visitor starts it. It runs last: it is the longest, and everything it stands on has been tested by then."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name == "test_demo_headless.py")

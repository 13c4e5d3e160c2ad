import pytest
from commands_kit import Tape, tape


@pytest.fixture
def taped(monkeypatch, tmp_path) -> Tape:
    return tape(monkeypatch, tmp_path)

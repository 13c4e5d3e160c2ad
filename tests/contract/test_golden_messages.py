"""Messages as they were written when a protocol version came out. Files are added, never edited."""

import json
from pathlib import Path

import pytest

from trainer_agent.wire import codec
from trainer_agent.wire.messages import Batch, Heartbeat, Reply, RunStart

GOLDEN = Path(__file__).parent / "golden"
KINDS = {"run": RunStart, "batch": Batch, "heartbeat": Heartbeat, "reply": Reply}
FILES = sorted(GOLDEN.glob("v*/*.json"))


def kind_of(path: Path) -> type:
    return KINDS[path.name.split("_")[0].removesuffix(".json")]


def holds(found: object, written: object) -> bool:
    """Whether all that was written is found; a newer version of the same protocol may add fields."""
    if isinstance(written, dict):
        return isinstance(found, dict) and all(key in found and holds(found[key], each) for key, each in written.items())
    if isinstance(written, list):
        pairs = zip(found, written, strict=True) if isinstance(found, list) and len(found) == len(written) else None
        return pairs is not None and all(holds(mine, theirs) for mine, theirs in pairs)
    return found == written


def test_there_is_a_golden_file_for_each_kind():
    assert {kind_of(path) for path in FILES} == set(KINDS.values())


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_golden_message_decodes_and_encodes_to_the_same(path: Path):
    text = path.read_text(encoding="utf-8")
    message = codec.decode(kind_of(path), text)
    if isinstance(message, Batch):
        codec.check_batch(message)
    again = codec.encode(message)
    assert holds(json.loads(again), json.loads(text))
    assert codec.decode(kind_of(path), again) == message


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_unknown_fields_of_a_newer_side_are_ignored(path: Path):
    parsed = json.loads(path.read_text(encoding="utf-8"))
    newer = json.dumps({**parsed, "from_the_future": {"deep": [1]}})
    assert codec.encode(codec.decode(kind_of(path), newer)) == codec.encode(codec.decode(kind_of(path), json.dumps(parsed)))

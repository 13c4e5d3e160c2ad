"""What must be refused, with a `WireError` and nothing else, whoever sends it."""

import json
import sys

import pytest

from trainer_agent.wire import codec
from trainer_agent.wire.messages import MAX_BATCH_POINTS, Batch, Column, Dropped, Heartbeat, Numbered, Reply, RunStart

BEAT = {"run_id": "r", "incarnation": "i", "rank": 0, "sent_at": 1.0, "phase": "training"}
BATCH = {"run_id": "r", "incarnation": "i", "rank": 0, "first_seq": 1, "last_seq": 1, "sent_at": 1.0}
COLUMN = {"series": "train/loss", "segment": 1, "seq": [1], "step": [1], "time": [1.0], "value": [1.0]}


def beat(**changes: object) -> str:
    return json.dumps({**BEAT, **changes})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "1",
        '"x"',
        "{",
        "\x00",
        b"\xff\xfe\xfa",
        beat(sent_at=float("nan")),
        beat(sent_at=float("inf")),
        beat().replace("1.0", "1e999"),
        beat().replace("1.0", "-1e999"),
        beat().replace("1.0", "1" + "0" * 400),
        beat().replace("1.0", "1" * (sys.get_int_max_str_digits() + 1)),
        beat(sent_at=True),
        beat(sent_at="nan"),
        beat(sent_at="1.0"),
        beat(sent_at=None),
        beat(sent_at=[1.0]),
        beat(rank=True),
        beat(rank=0.0),
        beat(rank=-1),
        beat(rank=2**53),
        beat(rank="0"),
        beat(phase="Training"),
        beat(phase=1),
        beat(phase=None),
        beat(phase=["training"]),
        beat(phase={"training": 1}),
        beat(run_id="\ud800"),
        beat(run_id="a\x00b"),
        beat(run_id="x" * 65537),
        beat(run_id=1),
        beat(latest=[]),
        beat(latest={"train/loss": True}),
        beat(latest={"train/loss": {"value": 1}}),
        "[" * 100_000,
        '{"run_id":' * 50_000,
        json.dumps({key: value for key, value in BEAT.items() if key != "incarnation"}),
    ],
    ids=lambda text: repr(text)[:50],
)
def test_a_hostile_heartbeat_is_a_wire_error(text):
    with pytest.raises(codec.WireError):
        codec.decode(Heartbeat, text)


@pytest.mark.parametrize(
    "record",
    [
        None,
        1,
        [],
        {},
        {"type": "Column"},
        {"type": "__class__"},
        {"type": ["RunEnded"]},
        {"type": {}},
        {"type": "RunEnded", "reason": "tired"},
    ],
    ids=repr,
)
def test_a_record_that_is_none_of_the_union_is_a_wire_error(record):
    with pytest.raises(codec.WireError):
        codec.decode(Batch, json.dumps({**BATCH, "records": [{"seq": 1, "record": record}]}))


def test_the_error_names_the_field():
    with pytest.raises(codec.WireError) as caught:
        codec.decode(Batch, json.dumps({**BATCH, "columns": [COLUMN, {**COLUMN, "value": [1.0, True]}]}))
    assert caught.value.where == "columns[1].value[1]"


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_a_bare_constant_is_refused_and_its_string_is_taken(text):
    with pytest.raises(codec.WireError):
        codec.decode(Heartbeat, json.dumps(BEAT).replace("1.0", text))
    assert codec.decode(Heartbeat, beat(sent_at=text)).run_id == "r"


def points(*seqs: int, series: str = "train/loss") -> Column:
    numbers = tuple(float(seq) for seq in seqs)
    return Column(series, 1, seqs, seqs, numbers, numbers)


def batch(first: int, last: int, *columns: Column, records: tuple[Numbered, ...] = ()) -> Batch:
    return Batch("r", "i", 0, first, last, 1.0, columns, records)


GAP = Numbered(2, Dropped(3, 1.0, "lost"))
BROKEN = [
    batch(0, 1, points(0, 1)),
    batch(2, 1, points(1)),
    batch(1, 1),
    batch(1, 3, points(1, 3)),
    batch(1, 2, points(1, 2, 3)),
    batch(1, 2, points(2, 1)),
    batch(1, 2, points(1, 1, 2)),
    batch(1, 4, points(1), records=(Numbered(2, Dropped(4, 1.0, "lost")),)),
    batch(1, 2, points(1), records=(Numbered(2, Dropped(2**53 - 1, 1.0, "lost")),)),
    batch(1, 2, points(1), points(2)),
    batch(1, 1, points(1), points(1)),
    batch(2, 3, points(3), records=(Numbered(1, Dropped(2, 1.0, "lost")),)),
    batch(1, 1, points(1, series="Loss")),
    batch(1, 1, points(1, series="../etc/passwd\n")),
    batch(1, 1, Column("train/loss", 1, (1,), (1, 2), (1.0,), (1.0,))),
    batch(1, 1, Column("train/loss", 1, (), (), (), ())),
    batch(1, MAX_BATCH_POINTS + 1, points(*range(1, MAX_BATCH_POINTS + 2))),
]


@pytest.mark.parametrize("broken", BROKEN, ids=range(len(BROKEN)))
def test_a_batch_whose_numbers_do_not_hold_is_a_wire_error(broken):
    with pytest.raises(codec.WireError):
        codec.check_batch(broken)


def test_a_drop_takes_up_the_numbers_it_counts():
    codec.check_batch(batch(1, 5, points(1, 5), records=(GAP,)))


def test_a_drop_of_more_records_than_fit_into_memory_is_taken():
    codec.check_batch(batch(1, 2**53 - 1, records=(Numbered(1, Dropped(2**53 - 1, 1.0, "lost")),)))


def test_a_wrong_message_is_a_wire_error_for_every_kind():
    for kind in (RunStart, Batch, Heartbeat, Reply):
        for text in ("{}", "[]", '{"run_id": {}}'):
            with pytest.raises(codec.WireError):
                codec.decode(kind, text)

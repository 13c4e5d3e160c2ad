"""The server keeps the ledger, and answers what went into a step, where a sample went, and which documents a window had."""

import json
import struct
import zlib
from datetime import UTC, datetime

import pytest
import training_kit
from served import JSON, Served, begin

from server.domain.events import EventType
from server.services import samples as service
from server.services.errors import Invalid
from server.settings import Settings
from server.store import events, samples
from server.store.samples import Window
from trainer_agent.hf import guarded_train
from trainer_agent.wire import samples as wire
from trainer_agent.wire.codec import encode
from trainer_agent.wire.messages import MAX_BATCH_BYTES, Batch, Numbered, ResumeChecked, SegmentStarted, StepSamples
from trainer_agent.wire.samples import MOST_SAMPLES, StepRow, blocks, to_text
from trainer_agent.wire.samples import encode as block
from trainer_agent.wire.vocabulary import SegmentCause

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def rows(first, last, start=0, document="d"):
    """Step s has the samples 4 s .. 4 s + 3, shifted by `start`; document is that of sample / 10."""
    ids = {s: tuple(start + 4 * s + i for i in range(4)) for s in range(first, last + 1)}
    return [StepRow(s, ids[s], tuple(f"{document}{i // 10}" for i in ids[s])) for s in range(first, last + 1)]


def sent(segment, these):
    return [StepSamples(segment, b[0].step, b[-1].step, 0.0, to_text(block(b))) for b in blocks(these)]


def give(connection, run_id, records, rank=0):
    for record in records:
        service.check(record)
        service.take(connection, run_id, rank, record, NOW)


def opened(connection, *froms):
    from server.store import segments

    for number, from_step in enumerate(froms, 1):
        cause = SegmentCause.START if number == 1 else SegmentCause.ROLLBACK
        segments.insert(connection, "r", "i", SegmentStarted(number, from_step, cause, 0.0, number - 1 or None), NOW)


def asked(connection, window=None, **bounds):
    limits = {"most_steps": 1000, "most_samples": 100_000} | bounds
    return samples.read(connection, "r", window or Window(), **limits)


def test_the_steps_that_count_are_those_no_later_segment_rewound(connection):
    opened(connection, 0, 10)
    give(connection, "r", sent(1, rows(1, 20)) + sent(2, rows(11, 15, start=1000)))
    found = asked(connection).steps
    assert [(s.segment, s.step) for s in found] == [(1, s) for s in range(1, 11)] + [(2, s) for s in range(11, 16)]
    assert found[-1].samples == (1060, 1061, 1062, 1063)
    first = asked(connection, Window(segment=1, from_step=9, to_step=12)).steps
    assert [(s.step, s.superseded) for s in first] == [(9, False), (10, False), (11, True), (12, True)]


def test_a_step_that_was_left_behind_is_answered_from_the_newest_segment_that_made_it(connection):
    opened(connection, 0, 10, 12)
    give(connection, "r", sent(1, rows(1, 30)) + sent(2, rows(11, 20, start=1000)) + sent(3, rows(13, 15, start=5000)))

    def of(step, segment=None):
        window = Window(segment, step, step)
        found = samples.read_step(connection, "r", window, most_steps=1000, most_samples=100_000).steps
        return [(s.segment, s.step, s.superseded) for s in found]

    assert [of(14), of(18), of(25), of(31)] == [[(3, 14, False)], [(2, 18, True)], [(1, 25, True)], []]
    assert of(25, segment=2) == []


def test_the_same_block_again_changes_nothing_and_ranks_are_apart(connection):
    opened(connection, 0)
    for rank in (0, 1):
        give(connection, "r", sent(1, rows(1, 3, start=rank * 100)) * 2, rank)
    assert [(s.rank, s.samples[0]) for s in asked(connection, Window(from_step=2, to_step=2)).steps] == [(0, 8), (1, 108)]
    assert len(asked(connection, Window(rank=1)).steps) == 3


def test_a_step_of_many_blocks_is_one_step_again_and_each_block_fits_a_batch(connection):
    many = tuple(range(0, 3 * 50_000, 3))
    made = sent(1, [StepRow(1, (7,)), StepRow(2, many), StepRow(3, (8,))])
    assert len(made) == 50_000 // MOST_SAMPLES + 2
    assert all(len(encode(Batch("r", "i", 0, 1, 1, 0.0, (), (Numbered(1, one),)))) < MAX_BATCH_BYTES for one in made)
    give(connection, "r", made)
    found = asked(connection).steps
    assert [s.step for s in found] == [1, 2, 3]
    assert found[1].samples == many


def test_where_a_sample_or_a_document_was_seen_newest_first(connection):
    opened(connection, 0, 10)
    give(connection, "r", sent(1, rows(1, 20)) + sent(2, rows(11, 20, document="e")))
    seen = samples.find(connection, "r", 61, Window(), most_steps=10).steps
    assert [(s.segment, s.step, s.superseded) for s in seen] == [(2, 15, False), (1, 15, True)]
    assert [s.step for s in samples.find(connection, "r", "d1", Window(), most_steps=10).steps] == [4, 3, 2]
    assert samples.find(connection, "r", "d", Window(), most_steps=10).steps == []
    assert samples.find(connection, "r", 10_000, Window(), most_steps=10).steps == []


def test_answers_are_bounded_and_say_so(connection):
    opened(connection, 0)
    give(connection, "r", sent(1, rows(1, 30)))
    cut = asked(connection, most_steps=5)
    assert ([s.step for s in cut.steps], cut.truncated) == ([1, 2, 3, 4, 5], True)
    cut = asked(connection, most_samples=9)
    assert ([s.step for s in cut.steps], cut.truncated) == ([1, 2], True)
    assert samples.find(connection, "r", "d1", Window(), most_steps=1).truncated


@pytest.mark.parametrize("body", ["", "!", to_text(b"x"), to_text(block([StepRow(1, (1,))]))[:-8]])
def test_what_is_no_block_is_refused(body):
    with pytest.raises(Invalid):
        service.check(StepSamples(1, 1, 1, 0.0, body))


def strange(*columns, names=(), count=1):
    """A block of one row whose outline makes sense."""
    header = json.dumps({"v": 1, "rows": count, "part": 0, "documents": list(names)}).encode()
    columns = b"".join(wire._column(each) for each in columns)
    return StepSamples(1, 1, 1, 0.0, to_text(zlib.compress(struct.pack("<I", len(header)) + header + columns)))


SAMPLES, DOCUMENTS = 16, 32
STRANGE = [
    strange([2], [1], [SAMPLES | DOCUMENTS], [2], [99], names=["a"]),
    strange([2], [1], [SAMPLES], [1]),
    strange([3], [1], [SAMPLES], [2]),
    strange([2], [MOST_SAMPLES + 1], [SAMPLES], [2] * (MOST_SAMPLES + 1)),
]


@pytest.mark.parametrize("block", STRANGE, ids=["no such document", "sample below 0", "step below 0", "too many"])
def test_a_block_that_makes_no_sense_hides_nothing_of_the_others(connection, block):
    opened(connection, 0)
    give(connection, "r", [block, *sent(1, rows(2, 3))])
    assert [step.step for step in asked(connection).steps] == [2, 3]
    assert [step.step for step in samples.find(connection, "r", 8, Window(), most_steps=9).steps] == [2]
    assert [step.step for step in samples.find(connection, "r", "d0", Window(), most_steps=9).steps] == [2]


def test_a_document_whose_name_cannot_be_sent_on_is_refused():
    with pytest.raises(Invalid, match="makes no sense"):
        service.check(strange([2], [1], [SAMPLES | DOCUMENTS], [2], [1], names=["\ud800"]))


def test_a_resume_check_is_an_event_as_loud_as_what_it_found(connection):
    service.resume_checked(connection, "r", ResumeChecked(2, 10, 20, 0.0, ("scaler not restored",)), NOW)
    service.resume_checked(connection, "r", ResumeChecked(3, 10, 20, 0.0), NOW)
    said = [each.event for each in events.newest(connection, "r", (EventType.RUN_RESUME_CHECKED,))]
    assert [(e.segment, e.data["severity"], e.data["findings"]) for e in said] == [
        (3, "info", []),
        (2, "warning", ["scaler not restored"]),
    ]
    assert "scaler not restored" in said[1].data["text"]


@pytest.fixture(scope="module", params=("sqlite", "postgresql"))
def served(request, new_database_url, tmp_path_factory):
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"), database_url=new_database_url(request.param), port=0)
    with Served(settings) as served:
        yield served


def test_people_read_it_over_the_api(served):
    begin(served, "r")
    told = [*sent(1, rows(1, 3)), ResumeChecked(1, 0, 3, 0.0, ("other batches than before: 1 of 3 steps, the first is 2",))]
    records = tuple(Numbered(5 + i, record) for i, record in enumerate(told))
    with served.client("agent", **JSON) as agent:
        sending = Batch("r", "life-1", 0, 5, 4 + len(records), 0.0, (), records)
        assert agent.post("/api/agent/batches", content=encode(sending)).status_code == 200
    with served.client("operator") as person:
        get = lambda path, **query: person.get(f"/api/runs/r/{path}", params=query).json()  # noqa: E731
        one = get("samples", step=2)
        assert one["ranks"][0] | {"segment": 1} == one["steps"][0]
        assert (one["ranks"][0]["samples"], one["ranks"][0]["documents"]) == ([8, 9, 10, 11], ["d0", "d0", "d1", "d1"])
        assert [s["step"] for s in get("samples", from_step=2)["steps"]] == [2, 3]
        assert [(s["step"], s["segment"], s["rank"]) for s in get("samples", sample=13)["steps"]] == [(3, 1, 0)]
        assert [s["step"] for s in get("samples", document="d1")["steps"]] == [3, 2]
        assert get("documents", from_step=2, to_step=3)["documents"] == [
            {"document": "d1", "samples": 6, "first_step": 2, "last_step": 3},
            {"document": "d0", "samples": 2, "first_step": 2, "last_step": 2},
        ]
        (segment,) = person.get("/api/runs/r").json()["segments"]
        assert segment["resume_findings"] == ["other batches than before: 1 of 3 steps, the first is 2"]
        assert person.get("/api/runs/nobody/samples").status_code == 404
        assert person.get("/api/runs/r/samples?sample=1&document=x").status_code == 422
    with served.client("agent") as agent:
        assert agent.get("/api/runs/r/samples").status_code == 403


def test_what_a_training_read_reaches_the_page(served, tmp_path):
    book = training_kit.Book()
    trainer = training_kit.trainer(tmp_path, book, max_steps=6, gradient_accumulation_steps=2, save_strategy="no")
    guarded_train(trainer, url=served.url, token=served.tokens["agent"], run_id="trained")
    with served.client("operator") as person:
        steps = person.get("/api/runs/trained/samples").json()["steps"]
        assert {each["step"]: each["samples"] for each in steps} == book.rows

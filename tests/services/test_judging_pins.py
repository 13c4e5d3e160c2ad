"""Pins, saves that failed, and corrupt checkpoints: what people are told, and what the trainer is."""

import pytest
from judging_kit import Trainer, data_of, told

from server.domain import webhooks
from server.domain.commands import Hand
from server.domain.events import Event, EventType
from server.services import checkpoints
from server.services.errors import Conflict, NotFound
from server.store import checkpoints as store
from server.store import runs as runs_store
from trainer_agent.wire.messages import SaveFailed
from trainer_agent.wire.vocabulary import CheckpointState, Severity

ANN = Hand("ann", "10.0.0.1, by the page")


@pytest.fixture
def trainer(connection, clock):
    return Trainer(connection, clock).start().save(4).save(8).send()


def pin(connection, clock, checkpoint_id, *, pinned=True, by=ANN):
    return checkpoints.pin(connection, "run", checkpoint_id, by, clock(), pinned=pinned)


def pins_told(trainer):
    return {each.checkpoint_id: each.pinned for each in trainer.take(1, 1).verdicts}


def test_a_pin_says_who_and_when_and_rides_in_each_reply(connection, trainer, clock):
    clock.advance(7)
    checkpoint = pin(connection, clock, "c1-4")
    assert (checkpoint.pinned, checkpoint.pinned_by, checkpoint.pin_changed_at) == (True, "ann", clock())
    assert pins_told(trainer) == {"c1-4": True, "c1-8": False}
    (event,) = data_of(connection, "checkpoint.pinned")
    assert (event["by"], event["place"], event["checkpoint_id"]) == ("ann", "10.0.0.1, by the page", "c1-4")


def test_pinning_again_changes_and_tells_nothing(connection, trainer, clock):
    first = pin(connection, clock, "c1-4")
    clock.advance(7)
    assert pin(connection, clock, "c1-4", by=Hand("bob")) == first
    assert len(told(connection, prefix="checkpoint.pinned")) == 1
    assert pin(connection, clock, "c1-8", pinned=False).pin_changed_at is None


def test_pins_and_what_was_unpinned_are_told_however_many_verdicts_came_since(connection, trainer, clock):
    pin(connection, clock, "c1-4")
    pin(connection, clock, "c1-8")
    pin(connection, clock, "c1-8", pinned=False)
    for step in range(9, 9 + 3 * checkpoints.VERDICTS_IN_A_REPLY):
        trainer.save(step).send()
        clock.advance(1)
    told_now = pins_told(trainer)
    assert (told_now["c1-4"], told_now["c1-8"]) == (True, False)
    assert len(told_now) == checkpoints.VERDICTS_IN_A_REPLY + 2


def test_a_new_verdict_on_a_pinned_checkpoint_leaves_it_pinned(connection, trainer, clock):
    pin(connection, clock, "c1-4")
    trainer.save(4, state=CheckpointState.CORRUPT, problem="sha256 differs").send()
    checkpoint = store.read_checkpoint(connection, "run", "c1-4")
    assert (checkpoint.judged.state, checkpoint.pinned, checkpoint.pinned_by) == (CheckpointState.CORRUPT, True, "ann")


def test_a_name_used_for_another_checkpoint_is_no_longer_pinned_and_that_is_told(connection, clock):
    trainer = Trainer(connection, clock).start().log(1, loss=1.0).save(1, checkpoint_id="checkpoint-1").send()
    pin(connection, clock, "checkpoint-1")
    trainer.open_segment(2, 0).save(1, checkpoint_id="checkpoint-1").send()
    assert store.read_checkpoint(connection, "run", "checkpoint-1").pinned is False
    assert "name was used" in data_of(connection, "checkpoint.unpinned")[0]["text"]


def test_nothing_that_is_gone_or_unknown_can_be_pinned_nor_more_than_a_reply_holds(connection, trainer, clock, monkeypatch):
    trainer.save(4, state=CheckpointState.DELETED).send()
    with pytest.raises(Conflict, match="deleted already"):
        pin(connection, clock, "c1-4")
    with pytest.raises(NotFound):
        pin(connection, clock, "c9-9")
    monkeypatch.setattr(checkpoints, "MOST_PINNED", 1)
    trainer.save(9).send()
    pin(connection, clock, "c1-8")
    with pytest.raises(Conflict, match="are pinned already"):
        pin(connection, clock, "c1-9")
    assert checkpoints.MOST_PINNED < checkpoints.PINS_IN_A_REPLY


def test_a_save_that_failed_calls_people_once_and_stands_until_a_later_one_succeeds(connection, trainer, clock):
    trainer.record(SaveFailed(12, 0.0, "No space left on device")).send()
    failure = runs_store.get(connection, "run").save_failure
    assert (failure["step"], failure["segment"], failure["reason"]) == (12, 1, "No space left on device")
    trainer.record(SaveFailed(16, 0.0, "No space left on device")).save(8, size_bytes=7).send()
    assert runs_store.get(connection, "run").save_failure["step"] == 16, "an older one told of again is no success"
    assert [each["severity"] for each in data_of(connection, "checkpoint.save_failed")] == ["critical", "info"]
    trainer.save(20, state=CheckpointState.WRITING).send()
    assert runs_store.get(connection, "run").save_failure is not None
    trainer.save(20).send()
    assert runs_store.get(connection, "run").save_failure is None
    trainer.record(SaveFailed(24, 0.0, "again")).send()
    assert data_of(connection, "checkpoint.save_failed")[-1]["severity"] == "critical"


def test_a_failed_save_of_another_rank_is_not_the_runs(connection, trainer, clock):
    Trainer(connection, clock, incarnation="r1", rank=1).start().record(SaveFailed(12, 0.0, "disk")).send()
    assert runs_store.get(connection, "run").save_failure is None


def test_a_corrupt_checkpoint_is_critical_and_no_other_verdict_leaves_the_server(connection, trainer, clock, now):
    trainer.save(4, state=CheckpointState.CORRUPT, problem="one byte differs").save(12, nonfinite_weights=1).send()
    events = {each["state"]: each for each in data_of(connection, "checkpoint.changed")}
    loud = {
        state: webhooks.severity_of(Event(EventType.CHECKPOINT_CHANGED, now, "run", data=data)) for state, data in events.items()
    }
    assert loud == {"sound": None, "unsound": None, "corrupt": Severity.CRITICAL}
    assert "one byte differs" in events["corrupt"]["text"]

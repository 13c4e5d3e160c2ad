"""Verdicts on checkpoints as the agent's facts come in, and the recorded death from first sign to target, on both databases."""

import csv
import math
from pathlib import Path

import pytest
from judging_kit import Trainer, alerts_of, data_of, use_default_rules

from server.services import checkpoints
from server.store import alerts as alerts_store
from server.store import checkpoints as store
from trainer_agent.wire.messages import Verdict
from trainer_agent.wire.vocabulary import AlertState, CheckpointState

C = CheckpointState
RECORDED = Path(__file__).parent.parent / "domain" / "data" / "recorded_runs.csv"


@pytest.fixture
def trainer(connection, clock):
    return Trainer(connection, clock).start()


def states(connection):
    return {each.facts.checkpoint_id: each.judged.state for each in store.read_checkpoints(connection, "run")}


def test_facts_are_kept_as_they_came_and_the_same_again_change_nothing(connection, trainer, clock):
    trainer.save(5, size_bytes=7, directory="/somewhere").send()
    clock.advance(5)
    trainer.save(5, size_bytes=7, directory="/somewhere").send()
    (checkpoint,) = store.read_checkpoints(connection, "run")
    assert (checkpoint.facts.size_bytes, checkpoint.facts.directory, checkpoint.saved_at) == (
        7,
        "/somewhere",
        checkpoint.changed_at,
    )
    assert len(data_of(connection, "checkpoint.changed")) == 1


@pytest.mark.parametrize(("behind", "shown"), [(3600, 3600), (-3600, 0), (float("nan"), 0)])
def test_a_checkpoint_told_of_late_was_not_saved_late_and_no_wrong_clock_is_believed(connection, trainer, clock, behind, shown):
    now = clock()
    trainer.save(5, time=now.timestamp() - behind).send()
    (checkpoint,) = store.read_checkpoints(connection, "run")
    assert abs((now - checkpoint.saved_at).total_seconds() - shown) < 1


def test_new_facts_that_leave_the_verdict_as_it_was_are_kept_and_not_told(connection, trainer, clock):
    trainer.save(5).send()
    clock.advance(5)
    trainer.save(5, size_bytes=9).send()
    (checkpoint,) = store.read_checkpoints(connection, "run")
    assert (checkpoint.facts.size_bytes, checkpoint.saved_at) == (9, checkpoint.changed_at)
    assert len(data_of(connection, "checkpoint.changed")) == 1


def test_a_checkpoint_is_written_then_sound_then_deleted(connection, trainer):
    for state in (C.WRITING, C.COMPLETE, C.DELETED):
        trainer.save(5, state=state)
    trainer.send()
    assert [each["state"] for each in data_of(connection, "checkpoint.changed")] == ["writing", "sound", "deleted"]


def test_the_first_word_on_why_a_checkpoint_is_gone_stands_and_is_told_once(connection, trainer):
    """The trainer was killed once it had told of it; the next process finds that it is missing."""
    trainer.save(5).save(5, state=C.DELETED, problem="removed, because 1 are kept").send()
    trainer.save(5, state=C.DELETED, problem="its directory is gone").send()
    (checkpoint,) = store.read_checkpoints(connection, "run")
    assert checkpoint.judged.reason == "removed, because 1 are kept"
    assert [each["state"] for each in data_of(connection, "checkpoint.changed")] == ["sound", "deleted"]


def test_a_run_with_a_loss_scaler_needs_the_scaler_in_its_checkpoints(connection, trainer):
    trainer.save(1, parts=("model", "optimizer")).log(2, scale=1024.0).save(3, parts=("model", "optimizer")).send()
    assert states(connection) == {"c1-1": C.SOUND, "c1-3": C.UNSOUND}


def test_what_the_agent_saw_itself_at_the_save_makes_it_unsound(connection, trainer):
    trainer.save(5, sick_because="raw loss was NaN at step 5").send()
    assert checkpoints.verdicts(connection, "run") == (Verdict("c1-5", C.UNSOUND, "raw loss was NaN at step 5"),)


def test_the_verdicts_that_changed_last_ride_in_each_reply(connection, trainer, clock):
    for step in range(1, 26):
        trainer.log(step, loss=1.0).save(step).send()
        clock.advance(1)
    verdicts = trainer.take(1, 1).verdicts
    assert [each.checkpoint_id for each in verdicts] == [f"c1-{step}" for step in range(25, 5, -1)]


def recorded(run):
    with RECORDED.open() as file:
        for row in csv.DictReader(file):
            if row["run"] == run:
                yield int(row["step"]), float(row["loss"]), float(row["grad_norm"]), float(row["skipped"])


def live_through(trainer, run, last_step=320):
    for step, loss, grad_norm, skipped in recorded(run):
        if step <= last_step:
            trainer.log(step, loss=loss, grad_norm=grad_norm, overflow=skipped, scale=1024.0)
            if step % 50 == 0:
                trainer.save(step)
    return trainer.send(*range(7, 5000, 7))


def test_the_recorded_death_is_seen_in_time_and_its_finite_checkpoints_are_no_target(connection, trainer):
    use_default_rules(connection)
    live_through(trainer, "dies")
    first = {}
    for alert in alerts_store.read_alerts(connection, "run"):  # newest first, so the first episode of a rule stays
        first[alert.rule_id] = alert.firing_step
    assert first == {
        "grad-norm-spike": 217,
        "loss-spike": 219,
        "grad-norm-not-finite": 222,
        "steps-skipped-often": 222,
        "grad-norm-ramp": 223,
        "loss-diverges": 223,
        "grad-norm-over-10": 225,
        "loss-not-finite": 235,
        "steps-skipped": 238,
    }
    assert alerts_of(connection)["loss-not-finite"].state is AlertState.FIRING
    assert states(connection) == {f"c1-{step}": C.SOUND if step < 217 else C.UNSOUND for step in range(50, 321, 50)}
    proposal = checkpoints.propose(connection, "run")
    assert (proposal.choice.target.step, proposal.first_sign_step) == (200, 217)
    assert [each.step for each, _ in proposal.choice.passed_over] == [300, 250]


def test_after_the_rollback_the_run_is_judged_healthy_and_its_new_checkpoints_are_sound(connection, trainer):
    use_default_rules(connection)
    live_through(trainer, "dies", last_step=240).open_segment(2, 200)
    for step, loss, grad_norm, skipped in recorded("healthy"):
        if step > 200:
            trainer.log(step, loss=loss, grad_norm=grad_norm, overflow=skipped, scale=1024.0)
    trainer.save(250).save(300).send()
    assert all(not alert.is_open for alert in alerts_of(connection).values())
    assert states(connection)["c2-250"] is states(connection)["c2-300"] is C.SOUND
    proposal = checkpoints.propose(connection, "run")
    assert (proposal.choice.target.checkpoint_id, proposal.first_sign_step) == ("c2-300", None)


def test_its_healthy_twin_is_never_alerted_on_and_all_its_checkpoints_are_sound(connection, trainer):
    use_default_rules(connection)
    live_through(trainer, "healthy")
    assert alerts_of(connection) == {}
    assert set(states(connection).values()) == {C.SOUND}


def test_a_nan_in_a_fact_is_no_harm(connection, trainer):
    trainer.save(5, save_seconds=math.nan).send()
    (checkpoint,) = store.read_checkpoints(connection, "run")
    assert math.isnan(checkpoint.facts.save_seconds)


def test_a_name_used_anew_after_a_rollback_is_a_checkpoint_saved_anew(connection, trainer, clock):
    trainer.log(1, loss=1.0).save(1, checkpoint_id="checkpoint-1").send()
    later = clock.advance(60)
    trainer.open_segment(2, 0).log(1, loss=1.0).save(1, checkpoint_id="checkpoint-1").send()
    checkpoint = store.read_checkpoint(connection, "run", "checkpoint-1")
    assert (checkpoint.facts.segment, checkpoint.saved_at) == (2, later)

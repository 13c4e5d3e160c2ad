"""What may be asked for, what is made of it, and what is written down: requests for commands, on both databases."""

from dataclasses import replace

import pytest
from judging_kit import Trainer, data_of, use_rules
from test_judging_commands import BACK, STOP, S, sound_run, state_of

from server.domain.admission import Refusal
from server.domain.commands import Hand
from server.domain.rules import AlertRule, DetectorKind
from server.services import commands, reports
from server.services.errors import Invalid, Refused, Stale
from server.store import commands as store
from trainer_agent.wire.vocabulary import CommandKind, DataMode, SegmentCause


@pytest.fixture
def trainer(connection, clock):
    return sound_run(connection, clock)


def trainer_with(connection, clock, *modes, because="its loop draws batches by itself"):
    trainer = Trainer(connection, clock, data_modes=modes, data_modes_because=because).start()
    return trainer.log(1, loss=1.0).save(4).log(8, loss=1.0).send()


@pytest.mark.parametrize(
    ("modes", "ask", "data"),
    [
        ((DataMode.REPLAY, DataMode.SKIP), {}, DataMode.REPLAY),
        ((DataMode.SKIP,), {}, DataMode.SKIP),
        ((DataMode.REPLAY,), {}, DataMode.REPLAY),
        (tuple(DataMode), {"exclude_samples": (3, 1)}, DataMode.EXCLUDE),
        (tuple(DataMode), {"exclude_documents": ("cp437.py",)}, DataMode.EXCLUDE),
    ],
)
def test_left_out_the_data_are_treated_as_the_run_can(connection, clock, modes, ask, data):
    trainer_with(connection, clock, *modes)
    rollback = commands.issue(connection, replace(BACK, data=None, **ask), clock()).command.rollback
    assert rollback.data is data
    assert (rollback.exclude_samples, rollback.exclude_documents) == (
        ask.get("exclude_samples", ()),
        ask.get("exclude_documents", ()),
    )
    assert (rollback.skip_from_step is not None) == (data is DataMode.SKIP)


@pytest.mark.parametrize("ask", [{"data": DataMode.SKIP}, {"data": None, "exclude_samples": (1,)}])
def test_what_the_run_cannot_do_with_its_data_is_refused_before_it_is_sent(connection, clock, ask):
    trainer_with(connection, clock, DataMode.REPLAY)
    with pytest.raises(Refused, match="draws batches by itself") as refused:
        commands.issue(connection, replace(BACK, **ask), clock())
    assert refused.value.refusal is Refusal.CANNOT_DATA
    assert "replay" in refused.value.fix


def test_a_rollback_carries_the_factor_and_where_the_trouble_began(connection, trainer, clock):
    use_rules(connection, AlertRule("r", "R", "R", "train/loss", DetectorKind.THRESHOLD, {"above": 5.0}, for_points=9))
    trainer.log(11, loss=9.0).send()
    rollback = commands.issue(connection, replace(BACK, data=None, learning_rate_factor=0.5), clock()).command.rollback
    assert (rollback.learning_rate_factor, rollback.first_sign_step) == (0.5, 11)
    assert rollback.data is DataMode.SKIP  # with a sign of trouble, where nobody says


SETS = (CommandKind.SET_LEARNING_RATE_FACTOR, CommandKind.SET_MAX_GRAD_NORM)


@pytest.mark.parametrize("kind", SETS)
def test_a_value_travels_and_is_kept(connection, trainer, clock, kind):
    command = commands.issue(connection, replace(STOP, kind=kind, value=0.5), clock()).command
    (carried,) = trainer.take(1, 1).commands
    assert (carried.kind, carried.value, command.value) == (kind, 0.5, 0.5)
    assert "to 0.5" in data_of(connection, "command.queued")[0]["text"]


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("value", [None, 0.0, -1.0, float("nan"), float("inf"), 1e10])
def test_a_value_that_is_no_sane_number_is_refused(connection, trainer, clock, kind, value):
    with pytest.raises(Invalid, match="needs a value" if value is None else "value is"):
        commands.issue(connection, replace(STOP, kind=kind, value=value), clock())


@pytest.mark.parametrize(
    "senseless",
    [
        replace(STOP, value=1.0),
        replace(STOP, checkpoint_id="c1-4"),
        replace(STOP, kind=CommandKind.SAVE, learning_rate_factor=0.5),
        replace(BACK, value=1.0),
        replace(BACK, data=DataMode.EXCLUDE),
        replace(BACK, exclude_samples=(1,)),
        replace(BACK, learning_rate_factor=101.0),
        replace(BACK, learning_rate_factor=float("nan")),
        replace(BACK, data=None, exclude_documents=("d",) * 201),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_and_leaves_nothing(connection, trainer, clock, senseless):
    with pytest.raises(Invalid):
        commands.issue(connection, senseless, clock())
    assert store.read_commands(connection, "run") == ()


def test_a_page_of_an_earlier_process_is_told_where_the_run_is(connection, trainer, clock):
    clock.advance(1)
    Trainer(connection, clock, incarnation="life-2", segment=2).start(SegmentCause.RESTART, from_step=8).send()
    active = commands.issue(connection, replace(STOP, kind=CommandKind.SAVE, seen_segment=2), clock()).command
    with pytest.raises(Stale) as stale:
        commands.issue(connection, replace(STOP, idempotency_key="k", seen_segment=2, seen_incarnation="life-1"), clock())
    now = stale.value.now
    assert (now.segment, now.incarnation, now.step, now.command.command_id) == (2, "life-2", 8, active.command_id)


def test_the_key_of_a_second_click_is_the_first_command_for_good(connection, trainer, clock):
    """Or a proxy that sends it once more, after the first command has ended, would make another."""
    first = commands.issue(connection, STOP, clock()).command
    second = replace(STOP, idempotency_key="key-9", issued_by="bob", issued_from="elsewhere")
    assert commands.issue(connection, second, clock()).command.command_id == first.command_id
    trainer.report(first.command_id, S.FAILED, reason="disk").send()
    late = commands.issue(connection, second, clock.advance(25 * 3600))
    assert (late.command.command_id, late.created) == (first.command_id, False)
    with pytest.raises(Invalid, match="another request"):
        commands.issue(connection, replace(second, reason="other"), clock())


def test_commands_given_before_the_loop_has_begun_follow_the_process_into_its_segment(connection, trainer, clock):
    clock.advance(1)
    again = Trainer(connection, clock, incarnation="life-2", segment=2)
    again.start(SegmentCause.RESTART, from_step=8)
    command = commands.issue(connection, BACK, clock()).command
    assert (command.incarnation, command.segment, command.rollback.new_segment) == ("life-2", 1, 2)
    again.send()
    (carried,) = again.take(1, 1).commands
    assert (carried.command_id, carried.segment, carried.rollback.new_segment) == (command.command_id, 2, 3)


def test_a_stop_that_waits_is_told_of_as_soon_as_what_it_waits_for_has_ended_whichever_way(connection, trainer, clock):
    for number, (word, after) in enumerate([(S.FAILED, 0), (None, 3600)]):
        rollback = commands.issue(connection, replace(BACK, idempotency_key=f"b{number}"), clock()).command
        trainer.report(rollback.command_id, S.RUNNING).send()
        stop = commands.issue(connection, replace(STOP, idempotency_key=f"s{number}"), clock()).command
        clock.advance(after)
        if word is None:
            reports.expire_due(connection, clock())
        else:
            trainer.report(rollback.command_id, word).send()
        (carried,) = trainer.take(1, 1).commands
        assert carried.command_id == stop.command_id
        assert store.waiting_command(connection, "run") is None
        trainer.report(stop.command_id, S.REJECTED).send()


def test_a_stop_that_waits_is_cancelled_or_ends_with_the_run(connection, trainer, clock):
    rollback = commands.issue(connection, BACK, clock()).command
    trainer.report(rollback.command_id, S.RUNNING).send()
    stop = commands.issue(connection, STOP, clock()).command
    assert commands.cancel(connection, "run", stop.command_id, Hand("bob"), clock()).state is S.CANCELLED
    stop = commands.issue(connection, replace(STOP, idempotency_key="key-9"), clock()).command
    trainer.end().send()
    assert (state_of(connection, rollback), state_of(connection, stop)) == (S.UNCONFIRMED, S.EXPIRED)


def test_a_restart_in_the_middle_of_a_rollback_hands_the_waiting_stop_to_the_new_process(connection, trainer, clock):
    rollback = commands.issue(connection, BACK, clock()).command
    trainer.report(rollback.command_id, S.RUNNING).send()
    stop = commands.issue(connection, STOP, clock()).command
    clock.advance(1)
    again = Trainer(connection, clock, incarnation="life-2", segment=2).start(SegmentCause.RESTART, from_step=8).send()
    (carried,) = again.take(1, 1).commands
    assert (carried.command_id, carried.incarnation, carried.segment) == (stop.command_id, "life-2", 2)


def test_each_change_says_who_from_where_why_and_from_which_state(connection, trainer, clock):
    new = replace(STOP, issued_from="10.0.0.1, by the page", seen_incarnation="life-1", seen_step=10)
    command = commands.issue(connection, new, clock()).command
    trainer.report(command.command_id, S.DELIVERED).send()
    commands.cancel(connection, "run", command.command_id, Hand("bob", "10.0.0.2, by token"), clock())
    history = store.read_histories(connection, ["run"])[command.command_id]
    assert [(each.before, each.state, each.by, each.place, each.reason) for each in history] == [
        (None, S.QUEUED, "ann", "10.0.0.1, by the page", "it looks sick"),
        (S.QUEUED, S.DELIVERED, "trainer", "life-1", ""),
        (S.DELIVERED, S.CANCELLED, "bob", "10.0.0.2, by token", "cancelled by bob"),
    ]
    assert {key: data_of(connection, "command.queued")[0][key] for key in ("seen_segment", "seen_incarnation", "seen_step")} == {
        "seen_segment": 1,
        "seen_incarnation": "life-1",
        "seen_step": 10,
    }

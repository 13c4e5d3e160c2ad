"""Commands from the click to their end, on both databases."""

import threading
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
import sqlalchemy as sa
from judging_kit import OWNER, Trainer, data_of, told, use_rules

from server.domain.admission import Refusal
from server.domain.commands import AFTER_RESTART, DELIVER_WITHIN, EXECUTE_WITHIN, Hand
from server.domain.rules import AlertRule, DetectorKind
from server.services import commands, reports, runs
from server.services.commands import NewCommand
from server.services.errors import Conflict, Invalid, NotFound, Refused, Stale
from server.store import commands as store
from server.store import runs as runs_store
from server.store import segments
from server.store.database import Database
from server.store.tables import commands as commands_table
from trainer_agent.wire.vocabulary import CheckpointState, CommandKind, CommandState, DataMode, SegmentCause

S = CommandState
STOP = NewCommand("run", CommandKind.STOP, "key-1", "ann", seen_segment=1, reason="it looks sick")
BACK = NewCommand("run", CommandKind.ROLLBACK, "key-2", "ann", seen_segment=1, data=DataMode.SKIP, max_grad_norm=1.0)


def sound_run(connection, clock):
    trainer = Trainer(connection, clock).start()
    for step in range(1, 11):
        trainer.log(step, loss=1.0, scale=1024.0)
    return trainer.save(4).save(8).send()


@pytest.fixture
def trainer(connection, clock):
    return sound_run(connection, clock)


def state_of(connection, command):
    return store.read_command(connection, "run", command.command_id).state


def test_a_command_reaches_the_agent_with_the_seconds_that_remain_until_it_is_reported_on(connection, trainer, clock):
    command = commands.issue(connection, STOP, clock()).command
    clock.advance(60)
    (carried,) = trainer.take(1, 1).commands
    assert (carried.command_id, carried.kind, carried.incarnation, carried.segment) == (
        command.command_id,
        CommandKind.STOP,
        "life-1",
        1,
    )
    assert carried.deliver_within_seconds == (DELIVER_WITHIN - timedelta(seconds=60)).total_seconds()
    assert carried.execute_within_seconds == EXECUTE_WITHIN[CommandKind.STOP].total_seconds()
    assert runs.reply_for(connection, "run", "life-1", rank=0, owner_token_id=OWNER, now=clock()).commands == (carried,)
    trainer.report(command.command_id, S.DELIVERED).send()
    assert trainer.take(1, 1).commands == ()
    trainer.report(command.command_id, S.RUNNING, 11).report(command.command_id, S.SUCCEEDED, 11, "saved and left").send()
    ended = store.read_command(connection, "run", command.command_id)
    assert (ended.state, ended.step, ended.outcome, ended.deadline_at) == (S.SUCCEEDED, 11, "saved and left", None)
    assert [kind for kind, _ in told(connection, prefix="command")] == [
        "command.queued",
        "command.delivered",
        "command.running",
        "command.succeeded",
    ]
    history = store.read_histories(connection, ["run"])[command.command_id]
    assert [each.state for each in history] == [S.QUEUED, S.DELIVERED, S.RUNNING, S.SUCCEEDED]
    assert (history[0].reason, history[-1].reason) == ("it looks sick", "saved and left")


def test_a_rollback_goes_to_the_proposal_and_says_what_is_different_afterwards(connection, trainer, clock):
    rollback = commands.issue(connection, BACK, clock()).command.rollback
    assert (rollback.checkpoint_id, rollback.target_step, rollback.new_segment) == ("c1-8", 8, 2)
    assert (rollback.data, rollback.skip_from_step, rollback.skip_to_step, rollback.max_grad_norm) == (
        DataMode.SKIP,
        9,
        None,
        1.0,
    )


def test_a_replay_skips_nothing(connection, trainer, clock):
    rollback = commands.issue(connection, replace(BACK, data=DataMode.REPLAY), clock()).command.rollback
    assert (rollback.skip_from_step, rollback.skip_to_step) == (None, None)


def test_a_chosen_checkpoint_is_taken(connection, trainer, clock):
    assert commands.issue(connection, replace(BACK, checkpoint_id="c1-4"), clock()).command.rollback.target_step == 4


def test_in_trouble_the_target_lies_before_the_onset_though_it_is_still_pending(connection, trainer, clock):
    use_rules(connection, AlertRule("r", "R", "R", "train/loss", DetectorKind.THRESHOLD, {"above": 5.0}, for_points=9))
    trainer.log(11, loss=9.0).save(11).log(12, loss=9.0).send()
    rollback = commands.issue(connection, BACK, clock()).command.rollback
    assert (rollback.target_step, rollback.skip_from_step, rollback.skip_to_step) == (8, 9, None)


@pytest.mark.parametrize(
    ("change", "checkpoint_id", "refusal", "words"),
    [
        ({}, "c9-999", Refusal.UNKNOWN_CHECKPOINT, "c9-999"),
        ({"nonfinite_weights": 3}, "c1-9", Refusal.UNSOUND_CHECKPOINT, "3 weights are not finite"),
        ({"state": CheckpointState.DELETED, "problem": "rotated away"}, "c1-9", Refusal.UNSOUND_CHECKPOINT, "rotated away"),
        ({"parts": ("model", "optimizer")}, "c1-9", Refusal.UNSOUND_CHECKPOINT, "holds no scaler"),
    ],
)
def test_a_rollback_to_an_unsound_or_vanished_checkpoint_is_refused_with_the_reason(
    connection, trainer, clock, change, checkpoint_id, refusal, words
):
    trainer.save(9, **change).send()
    with pytest.raises(Refused, match=words) as refused:
        commands.issue(connection, replace(BACK, checkpoint_id=checkpoint_id), clock())
    assert refused.value.refusal is refusal
    assert refused.value.fix
    assert store.read_commands(connection, "run") == ()


def test_a_checkpoint_that_a_rollback_left_behind_is_refused(connection, trainer, clock):
    trainer.open_segment(2, 4).log(5, loss=1.0).send()
    with pytest.raises(Refused, match="left behind") as refused:
        commands.issue(connection, replace(BACK, checkpoint_id="c1-8", seen_segment=2), clock())
    assert refused.value.refusal is Refusal.SUPERSEDED_CHECKPOINT


def test_without_a_sound_checkpoint_a_rollback_is_refused_with_the_reasons(connection, clock):
    Trainer(connection, clock).start().log(1, loss=1.0).save(1, nonfinite_weights=2).send()
    with pytest.raises(Refused, match="step 1: 2 weights are not finite") as refused:
        commands.issue(connection, BACK, clock())
    assert refused.value.refusal is Refusal.NO_SOUND_CHECKPOINT


def test_what_the_integration_cannot_do_is_refused_in_its_words(connection, clock):
    Trainer(connection, clock, capabilities=(CommandKind.STOP,)).start().send()
    with pytest.raises(Refused, match="it is a loop"):
        commands.issue(connection, BACK, clock())


def test_a_run_that_has_ended_takes_no_command(connection, trainer, clock):
    trainer.end().send()
    with pytest.raises(Refused, match="it is finished"):
        commands.issue(connection, STOP, clock())


def test_a_page_of_an_older_segment_is_told_so(connection, trainer, clock):
    trainer.open_segment(2, 8).send()
    with pytest.raises(Stale) as stale:
        commands.issue(connection, STOP, clock())
    assert stale.value.segment == 2


def test_an_unknown_run_is_not_found(connection, clock):
    with pytest.raises(NotFound):
        commands.issue(connection, STOP, clock())


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf")])
def test_clipping_at_no_number_is_refused(connection, trainer, clock, limit):
    with pytest.raises(Invalid, match="max_grad_norm"):
        commands.issue(connection, replace(BACK, max_grad_norm=limit), clock())


def test_the_same_key_is_the_same_command_and_another_body_under_it_is_refused(connection, trainer, clock):
    first = commands.issue(connection, BACK, clock())
    trainer.report(first.command.command_id, S.FAILED, reason="disk").send()
    again = commands.issue(connection, BACK, clock())
    assert (first.created, again.created) == (True, False)
    assert again.command.command_id == first.command.command_id
    with pytest.raises(Invalid, match="another request"):
        commands.issue(connection, replace(BACK, data=DataMode.REPLAY), clock())


def test_a_second_click_on_the_same_button_is_the_first_command(connection, trainer, clock):
    first = commands.issue(connection, STOP, clock()).command
    again = commands.issue(connection, replace(STOP, idempotency_key="key-9", issued_by="bob"), clock())
    assert (again.command, again.created) == (first, False)


def test_a_rollback_elsewhere_beside_an_active_one_is_refused_and_names_it(connection, trainer, clock):
    first = commands.issue(connection, BACK, clock()).command
    with pytest.raises(Refused) as refused:
        commands.issue(connection, replace(BACK, idempotency_key="key-9", checkpoint_id="c1-4"), clock())
    assert (refused.value.refusal, refused.value.active_command) == (Refusal.ALREADY_ACTIVE, first.command_id)


def test_a_stop_replaces_a_rollback_that_has_not_begun(connection, trainer, clock):
    rollback = commands.issue(connection, BACK, clock()).command
    stop = commands.issue(connection, STOP, clock()).command
    assert (state_of(connection, rollback), state_of(connection, stop)) == (S.SUPERSEDED, S.QUEUED)


def test_a_stop_waits_behind_a_rollback_that_has_begun_and_has_its_turn_after_it(connection, trainer, clock):
    rollback = commands.issue(connection, BACK, clock()).command
    trainer.report(rollback.command_id, S.RUNNING).send()
    stop = commands.issue(connection, STOP, clock()).command
    assert (stop.state, stop.behind, stop.deadline_at) == (S.QUEUED, rollback.command_id, None)
    assert trainer.take(1, 1).commands == ()
    again = commands.issue(connection, replace(STOP, idempotency_key="key-9"), clock())
    assert (again.command.command_id, again.created) == (stop.command_id, False)
    trainer.open_segment(2, 8, command_id=rollback.command_id).report(rollback.command_id, S.SUCCEEDED, 8).send()
    (carried,) = trainer.take(1, 1).commands
    assert (carried.command_id, carried.segment) == (stop.command_id, 2)
    assert carried.deliver_within_seconds == DELIVER_WITHIN.total_seconds()


def test_a_command_is_cancelled_before_it_begins_and_not_after(connection, trainer, clock):
    command = commands.issue(connection, STOP, clock()).command
    assert commands.cancel(connection, "run", command.command_id, Hand("bob"), clock()).state is S.CANCELLED
    assert commands.cancel(connection, "run", command.command_id, Hand("bob"), clock()).outcome == "cancelled by bob"
    other = commands.issue(connection, replace(STOP, idempotency_key="key-9"), clock()).command
    trainer.report(other.command_id, S.RUNNING).send()
    with pytest.raises(Conflict, match="running already"):
        commands.cancel(connection, "run", other.command_id, Hand("bob"), clock())
    with pytest.raises(NotFound):
        commands.cancel(connection, "run", "c_none", Hand("bob"), clock())


def test_nobody_reads_cancelled_of_what_was_done_all_the_same(connection, trainer, clock):
    command = commands.issue(connection, STOP, clock()).command
    commands.cancel(connection, "run", command.command_id, Hand("bob"), clock())
    trainer.report(command.command_id, S.SUCCEEDED, 11).send()
    trainer.report(command.command_id, S.SUCCEEDED, 11).send()
    ended = store.read_command(connection, "run", command.command_id)
    assert ended.state is S.CANCELLED
    assert ended.outcome == "cancelled by bob; too late: the trainer had it already and reports succeeded at step 11"


def test_an_expired_command_is_never_handed_out(connection, trainer, clock):
    command = commands.issue(connection, STOP, clock()).command
    late = clock.advance(DELIVER_WITHIN.total_seconds())
    assert trainer.take(1, 1).commands == ()
    assert reports.expire_due(connection, late) == 1
    assert state_of(connection, command) is S.EXPIRED
    assert reports.expire_due(connection, late) == 0


@pytest.mark.parametrize(
    ("words", "waited", "end"), [([S.DELIVERED], "stop", S.EXPIRED), ([S.DELIVERED, S.RUNNING], "stop", S.UNCONFIRMED)]
)
def test_past_its_time_a_fetched_command_has_expired_and_a_begun_one_is_unconfirmed(
    connection, trainer, clock, words, waited, end
):
    command = commands.issue(connection, STOP, clock()).command
    for word in words:
        trainer.report(command.command_id, word)
    trainer.send()
    assert reports.expire_due(connection, clock.advance(DELIVER_WITHIN.total_seconds())) == 0
    reports.expire_due(connection, clock.advance(EXECUTE_WITHIN[CommandKind(waited)].total_seconds()))
    assert state_of(connection, command) is end


def test_an_unconfirmed_command_is_settled_by_a_late_word(connection, trainer, clock):
    command = commands.issue(connection, STOP, clock()).command
    trainer.report(command.command_id, S.RUNNING).send()
    reports.expire_due(connection, clock.advance(3600))
    trainer.report(command.command_id, S.SUCCEEDED, 11).send()
    assert state_of(connection, command) is S.SUCCEEDED


def test_the_word_of_an_earlier_process_or_on_no_command_is_dropped(connection, trainer, clock):
    clock.advance(1)
    again = Trainer(connection, clock, incarnation="life-2", segment=2).start(SegmentCause.RESTART, from_step=8).send()
    command = commands.issue(connection, replace(STOP, seen_segment=2), clock()).command
    for word in (S.DELIVERED, S.RUNNING, S.SUCCEEDED, S.FAILED):
        trainer.report(command.command_id, word)
    trainer.send()
    again.report("c_none", S.RUNNING).report(command.command_id, S.CANCELLED).send()
    assert state_of(connection, command) is S.QUEUED


@pytest.mark.parametrize("known", [(), (S.DELIVERED,), (S.DELIVERED, S.RUNNING)])
@pytest.mark.parametrize(("cause", "order"), [("rollback", 1), ("restart", 1), ("restart", -1)])
@pytest.mark.parametrize("word", [S.SUCCEEDED, S.FAILED])
def test_a_later_process_says_how_a_command_ended_whose_journal_it_has_read(
    connection, trainer, clock, known, cause, order, word
):
    command = commands.issue(connection, BACK, clock()).command
    for each in known:
        trainer.report(command.command_id, each)
    trainer.send()
    clock.advance(5)
    again = Trainer(connection, clock, incarnation="life-2", segment=2)
    again.start(SegmentCause(cause), 8, command_id=command.command_id if cause == "rollback" else None)
    again.report(command.command_id, word, 8, "read in the journal")
    again.records = again.records[::order]
    again.send()
    ended = store.read_command(connection, "run", command.command_id)
    assert (ended.state, ended.step, ended.outcome) == (word, 8, "read in the journal")
    again.report(command.command_id, S.SUCCEEDED).report(command.command_id, S.FAILED).send()
    assert state_of(connection, command) is word, "an end is final"


@pytest.mark.parametrize("is_late", [False, True])
def test_a_rollback_that_two_processes_have_opened_has_one_segment_of_the_later(connection, trainer, clock, is_late):
    """Killed in the middle of it; `is_late`: what the first had still written down arrives after the second has begun."""
    command = commands.issue(connection, BACK, clock()).command
    trainer.report(command.command_id, S.RUNNING).open_segment(2, 8, command_id=command.command_id)
    again = Trainer(connection, clock, incarnation="life-2", segment=2)
    if not is_late:
        trainer.send()
    clock.advance(5)
    again.start(SegmentCause.ROLLBACK, 8, command_id=command.command_id).report(command.command_id, S.SUCCEEDED, 8).send()
    if is_late:
        trainer.send()
    (_, segment) = segments.read_segments(connection, "run")
    assert (segment.incarnation, segment.from_step, state_of(connection, command)) == ("life-2", 8, S.SUCCEEDED)
    assert (runs_store.get(connection, "run").segment, runs_store.get(connection, "run").step) == (2, 8)
    with pytest.raises(Invalid, match="another incarnation"):
        Trainer(connection, clock, incarnation="life-3", segment=2).start(SegmentCause.RESTART, 8).send()


def test_a_later_process_that_brings_a_command_to_its_end_has_as_long_for_it_as_the_first(connection, trainer, clock):
    """A stop that the process before had begun and not said to be begun; the script still saves at its end, for minutes."""
    command = commands.issue(connection, STOP, clock()).command
    trainer.report(command.command_id, S.DELIVERED).send()
    clock.advance(5)
    again = Trainer(connection, clock, incarnation="life-2", segment=2).start(SegmentCause.RESTART, 8)
    again.report(command.command_id, S.RUNNING, 8).send()
    assert reports.expire_due(connection, clock.advance(AFTER_RESTART.total_seconds() + 60)) == 0
    again.report(command.command_id, S.SUCCEEDED, 8).send()
    ended = store.read_command(connection, "run", command.command_id)
    assert (ended.state, ended.outcome) == (S.SUCCEEDED, "")


@pytest.mark.parametrize("word", [S.DELIVERED, S.REJECTED])
def test_nothing_else_a_later_process_says_of_it_counts(connection, trainer, clock, word):
    command = commands.issue(connection, BACK, clock()).command
    clock.advance(5)
    Trainer(connection, clock, incarnation="life-2", segment=2).start(SegmentCause.RESTART, 8).report(
        command.command_id, word
    ).send()
    assert state_of(connection, command) is S.QUEUED


def test_a_restart_ends_what_was_meant_for_the_life_before(connection, trainer, clock):
    command = commands.issue(connection, STOP, clock()).command
    clock.advance(1)
    again = Trainer(connection, clock, incarnation="life-2", segment=2).start(SegmentCause.RESTART, from_step=8)
    assert again.take(1, 1).commands == ()
    assert reports.expire_due(connection, clock.advance(AFTER_RESTART.total_seconds() - 1)) == 0, "its journal may be read yet"
    assert reports.expire_due(connection, clock.advance(1)) == 1
    assert state_of(connection, command) is S.EXPIRED


def test_a_restart_in_the_middle_of_a_rollback_leaves_it_unconfirmed_and_the_way_free_for_the_next(connection, trainer, clock):
    command = commands.issue(connection, BACK, clock()).command
    trainer.report(command.command_id, S.RUNNING).send()
    clock.advance(1)
    Trainer(connection, clock, incarnation="life-2", segment=2).start(SegmentCause.RESTART, from_step=8).send()
    assert state_of(connection, command) is S.UNCONFIRMED
    assert commands.issue(connection, replace(STOP, idempotency_key="key-9", seen_segment=2), clock()).created
    trainer.report(command.command_id, S.SUCCEEDED, 8).send()  # what the dead process had still written down
    assert state_of(connection, command) is S.SUCCEEDED


def test_a_rollback_stays_running_while_its_own_segment_opens(connection, trainer, clock):
    command = commands.issue(connection, BACK, clock()).command
    trainer.report(command.command_id, S.RUNNING)
    trainer.open_segment(2, 8, command_id=command.command_id, checkpoint_id="c1-8").send()
    assert state_of(connection, command) is S.RUNNING
    trainer.report(command.command_id, S.SUCCEEDED, 8).send()
    assert state_of(connection, command) is S.SUCCEEDED
    again = commands.issue(connection, replace(BACK, idempotency_key="key-9", seen_segment=2), clock()).command
    assert again.rollback.new_segment == 3


@pytest.mark.parametrize(("word", "end"), [(S.DELIVERED, S.EXPIRED), (S.RUNNING, S.UNCONFIRMED)])
def test_the_end_of_the_run_ends_its_command(connection, trainer, clock, word, end):
    command = commands.issue(connection, STOP, clock()).command
    trainer.report(command.command_id, word).end().send()
    assert state_of(connection, command) is end


def test_a_repeated_report_is_told_once(connection, trainer, clock):
    command = commands.issue(connection, STOP, clock()).command
    for _ in range(3):
        trainer.report(command.command_id, S.DELIVERED)
    trainer.send()
    assert len(data_of(connection, "command.delivered")) == 1


def test_two_active_commands_of_a_run_cannot_be_stored(connection, trainer, clock):
    command = commands.issue(connection, STOP, clock()).command
    twin = replace(command, command_id="c_twin", idempotency_key="key-twin")
    assert store.add_command(connection, twin) is False
    assert store.add_command(connection, replace(twin, state=S.CANCELLED)) is True


def test_clicks_at_the_same_moment_make_one_command(database, clock):
    def prepare(connection):
        Trainer(connection, clock).start().log(1, loss=1.0).send()

    database.writer.submit(prepare)
    made = []

    def click(who, key):
        new = replace(STOP, issued_by=who, idempotency_key=key)
        made.append(database.writer.submit(lambda connection: commands.issue(connection, new, clock())))

    threads = [threading.Thread(target=click, args=(f"p{n}", f"key-{n}")) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(made) == 20
    assert len({each.command.command_id for each in made}) == 1
    assert sum(each.created for each in made) == 1


def at_once(servers, clock, number):
    """The same click on each server at the same moment."""
    made, start = [], threading.Barrier(len(servers))

    def click(server, key):
        start.wait(60)
        new = replace(STOP, idempotency_key=key)
        made.append(server.writer.submit(lambda connection: commands.issue(connection, new, clock())))

    threads = [threading.Thread(target=click, args=(server, f"key-{number}-{n}")) for n, server in enumerate(servers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return made


def test_clicks_on_two_server_processes_make_one_command(new_database_url, clock):
    url = new_database_url("postgresql")
    servers = [Database.open(url), Database.open(url)]
    try:
        servers[0].migrate()
        servers[0].writer.submit(lambda connection: Trainer(connection, clock).start().log(1, loss=1.0).send())
        for number in range(10):
            made = at_once(servers, clock, number)
            assert len(made) == 2
            (command_id,) = {each.command.command_id for each in made}
            servers[0].writer.submit(partial(commands.cancel, run_id="run", command_id=command_id, by=Hand("ann"), now=clock()))
        with servers[1].reading() as connection:
            assert connection.execute(sa.select(sa.func.count()).select_from(commands_table)).scalar() == 10
    finally:
        for server in servers:
            server.close()


@pytest.mark.parametrize(("word", "after"), [("delivered", S.DELIVERED), ("running", S.RUNNING)])
def test_a_command_that_the_agent_had_when_the_server_went_away_waits_for_its_word(connection, trainer, clock, word, after):
    command = commands.issue(connection, STOP, clock()).command
    trainer.report(command.command_id, word).send()
    clock.advance(3600)
    runs.give_grace(connection, clock())
    assert reports.expire_due(connection, clock()) == 0
    assert store.read_command(connection, "run", command.command_id).state is after
    assert reports.expire_due(connection, clock.advance(60)) == 1

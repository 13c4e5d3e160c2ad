import json

import pytest

from trainer_agent.commands import journal
from trainer_agent.commands.going_on import Candidate, NothingFit, choose
from trainer_agent.commands.journal import Begun, Ended, Intent, Journal, JournalState, Opened, Overrides, Point, Result
from trainer_agent.wire.commands import Command, RollbackPayload
from trainer_agent.wire.messages import CheckpointSaved
from trainer_agent.wire.vocabulary import CheckpointState, CommandKind, CommandState

PAYLOAD = RollbackPayload("checkpoint-20", 20, 2)


def command(kind=CommandKind.STOP, name="c1", payload=None) -> Command:
    return Command(name, kind, "i1", 1, 600.0, 600.0, rollback=payload)


def intent(kind=CommandKind.STOP, name="c1", payload=None) -> Intent:
    return Intent(command(kind, name, payload), 40, 1000.0, 1600.0)


ROLLBACK = intent(CommandKind.ROLLBACK, payload=PAYLOAD)
DONE = Result("c1", CommandState.SUCCEEDED, 41)


def test_what_was_begun_is_in_the_file_before_it_is_done_and_its_result_after(tmp_path):
    book = Journal.open(tmp_path, "run")
    book.note(Begun(ROLLBACK))
    assert Journal.open(tmp_path, "run").state.intent == ROLLBACK
    book.note(Ended(DONE))
    again = Journal.open(tmp_path, "run").state
    assert (again.intent, again.result) == (None, DONE)


def test_a_command_begun_twice_keeps_its_first_intent():
    first = journal.step(JournalState("run"), Begun(ROLLBACK))
    second = journal.step(first, Begun(Intent(ROLLBACK.command, 99, 2000.0, 2600.0)))
    assert second == first


def test_the_end_of_another_command_leaves_the_one_that_was_begun():
    state = journal.step(JournalState("run"), Begun(ROLLBACK))
    assert journal.step(state, Ended(Result("c9", CommandState.FAILED, 41))).intent == ROLLBACK


def test_a_segment_opened_twice_is_one_point():
    state = JournalState("run")
    for _ in range(2):
        state = journal.step(state, Opened(Point(2, 20, "checkpoint-20"), Overrides(0.5, None), lead=12))
    assert state.points == (Point(2, 20, "checkpoint-20"),)
    assert (state.overrides, state.longest_lead) == (Overrides(0.5, None), 12)


@pytest.mark.parametrize(
    ("now", "in_time"), [(1000.0, True), (1599.0, True), (1600.0, False), (10.0, False), (float("nan"), False)]
)
def test_what_is_done_late_or_by_a_clock_that_was_set_back_is_not_done(now, in_time):
    assert intent().is_in_time(now) is in_time


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"run_id": 3}', b"\xff\xfe", b'{"intent": {"command": {}}}', b"[" * 9999]
)
def test_a_journal_that_cannot_be_read_is_kept_aside_and_said_and_an_empty_one_goes_on(tmp_path, capsys, content):
    (tmp_path / journal.FILE_NAME).write_bytes(content)
    book = Journal.open(tmp_path, "run")
    assert book.state == JournalState("run")
    assert (tmp_path / "journal.json.unreadable-1").read_bytes() == content
    assert "journal.json cannot be read" in capsys.readouterr().err
    book.note(Begun(ROLLBACK))
    assert Journal.open(tmp_path, "run").state.intent == ROLLBACK


def test_the_journal_of_another_run_is_not_taken_up(tmp_path):
    Journal.open(tmp_path, "run").note(Begun(ROLLBACK))
    assert Journal.open(tmp_path, "other").state == JournalState("other")


def test_what_a_newer_agent_adds_to_the_file_does_no_harm(tmp_path):
    Journal.open(tmp_path, "run").note(Begun(ROLLBACK))
    path = tmp_path / journal.FILE_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | {"novelty": [1]}))
    assert Journal.open(tmp_path, "run").state.intent == ROLLBACK


def test_a_journal_that_cannot_be_written_says_so_and_an_end_is_known_all_the_same(tmp_path):
    book = Journal.open(tmp_path / "file" / "x", "run")
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OSError):
        book.note(Begun(ROLLBACK))
    assert book.state.intent is None
    book.note_anyway(Ended(DONE))
    assert book.state.result == DONE


def test_a_folder_of_the_first_version_goes_on_from_where_its_pointer_says(tmp_path):
    (tmp_path / "resume.json").write_text('{"checkpoint": "checkpoint-20"}')
    state = Journal.open(tmp_path, "run", 3).state
    assert going_on(state, ((1, 10), (2, 20), (3, 40))).directory.name == "checkpoint-20"
    (tmp_path / "resume.json").write_text("nonsense")
    assert Journal.open(tmp_path, "run", 3).state == JournalState("run")


# --- where to go on


def candidates(*found):
    return [Candidate(_path(step), step, segment, None) for segment, step in found]


def _path(step):
    from pathlib import Path

    return Path(f"checkpoint-{step}")


def going_on(state, found, unfit=()):
    def examine(candidate):
        facts = CheckpointSaved(candidate.directory.name, candidate.segment, candidate.step, 0.0, CheckpointState.COMPLETE)
        return facts, "it is bad" if candidate.step in unfit else ""

    return choose(state, candidates(*found), examine)


def test_a_restart_goes_on_from_the_newest_of_the_stretch_the_run_went_on_with():
    state = JournalState("run", points=(Point(1, 0), Point(2, 20)))
    found = ((1, 10), (1, 20), (1, 30), (1, 900), (2, 25))
    assert going_on(state, found).directory.name == "checkpoint-25"
    assert going_on(state, found, unfit=(25,)).directory.name == "checkpoint-20"


def test_a_restart_in_the_middle_of_a_rollback_goes_on_from_its_target():
    state = JournalState("run", intent=ROLLBACK, points=(Point(1, 0),))
    chosen = going_on(state, ((1, 10), (1, 20), (1, 30)))
    assert (chosen.directory.name, chosen.ends) == ("checkpoint-20", ROLLBACK)


def test_a_damaged_target_is_passed_over_for_an_older_one_and_ends_no_rollback():
    state = JournalState("run", intent=ROLLBACK, points=(Point(1, 0),))
    chosen = going_on(state, ((1, 10), (1, 20), (1, 30)), unfit=(20,))
    assert (chosen.directory.name, chosen.ends) == ("checkpoint-10", None)
    assert chosen.passed_over == ("checkpoint-20: it is bad",)


def test_where_there_is_nothing_a_restart_begins_anew_and_where_nothing_is_fit_it_says_why():
    assert going_on(JournalState("run"), ()).directory is None
    with pytest.raises(NothingFit, match="checkpoint-30: it is bad; checkpoint-20: it is bad"):
        going_on(JournalState("run"), ((1, 20), (1, 30)), unfit=(20, 30))
    with pytest.raises(NothingFit, match="checkpoint-30: a rollback has left it behind"):
        going_on(JournalState("run", points=(Point(2, 20),)), ((1, 30),))


def test_a_segment_number_decides_before_a_step_does():
    state = JournalState("run", points=(Point(1, 0), Point(2, 5), Point(3, 7)))
    assert going_on(state, ((1, 4), (2, 7), (3, 8), (2, 9), (1, 99))).directory.name == "checkpoint-8"

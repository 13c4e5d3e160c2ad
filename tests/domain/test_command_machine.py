"""The life of a command, and who may give one."""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.domain.admission import Refusal, Request, Seen, Standing, admit, default_data, says_the_same
from server.domain.commands import (
    ACTIVE,
    BY_REPORT,
    DELIVER_WITHIN,
    EXECUTE_WITHIN,
    TRANSITIONS,
    IssuedCommand,
    contradicts,
    deadline,
    may_follow,
    overdue,
)
from trainer_agent.wire.commands import RollbackPayload
from trainer_agent.wire.vocabulary import CommandKind, CommandState, DataMode, RunState

S = CommandState
ENDS = {S.SUCCEEDED, S.FAILED, S.REJECTED, S.CANCELLED, S.EXPIRED, S.SUPERSEDED}
NOW = datetime(2026, 3, 1, tzinfo=UTC)
STOP, ROLLBACK = CommandKind.STOP, CommandKind.ROLLBACK


def a_command(kind, state=S.QUEUED, checkpoint_id="c1"):
    payload = RollbackPayload(checkpoint_id, 200, 2) if kind is ROLLBACK else None
    return IssuedCommand("run", "id", kind, state, "i", 1, "", "me", payload, "", None, "key", "digest", NOW, NOW, None)


def standing(state=RunState.RUNNING, active=None, capabilities=(STOP, ROLLBACK)):
    return Standing(state, 1, frozenset(capabilities), active, incarnation="i")


def ask(kind, where, seen_segment=1, **request):
    return admit(Request(kind, **request), where, Seen(seen_segment))


def test_ends_are_final_and_only_unconfirmed_can_still_be_settled():
    assert {state for state in S if not TRANSITIONS[state]} == ENDS
    assert TRANSITIONS[S.UNCONFIRMED] == {S.SUCCEEDED, S.FAILED}


def test_every_state_is_reached_from_queued():
    reached, before = {S.QUEUED}, set()
    while reached != before:
        before, reached = reached, reached | {after for state in reached for after in TRANSITIONS[state]}
    assert reached == set(S)


def test_no_state_follows_itself_and_none_goes_back_to_queued():
    assert not [state for state in S if may_follow(state, state) or may_follow(state, S.QUEUED)]


@given(st.lists(st.sampled_from(list(S)), max_size=30))
def test_any_sequence_of_words_leads_to_at_most_one_end(words):
    state, ends = S.QUEUED, []
    for word in words:
        if may_follow(state, word):
            state = word
            ends += [word] if word in ENDS else []
    assert len(ends) <= 1


@given(st.permutations([S.DELIVERED, S.RUNNING, S.SUCCEEDED]), st.integers(0, 3))
def test_reports_that_overtake_or_repeat_each_other_end_in_the_last_truth(words, repeated):
    state = S.QUEUED
    for word in [*words, *words[:repeated]]:
        state = word if may_follow(state, word) else state
    assert state is S.SUCCEEDED


def test_only_what_is_active_has_a_deadline():
    for kind, state in product(CommandKind, S):
        assert (deadline(kind, state, NOW) is not None) == (state in ACTIVE)
    assert deadline(STOP, S.QUEUED, NOW) == NOW + DELIVER_WITHIN
    assert deadline(ROLLBACK, S.RUNNING, NOW) == NOW + EXECUTE_WITHIN[ROLLBACK]


def test_past_its_deadline_what_has_begun_is_unconfirmed_and_what_has_not_is_expired():
    assert {state: overdue(state) for state in ACTIVE} == {
        S.QUEUED: S.EXPIRED,
        S.DELIVERED: S.EXPIRED,
        S.RUNNING: S.UNCONFIRMED,
    }
    assert all(may_follow(state, overdue(state)) for state in ACTIVE)


def test_only_word_of_a_deed_contradicts_an_end_without_one():
    pairs = {(state, word) for state, word in product(S, BY_REPORT) if contradicts(state, word)}
    assert pairs == set(product((S.CANCELLED, S.EXPIRED, S.SUPERSEDED), (S.RUNNING, S.SUCCEEDED, S.FAILED)))


@pytest.mark.parametrize("state", list(RunState))
def test_a_run_that_has_ended_or_not_begun_takes_no_command(state):
    live = state in (RunState.RUNNING, RunState.PAUSED, RunState.LOST)
    assert (ask(STOP, standing(state)).refusal is None) == live


@pytest.mark.parametrize(
    ("kind", "active", "seen", "checkpoint", "expected"),
    [
        (STOP, None, 1, None, None),
        (STOP, None, 2, None, Refusal.MOVED_ON),
        (STOP, None, None, None, None),
        (STOP, a_command(STOP), 1, None, "same"),
        (STOP, a_command(STOP, S.RUNNING), 2, None, "same"),
        (STOP, a_command(ROLLBACK), 1, None, "supersedes"),
        (STOP, a_command(ROLLBACK, S.DELIVERED), 1, None, "supersedes"),
        (STOP, a_command(ROLLBACK, S.DELIVERED), 2, None, Refusal.MOVED_ON),
        (STOP, a_command(ROLLBACK, S.RUNNING), 1, None, "behind"),
        (ROLLBACK, a_command(ROLLBACK), 1, None, "same"),
        (ROLLBACK, a_command(ROLLBACK), 1, "c1", "same"),
        (ROLLBACK, a_command(ROLLBACK), 1, "c2", Refusal.ALREADY_ACTIVE),
        (ROLLBACK, a_command(STOP), 1, None, Refusal.ALREADY_ACTIVE),
    ],
)
def test_beside_an_active_command(kind, active, seen, checkpoint, expected):
    admission = ask(kind, standing(active=active), seen, checkpoint_id=checkpoint)
    found = [name for name in ("same_as", "supersedes", "behind") if getattr(admission, name)]
    got = admission.refusal or (found[0].removesuffix("_as") if found else None)
    assert got == expected


def test_what_the_integration_cannot_do_is_refused():
    assert ask(ROLLBACK, standing(capabilities=[STOP])).refusal is Refusal.NOT_CAPABLE


SAVE, PAUSE, RESUME = CommandKind.SAVE, CommandKind.PAUSE, CommandKind.RESUME
FACTOR, NORM = CommandKind.SET_LEARNING_RATE_FACTOR, CommandKind.SET_MAX_GRAD_NORM


def anything(state=RunState.RUNNING, active=None, **more):
    return replace(standing(state, active, capabilities=tuple(CommandKind)), **more)


@pytest.mark.parametrize("kind", list(CommandKind))
@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.PAUSED])
@pytest.mark.parametrize("is_lost", [False, True])
def test_only_what_goes_on_is_paused_and_only_what_is_paused_resumed(kind, state, is_lost):
    """A lost run is paused if that was the last word of it."""
    where = anything(RunState.LOST if is_lost else state, was_paused=state is RunState.PAUSED)
    expected = {
        (PAUSE, RunState.PAUSED): Refusal.ALREADY_PAUSED,
        (RESUME, RunState.RUNNING): Refusal.NOT_PAUSED,
    }
    assert ask(kind, where).refusal is expected.get((kind, state))


@pytest.mark.parametrize("kind", [kind for kind in CommandKind if kind is not STOP])
@pytest.mark.parametrize("active", [kind for kind in CommandKind if kind is not ROLLBACK])
@pytest.mark.parametrize("state", sorted(ACTIVE))
def test_beside_an_active_command_only_a_stop_is_made(kind, active, state):
    admission = ask(kind, anything(active=a_command(active, state)))
    assert (admission.refusal is Refusal.ALREADY_ACTIVE) != (kind is active)
    stop = ask(STOP, anything(active=a_command(active, state)))
    got = [bool(each) for each in (stop.same_as, stop.supersedes, stop.behind)]
    assert got == [active is STOP, active is not STOP and state is not S.RUNNING, active is not STOP and state is S.RUNNING]


def test_while_a_stop_waits_nothing_else_is_made_and_a_stop_is_that_one():
    waiting = replace(a_command(STOP), behind="x")
    where = anything(active=a_command(ROLLBACK, S.RUNNING), waiting_command=waiting)
    assert ask(STOP, where).same_as is waiting
    assert {ask(kind, where).refusal for kind in CommandKind if kind not in (STOP, ROLLBACK)} == {Refusal.ALREADY_ACTIVE}


@pytest.mark.parametrize("kind", [STOP, ROLLBACK, SAVE, FACTOR])
def test_what_was_made_for_a_process_that_is_gone_stands_in_nobodys_way(kind):
    known = a_command(STOP)
    admission = ask(kind, anything(active=known, incarnation="the next"))
    assert (admission.refusal, admission.same_as, admission.supersedes) == (None, None, known)
    running = a_command(ROLLBACK, S.RUNNING)
    assert ask(STOP, anything(active=running, incarnation="the next")).behind is running, "its journal may say how it ended"


@pytest.mark.parametrize(("seen", "moved"), [(Seen(), False), (Seen(1, "i"), False), (Seen(2), True), (Seen(1, "j"), True)])
def test_a_request_says_which_segment_and_process_its_author_saw(seen, moved):
    assert (admit(Request(SAVE), anything(), seen).refusal is Refusal.MOVED_ON) is moved


@pytest.mark.parametrize(
    ("request_", "is_same"),
    [
        (Request(ROLLBACK), True),
        (Request(ROLLBACK, "c1", DataMode.EXCLUDE, (3,), ("d",), 0.5, 1.0), True),
        (Request(ROLLBACK, data=DataMode.SKIP), False),
        (Request(ROLLBACK, exclude_samples=(4,)), False),
        (Request(ROLLBACK, exclude_documents=("e",)), False),
        (Request(ROLLBACK, learning_rate_factor=0.25), False),
        (Request(ROLLBACK, max_grad_norm=2.0), False),
    ],
)
def test_the_same_rollback_does_all_that_is_asked_for(request_, is_same):
    payload = RollbackPayload("c1", 200, 2, DataMode.EXCLUDE, None, None, (3,), ("d",), 1.0, 0.5)
    assert says_the_same(request_, replace(a_command(ROLLBACK), rollback=payload)) is is_same


def test_setting_another_value_is_another_command():
    known = replace(a_command(FACTOR), value=0.5)
    assert [says_the_same(Request(FACTOR, value=value), known) for value in (0.5, 0.25)] == [True, False]


@pytest.mark.parametrize(
    ("modes", "sick", "names", "expected"),
    [
        ((DataMode.REPLAY, DataMode.SKIP, DataMode.EXCLUDE), True, False, DataMode.SKIP),
        ((DataMode.REPLAY, DataMode.SKIP, DataMode.EXCLUDE), False, False, DataMode.REPLAY),
        ((DataMode.REPLAY, DataMode.SKIP), True, True, DataMode.EXCLUDE),
        ((DataMode.REPLAY, DataMode.SKIP), False, True, DataMode.EXCLUDE),
        ((DataMode.REPLAY,), True, False, DataMode.REPLAY),
        ((DataMode.SKIP,), False, False, DataMode.SKIP),
        ((), True, False, DataMode.REPLAY),
    ],
)
def test_what_is_done_with_the_data_where_nobody_says(modes, sick, names, expected):
    assert default_data(modes, has_sign=sick, names_samples=names) is expected

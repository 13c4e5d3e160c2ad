"""Countdowns and the guard rails of what a rule may do by itself."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.domain.countdowns import (
    MOST_ROLLBACKS,
    STEPS_BETWEEN,
    TRANSITIONS,
    UNKNOWN_SEQ,
    Cause,
    CountdownInput,
    CountdownState,
    PastRollback,
    Rails,
    decide,
    is_behind,
    is_late,
    step,
)
from server.domain.rules import Action, ActionKind
from trainer_agent.wire.vocabulary import CommandKind

STOP, ROLLBACK = Action(ActionKind.STOP), Action(ActionKind.ROLLBACK)
BOTH = frozenset(CommandKind)


def rails(capabilities=BOTH, allowed=True, target=True, past=()):
    return Rails(frozenset(capabilities), "no position", allowed, target, tuple(past))


def past(rule_id, step, series="train/loss", detector="spike"):
    return PastRollback(Cause(rule_id, series, detector), step)


def test_every_end_is_reached_by_one_input_and_is_final():
    assert set(TRANSITIONS.values()) == set(CountdownState) - {CountdownState.COUNTING}
    for state, what in product(CountdownState, CountdownInput):
        if state is not CountdownState.COUNTING:
            assert step(state, what) is state


@given(st.lists(st.sampled_from(list(CountdownInput)), min_size=1))
def test_whoever_comes_first_decides(inputs):
    state = CountdownState.COUNTING
    for what in inputs:
        state = step(state, what)
    assert state is TRANSITIONS[CountdownState.COUNTING, inputs[0]]


@pytest.mark.parametrize(
    ("action", "given_rails", "kind", "words", "breaker"),
    [
        (Action(), rails(), None, "", False),
        (STOP, rails(), CommandKind.STOP, "", False),
        (STOP, rails(capabilities=()), None, "nothing can be done", True),
        (ROLLBACK, rails(), CommandKind.ROLLBACK, "", False),
        (ROLLBACK, rails(allowed=False), CommandKind.STOP, "policy does not allow", False),
        (ROLLBACK, rails(capabilities={CommandKind.STOP}), CommandKind.STOP, "no position", False),
        (ROLLBACK, rails(target=False), CommandKind.STOP, "no sound checkpoint", False),
        (ROLLBACK, rails(target=False, capabilities={CommandKind.ROLLBACK}), None, "nothing can be done", True),
        (ROLLBACK, rails(past=[past("r", 4000)] * MOST_ROLLBACKS), CommandKind.STOP, "3 automatic rollbacks", True),
        (ROLLBACK, rails(past=[past("x", 0)] * MOST_ROLLBACKS), CommandKind.STOP, "3 automatic rollbacks", True),
        (ROLLBACK, rails(past=[past("r", 4990)], capabilities={CommandKind.ROLLBACK}), None, "10 steps ago", True),
        (ROLLBACK, rails(past=[past("r", 5000 - STEPS_BETWEEN + 1)]), CommandKind.STOP, "499 steps ago", True),
        (ROLLBACK, rails(past=[past("r", 5000 - STEPS_BETWEEN)]), CommandKind.ROLLBACK, "", False),
        (ROLLBACK, rails(past=[past("r", 4990, "train/grad_norm")]), CommandKind.ROLLBACK, "", False),
        (ROLLBACK, rails(past=[past("another", 4990, detector="threshold")]), CommandKind.ROLLBACK, "", False),
        (ROLLBACK, rails(past=[past("a-copy", 4990)]), CommandKind.STOP, "10 steps ago", True),
        (STOP, rails(past=[past("r", 4990)] * 5), CommandKind.STOP, "", False),
    ],
)
def test_a_rule_does_what_the_guard_rails_leave_and_says_so(action, given_rails, kind, words, breaker):
    decision = decide(action, Cause("r", "train/loss", "spike"), 5000, given_rails)
    assert (decision.kind, decision.breaker) == (kind, breaker)
    assert words in decision.because
    assert bool(decision.because) == bool(words)


def test_what_waited_before_it_was_sent_is_late_by_the_one_clock_of_its_process():
    assert not is_late(1000.0, 999.0)
    assert is_late(1000.0, 990.0)
    assert not is_late(1000.0, 4600.0), "a clock that jumped back hides it until the next heartbeat"
    assert not is_late(1000.0, None), "records alone are no steps"


def test_a_process_is_behind_until_what_it_said_it_had_made_is_stored():
    assert not is_behind(next_seq=1, made_seq=0)
    assert is_behind(next_seq=10, made_seq=10)
    assert not is_behind(next_seq=11, made_seq=10)
    assert is_behind(next_seq=10**9, made_seq=UNKNOWN_SEQ)

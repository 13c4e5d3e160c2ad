"""Countdowns and the guard rails of what a rule may do by itself."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.domain.countdowns import (
    MOST_ROLLBACKS,
    STEPS_BETWEEN,
    TRANSITIONS,
    CountdownInput,
    CountdownState,
    PastRollback,
    Rails,
    decide,
    step,
)
from server.domain.rules import Action, ActionKind
from trainer_agent.wire.vocabulary import CommandKind

STOP, ROLLBACK = Action(ActionKind.STOP), Action(ActionKind.ROLLBACK)
BOTH = frozenset(CommandKind)


def rails(capabilities=BOTH, allowed=True, target=True, past=()):
    return Rails(frozenset(capabilities), "no position", allowed, target, tuple(past))


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
        (ROLLBACK, rails(past=[PastRollback("r", 4000)] * MOST_ROLLBACKS), None, "3 automatic rollbacks", True),
        (ROLLBACK, rails(past=[PastRollback("x", 0)] * MOST_ROLLBACKS), None, "3 automatic rollbacks", True),
        (ROLLBACK, rails(past=[PastRollback("r", 5000 - STEPS_BETWEEN + 1)]), None, "499 steps ago", True),
        (ROLLBACK, rails(past=[PastRollback("r", 5000 - STEPS_BETWEEN)]), CommandKind.ROLLBACK, "", False),
        (ROLLBACK, rails(past=[PastRollback("another", 4990)]), CommandKind.ROLLBACK, "", False),
        (STOP, rails(past=[PastRollback("r", 4990)] * 5), CommandKind.STOP, "", False),
    ],
)
def test_a_rule_does_what_the_guard_rails_leave_and_says_so(action, given_rails, kind, words, breaker):
    decision = decide(action, "r", 5000, given_rails)
    assert (decision.kind, decision.breaker) == (kind, breaker)
    assert words in decision.because
    assert bool(decision.because) == bool(words)

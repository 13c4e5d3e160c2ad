import math

import pytest

from trainer_agent.measuring import guard
from trainer_agent.measuring.guard import DeathCause, GuardState, StepFacts, sick_because
from trainer_agent.policy import Policy
from trainer_agent.wire.vocabulary import CommandKind

OK, SKIP, BAD = 1.0, "skip", math.nan


def after(marks, start=1000, k=3, *, scaler=True) -> GuardState:
    state = GuardState()
    for at, mark in enumerate(marks, start):
        loss = 1.0 if mark == SKIP else mark
        state = guard.step(state, StepFacts(at, loss, mark == SKIP or (scaler and mark is BAD), has_scaler=scaler), k)
    return state


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_without_a_scaler_one_nonfinite_loss_is_death(loss):
    death = after([OK, loss], scaler=False).death
    assert (death.cause, death.step) == (DeathCause.LOSS, 1001)


@pytest.mark.parametrize(
    ("marks", "dead_at"),
    [
        ([SKIP], None),
        ([SKIP, SKIP], None),
        ([SKIP, SKIP, OK, SKIP, SKIP], None),
        ([BAD, BAD, OK], None),
        ([SKIP, SKIP, SKIP], 1002),
        ([BAD, BAD, BAD], 1002),
        ([OK, SKIP, BAD, SKIP, OK], 1003),
        ([SKIP] * 3 + [OK] * 5, 1002),
    ],
)
def test_with_a_scaler_only_a_streak_is_death_and_death_stays(marks, dead_at):
    death = after(marks).death
    assert (death and death.step) == dead_at
    assert death is None or death.cause is DeathCause.STREAK


@pytest.mark.parametrize(
    ("marks", "start", "dead"),
    [
        ([SKIP] * 16, 1, False),
        ([SKIP] * 17, 1, True),
        ([SKIP] * 16, 100, False),
        ([SKIP] * 3, 101, True),
        ([BAD] * 3, 1, True),
    ],
)
def test_the_search_for_a_loss_scale_at_the_start_is_no_death(marks, start, dead):
    assert (after(marks, start).death is not None) == dead


def test_a_run_without_a_loss_is_never_called_dead_for_it():
    assert guard.step(GuardState(), StepFacts(1, None), 3).death is None


@pytest.mark.parametrize(
    ("marks", "start", "sick"),
    [([OK], 1000, False), ([SKIP], 1000, False), ([SKIP, SKIP], 1000, True), ([SKIP, SKIP], 1, False), ([BAD], 1000, True)],
)
def test_a_checkpoint_is_sick_when_its_run_was(marks, start, sick):
    assert bool(sick_because(after(marks, start))) == sick


def test_nonfinite_weights_before_a_save_are_death():
    state = guard.weights_not_finite(GuardState(), 7, "wte.weight")
    assert (state.death.cause, state.death.step) == (DeathCause.WEIGHTS, 7)
    assert "dead" in sick_because(state)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"on_dead": "explode"}, "stop, hold, continue"),
        ({"hold_seconds": math.nan}, "finite number of seconds"),
        ({"hold_seconds": -1}, "0 or more"),
        ({"hold_seconds": "600"}, "finite number of seconds"),
        ({"skipped_steps": 0}, "at least 1"),
        ({"skipped_steps": True}, "at least 1"),
        ({"skipped_steps": 2.5}, "whole number"),
        ({"automatic_rollback": "yes"}, "True or False"),
        ({"obey": "stop"}, "sequence"),
        ({"obey": ("dance",)}, "stop, rollback"),
        ({"obey": None}, "sequence"),
        ({"obey": ("stop",), "automatic_rollback": True}, "needs 'rollback'"),
    ],
)
def test_a_policy_without_meaning_is_refused_with_what_has_one(wrong, says):
    with pytest.raises(ValueError, match=says):
        Policy(**wrong)


def test_the_default_policy_stops_a_dead_run_and_obeys_people():
    policy = Policy()
    assert (policy.on_dead, policy.skipped_steps, policy.automatic_rollback) == ("stop", 3, False)
    assert policy.obey == tuple(CommandKind)
    assert Policy.watch_only().obey == ()
    assert Policy(obey=["stop", CommandKind.STOP]).obey == (CommandKind.STOP,)

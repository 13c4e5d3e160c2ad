"""The table of decisions, walked over every kind of command in every standing."""

import pytest

from trainer_agent.commands.decisions import LEAVES, Act, Standing, decide
from trainer_agent.commands.journal import Overrides
from trainer_agent.measuring.guard import Death, DeathCause
from trainer_agent.policy import Policy
from trainer_agent.wire.commands import Command, RollbackPayload
from trainer_agent.wire.vocabulary import CommandKind

DEAD = Death(7, DeathCause.LOSS, "the loss is not finite")
ALL = tuple(CommandKind)
ALIVE, PAUSED, HELD = Standing(), Standing(is_paused=True), Standing(DEAD)
SETS = (CommandKind.SET_LEARNING_RATE_FACTOR, CommandKind.SET_MAX_GRAD_NORM)


def command(kind, value=None):
    payload = RollbackPayload("checkpoint-2", 2, 2) if kind is CommandKind.ROLLBACK else None
    return Command("c1", kind, "i", 1, 60.0, 60.0, rollback=payload, value=value)


def act(kind, standing, policy=None, able=ALL):
    return decide(None if kind is None else command(kind), standing, policy or Policy(), able).act


@pytest.mark.parametrize(
    ("kind", "alive", "paused", "dead"),
    [
        (CommandKind.STOP, Act.STOP, Act.STOP, Act.STOP),
        (CommandKind.ROLLBACK, Act.ROLL_BACK, Act.ROLL_BACK, Act.ROLL_BACK),
        (CommandKind.SAVE, Act.SAVE, Act.SAVE, Act.REJECT),
        (CommandKind.PAUSE, Act.PAUSE, Act.REJECT, Act.REJECT),
        (CommandKind.RESUME, Act.REJECT, Act.GO_ON, Act.REJECT),
        (CommandKind.SET_LEARNING_RATE_FACTOR, Act.SET, Act.SET, Act.SET),
        (CommandKind.SET_MAX_GRAD_NORM, Act.SET, Act.SET, Act.SET),
        (None, Act.GO_ON, Act.PAUSE, Act.STOP_DEAD),
    ],
)
def test_what_a_command_does_depends_on_how_the_run_stands(kind, alive, paused, dead):
    assert [act(kind, standing) for standing in (ALIVE, PAUSED, HELD)] == [alive, paused, dead]


@pytest.mark.parametrize("kind", ALL)
def test_a_kind_that_the_run_does_not_obey_is_rejected_however_it_stands(kind):
    others = tuple(each for each in ALL if each is not kind)
    assert {act(kind, standing, able=others) for standing in (ALIVE, PAUSED, HELD)} == {Act.REJECT}


def test_a_dead_run_is_held_or_left_alone_where_the_policy_says_so():
    assert act(None, HELD, Policy(on_dead="hold")) is Act.HOLD
    assert act(None, HELD, Policy(on_dead="continue")) is Act.GO_ON


def test_a_stop_saves_unless_the_run_is_dead_and_says_why_it_does_not():
    assert decide(command(CommandKind.STOP), ALIVE, Policy(), ALL).saves
    dead = decide(command(CommandKind.STOP), HELD, Policy(), ALL)
    assert (dead.saves, dead.reason) == (False, "nothing was saved: the loss is not finite")


def test_a_save_in_a_pause_comes_back_to_the_pause():
    assert decide(command(CommandKind.SAVE), PAUSED, Policy(), ALL).again
    assert not decide(command(CommandKind.SAVE), ALIVE, Policy(), ALL).again


@pytest.mark.parametrize(
    ("kind", "value", "then", "reason"),
    [
        (SETS[0], 0.5, Overrides(0.5, 2.0), "the learning rate is the schedule's times 0.5"),
        (SETS[0], 1.0, Overrides(None, 2.0), "the learning rate is the schedule's own"),
        (SETS[0], None, Overrides(None, 2.0), "the learning rate is the schedule's own"),
        (SETS[1], 1.0, Overrides(0.25, 1.0), "gradients are clipped at a norm of 1"),
        (SETS[1], None, Overrides(0.25, None), "gradients are clipped as the script has it"),
    ],
)
def test_a_set_changes_one_override_and_no_value_or_a_factor_of_one_gives_it_back(kind, value, then, reason):
    decision = decide(command(kind, value), Standing(overrides=Overrides(0.25, 2.0)), Policy(), ALL)
    assert (decision.overrides, decision.reason) == (then, reason)


def test_only_what_leaves_a_boundary_is_left_to_the_integration():
    assert frozenset({Act.GO_ON, Act.STOP, Act.STOP_DEAD, Act.ROLL_BACK, Act.SAVE}) == LEAVES

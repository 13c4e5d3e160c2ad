"""What a message says was done and is to do, where the cause lies in another alert or in a person's word."""

from dataclasses import replace
from datetime import timedelta

import pytest
from incidents_kit import NOW, Scene, an_alert
from judging_kit import use_rules

from server.domain.alerts import CloseReason
from server.domain.commands import Hand, IssuedCommand
from server.domain.countdowns import Countdown, CountdownState
from server.domain.holds import Hold
from server.domain.rules import Action, ActionKind, AlertRule, DetectorKind
from server.domain.wording import deeds
from server.domain.wording.advice import Situation, advice
from server.domain.wording.deeds import DeedKind, Done, deed_of
from server.services import countdowns, holds
from server.services.alert_words import Teller
from server.store import alerts as alerts_store
from server.store import commands as commands_store
from trainer_agent.wire.vocabulary import AlertState, CommandKind, CommandState, RunState, Severity

CAUSE = an_alert("nan", title="Loss is NaN", incident_id="i_1")
OTHER = an_alert("norm", incident_id="i_1")
DUE = NOW + timedelta(seconds=60)
COUNTING = Countdown(
    "run", "d_1", CountdownState.COUNTING, "rule-nan", "Rule", "a_nan", 1, Action(ActionKind.STOP, 60.0), None, None, NOW, DUE
)
OVER = replace(COUNTING, state=CountdownState.DUE, ended_at=DUE)


def the_command(state):
    later = DUE + timedelta(seconds=5)
    stop = CommandKind.STOP
    return IssuedCommand(
        "run", "c", stop, state, "i", 1, "", "rule:nan", None, "", None, "countdown:d_1", "digest", DUE, later, None
    )


def said(alert, countdown, *commands):
    done = Done((countdown,), commands, causes={"a_nan": CAUSE})
    deed = deed_of(alert, done, NOW)
    return deeds.in_words(deed)


def test_an_open_alert_says_what_is_counting_down_for_another_one():
    assert said(OTHER, COUNTING) == ("A stop is counting down for 'Loss is NaN'.", "因“Loss is NaN”，停止正在倒计时。")
    dry = replace(COUNTING, action=replace(COUNTING.action, dry_run=True))
    assert said(OTHER, dry) == (
        "A dry run of a stop is counting down for 'Loss is NaN'.",
        "因“Loss is NaN”，停止的演练正在倒计时。",
    )
    assert said(CAUSE, COUNTING)[0] == "Stop in 1 min, unless somebody cancels it."


def a_dry(state, kind=ActionKind.ROLLBACK, step=200):
    action = Action(kind, 60.0, dry_run=True)
    return replace(COUNTING, state=state, action=action, target_step=step)


@pytest.mark.parametrize(
    ("countdown", "en", "zh"),
    [
        (
            a_dry(CountdownState.COUNTING),
            "Rollback to step 200 would follow in 1 min; it is a dry run, and nothing will be sent.",
            "演练：1 分钟后本会回滚到第 200 步，不会发出指令。",
        ),
        (
            a_dry(CountdownState.DUE),
            "Would have rolled back to step 200; dry run, nothing was sent.",
            "演练：本会回滚到第 200 步，没有发出指令。",
        ),
        (
            a_dry(CountdownState.DUE, ActionKind.STOP, None),
            "Would have stopped the run; dry run, nothing was sent.",
            "演练：本会停止，没有发出指令。",
        ),
        (
            a_dry(CountdownState.CANCELLED),
            "The dry run of a rollback to step 200 was cancelled before its time.",
            "回滚到第 200 步的演练在到时之前被取消。",
        ),
        (
            a_dry(CountdownState.OVERTAKEN),
            "A person's own command took the place of the dry run of a rollback to step 200.",
            "人工指令取代了回滚到第 200 步的演练。",
        ),
    ],
)
def test_what_was_only_tried_names_the_dry_run(countdown, en, zh):
    assert said(CAUSE, countdown) == (en, zh)


@pytest.mark.parametrize(
    ("state", "en", "zh"),
    [
        (CommandState.QUEUED, "A stop for 'Loss is NaN' is on its way to the trainer.", "停止的指令正在送往训练进程。"),
        (CommandState.RUNNING, "The trainer carries out a stop for 'Loss is NaN'.", "训练进程正在停止。"),
        (CommandState.SUCCEEDED, "The run was stopped for 'Loss is NaN'.", "训练已停止。"),
    ],
)
def test_an_open_alert_says_what_became_of_the_command_for_another_one(state, en, zh):
    assert said(OTHER, OVER, the_command(state)) == (en, f"因“Loss is NaN”，{zh}")


def test_nothing_is_said_of_what_was_done_without_regard_to_the_alert():
    nothing = deeds.in_words(deeds.Deed(DeedKind.NOTHING))[0]
    over = replace(OTHER, state=AlertState.RESOLVED, closed_because=CloseReason.RECOVERED, resolved_at=NOW)
    stopped = the_command(CommandState.SUCCEEDED)
    assert said(over, COUNTING)[0] == nothing
    assert said(over, OVER, stopped)[0] == nothing, "it was over before the command was given"
    assert said(replace(OTHER, incident_id="i_2"), OVER, stopped)[0] == nothing
    assert said(replace(OTHER, incident_id=None), OVER, stopped)[0] == nothing
    assert said(replace(OTHER, trial=True), COUNTING)[0] == nothing
    assert said(OTHER, OVER, the_command(CommandState.FAILED))[0] == nothing
    assert said(replace(OTHER, onset_at=DUE + timedelta(hours=1)), OVER, stopped)[0] == nothing


NAN_STOPS = AlertRule("nan", "Loss is not finite", "Loss is NaN", "train/loss", DetectorKind.NONFINITE,
                      severity=Severity.CRITICAL, action=Action(ActionKind.STOP, 30.0))  # fmt: skip
NORM_HIGH = AlertRule("norm", "Norm is high", "Norm is high", "train/grad_norm", DetectorKind.THRESHOLD, {"above": 10.0})


def of_rule(connection, rule_id):
    return next(each for each in alerts_store.read_alerts(connection, "run") if each.rule_id == rule_id)


def test_what_was_done_and_what_to_do_next_do_not_contradict_each_other(connection, clock):
    use_rules(connection, NAN_STOPS, NORM_HIGH)
    scene = Scene(connection, clock)
    scene.trainer.log(1, loss=1.0, grad_norm=1.0).log(2, loss=float("nan"), grad_norm=50.0).send()
    words = Teller(connection, "run", clock()).in_words(of_rule(connection, "norm"))
    assert words.done[0] == "A stop is counting down for 'Loss is NaN'."
    assert words.following[0] == "Let it happen, or cancel it on the run's page."
    countdowns.run_due(connection, clock.advance(30))
    words = Teller(connection, "run", clock()).in_words(of_rule(connection, "norm"))
    assert words.done[0] == "A stop for 'Loss is NaN' is on its way to the trainer."
    assert words.following[0] == "Wait for the command that is on its way."
    (command,) = commands_store.read_commands(connection, "run")
    for state in (CommandState.DELIVERED, CommandState.RUNNING, CommandState.SUCCEEDED):
        scene.trainer.report(command.command_id, state, 3)
    scene.trainer.send()
    words = Teller(connection, "run", clock()).in_words(of_rule(connection, "norm"))
    assert words.done == ("The run was stopped for 'Loss is NaN'.", "因“Loss is NaN”，训练已停止。")


def test_while_a_dry_run_counts_down_a_person_is_told_what_to_do_by_hand(connection, clock):
    use_rules(connection, replace(NAN_STOPS, action=Action(ActionKind.STOP, 30.0, dry_run=True)))
    scene = Scene(connection, clock)
    scene.trainer.log(1, loss=1.0).log(2, loss=float("nan")).send()
    (event,) = scene.told()
    assert event.data["done"] == "Stop would follow in 30 s; it is a dry run, and nothing will be sent."
    assert event.data["next"].startswith("Nothing happens by itself: what counts down is a dry run. Look at what was read in")
    assert event.data["zh"]["next"].startswith("不会自动处置：正在倒计时的是演练。请查看")
    countdowns.run_due(connection, clock.advance(30))
    words = Teller(connection, "run", clock()).in_words(of_rule(connection, "nan"))
    assert words.done[0] == "Would have stopped the run; dry run, nothing was sent."
    assert words.following[0].startswith("Look at what was read in")


@pytest.mark.parametrize("kind", [ActionKind.STOP, ActionKind.ROLLBACK])
def test_a_hold_is_named_where_a_rule_would_have_acted(connection, clock, kind):
    use_rules(connection, replace(NAN_STOPS, action=Action(kind, 30.0)), NORM_HIGH)
    scene = Scene(connection, clock)
    scene.trainer.log(1, loss=1.0, grad_norm=1.0).send()
    hold = holds.put(connection, "run", Hand("mlops"), clock(), hours=2, reason="I am looking at it.")
    until = f"{hold.until:%Y-%m-%d %H:%M} UTC"
    scene.trainer.log(2, loss=float("nan"), grad_norm=50.0).send()
    (event,) = scene.told()
    assert event.data["done"] == f"Held by mlops until {until}: I am looking at it."
    assert event.data["next"] == "Lift the hold, or act by hand."
    assert event.data["zh"]["done"] == f"mlops 已暂缓自动处置，至 {until}：I am looking at it。"
    assert event.data["zh"]["next"] == "请解除暂缓，或手动处理。"
    words = Teller(connection, "run", clock()).in_words(of_rule(connection, "norm"))
    assert words.done[0] == "Nothing was done automatically.", "its rule only tells"
    holds.lift(connection, "run", Hand("mlops"), clock())
    assert "Held" not in Teller(connection, "run", clock()).in_words(of_rule(connection, "nan")).done[0]


def test_a_hold_that_came_after_the_countdown_does_not_promise_that_lifting_it_acts(connection, clock):
    use_rules(connection, NAN_STOPS)
    scene = Scene(connection, clock)
    scene.trainer.log(1, loss=1.0).log(2, loss=float("nan")).send()
    holds.put(connection, "run", Hand("mlops"), clock(), hours=2, reason="mine")
    words = Teller(connection, "run", clock()).in_words(of_rule(connection, "nan"))
    assert words.done[0].startswith("The stop was called off")
    assert "hold" not in words.following[0]


def test_a_long_reason_is_cut():
    deed = deed_of(CAUSE, Done(), NOW, Hold("mlops", NOW, DUE, "长" * 2000))
    assert all(len(said) < 300 for said in deeds.in_words(deed))


LIVE = Situation(RunState.RUNNING, target_step=4750, can_roll_back=True, has_samples=True)
TOO_LOW = an_alert("a", detector="threshold", evidence={"below": 2.0})
TOO_HIGH = an_alert("a", detector="threshold", evidence={"above": 2.0})


@pytest.mark.parametrize(
    ("alert", "en", "zh"),
    [
        (TOO_LOW, "if it does not come back by itself", "如果不自行恢复"),
        (TOO_HIGH, "if it does not come down by itself", "如果不自行回落"),
        (an_alert("a", detector="spike"), "if it does not come down by itself", "如果不自行回落"),
        (an_alert("a", detector="nonfinite"), "if it does not come back by itself", "如果不自行恢复"),
    ],
)
@pytest.mark.parametrize("situation", [LIVE, replace(LIVE, target_step=None)])
def test_only_what_is_too_high_is_waited_for_to_come_down(alert, situation, en, zh):
    said = advice(alert, situation)
    assert en in said[0]
    assert zh in said[1]


@pytest.mark.parametrize("onset", [0, 1])
def test_one_step_is_not_called_a_range(onset):
    early = an_alert("a", onset_step=onset)
    assert advice(early, LIVE)[0].startswith("Look at the samples of step 1; ")
    assert advice(early, LIVE)[1].startswith("请查看第 1 步的样本；")
    assert advice(early, replace(LIVE, has_samples=False))[0].startswith("Look at what was read in step 1; ")


def test_a_message_carries_the_id_of_the_rule_beside_its_name_and_with_each_alert(connection, clock):
    use_rules(connection, NAN_STOPS, NORM_HIGH)
    scene = Scene(connection, clock)
    scene.endpoint()
    scene.trainer.log(1, loss=1.0, grad_norm=1.0).log(2, loss=float("nan"), grad_norm=50.0).send()
    scene.later(minutes=1)
    sent = {body["type"]: body["data"] for _, _, body in scene.sent}
    told = sent["incident.firing"]
    assert (told["rule"], told["rule_id"]) == ("Loss is not finite", "nan")
    assert [each["rule_id"] for each in told["alerts"]] == ["nan", "norm"]
    assert sent["countdown.started"]["rule_id"] == "nan"

"""What an endpoint is told beside incidents: countdowns, commands and ends, in its language, on both databases."""

import re
from dataclasses import replace

import pytest
from incidents_kit import Scene
from judging_kit import LOSS_HIGH, use_rules

from server.domain.commands import Hand
from server.domain.events import EventType
from server.domain.rules import Action, ActionKind
from server.services import commands, countdowns, webhooks
from server.services.commands import NewCommand
from server.store import commands as commands_store
from server.store import events as events_store
from trainer_agent.wire.messages import ResumeChecked, RunEnded, SaveFailed, Unable
from trainer_agent.wire.vocabulary import CheckpointState, CommandKind, CommandState, EndReason, Severity

ROLLBACK = replace(LOSS_HIGH, title="Loss high", action=Action(ActionKind.ROLLBACK, 30.0))
S = CommandState


@pytest.fixture
def scene(connection, clock):
    made = Scene(connection, clock)
    for language in ("en", "zh"):
        made.endpoint(language, Severity.INFO, language)
    return made


def said(scene, kind):
    """Title and text of the newest message of a kind, by language."""
    scene.later(seconds=1)
    bodies = {name: body["data"] for _, name, body in scene.sent if body["type"] == kind}
    assert not any("zh" in each for each in bodies.values()), "each endpoint is told in one language"
    return {name: (data["title"], data["text"]) for name, data in bodies.items()}


def in_trouble(scene, rule=ROLLBACK):
    use_rules(scene.connection, rule)
    scene.trainer.log(3, loss=1.0).save(4).log(5, loss=1.0).send()
    scene.trainer.log(6, loss=20.0).send()


ALERT = "train/loss is 20, above the limit of 10, since step 6", "train/loss 为 20，高于上限 10，自第 6 步起"


def test_a_countdown_is_told_in_the_endpoints_language(scene):
    in_trouble(scene)
    assert said(scene, "countdown.started") == {
        "en": ("Loss high: countdown", f"rollback to step 4 in 30 s unless cancelled: {ALERT[0]}"),
        "zh": ("Loss high：倒计时", f"30 秒后回滚到第 4 步，除非有人取消：{ALERT[1]}"),
    }


def test_a_dry_run_is_told_as_one_in_the_endpoints_language(scene):
    in_trouble(scene, replace(ROLLBACK, action=replace(ROLLBACK.action, dry_run=True)))
    assert said(scene, "countdown.started")["zh"] == (
        "Loss high：演练",
        f"演练：30 秒后本会回滚到第 4 步，什么都不会做：{ALERT[1]}",
    )
    countdowns.run_due(scene.connection, scene.clock.advance(30))
    (ended,) = events_store.newest(scene.connection, "run", (EventType.COUNTDOWN_ENDED,), limit=1)
    assert ended.event.data["outcome"] == "dry run: it would have rolled back to step 4, nothing was sent"
    assert ended.event.data["zh"]["outcome"] == "演练：本会回滚到第 4 步，没有发出指令"


def test_a_guard_rail_that_limits_a_countdown_is_named_in_the_endpoints_language(scene):
    use_rules(scene.connection, ROLLBACK)
    scene.trainer.log(6, loss=20.0).send()
    assert (
        said(scene, "countdown.started")["zh"][1]
        == f"30 秒后停止，除非有人取消（最早征兆之前没有健全的检查点，因此停止）：{ALERT[1]}"
    )


def test_the_call_for_a_person_says_why_in_the_endpoints_language(scene):
    scene.trainer.record(Unable("rollback under DeepSpeed or FSDP is not supported yet", 0.0, 5)).send()
    in_trouble(scene)
    scene.later(minutes=2)
    told = next(body["data"] for _, name, body in scene.sent if name == "zh" and body["type"] == "incident.firing")
    why = "尚不支持 DeepSpeed 或 FSDP 下的回滚"
    because = f"该训练不能回滚（{why}），因此停止；这里做不了什么：{why}"
    assert f"自动处置已停止，需要人来处理。{because}。{ALERT[1]}" in [each["text"] for each in told["alerts"]]


def given(scene, kind, **more):
    new = NewCommand("run", kind, f"key-{kind}", "ann", **more)
    return commands.issue(scene.connection, new, scene.clock()).command


@pytest.mark.parametrize(
    ("kind", "value", "state", "reason", "en", "zh"),
    [
        (CommandKind.STOP, None, S.SUCCEEDED, "", ("Stop succeeded", "Stop succeeded"), ("停止：已成功", "停止：已成功")),
        (
            CommandKind.SAVE,
            None,
            S.FAILED,
            "it was not begun: the run is dead: killed",
            ("Save failed", "Save failed: it was not begun: the run is dead: killed"),
            ("立即保存：失败", "立即保存：失败。没有开始：训练已死：被强制终止"),
        ),
        (
            CommandKind.SET_LEARNING_RATE_FACTOR,
            0.5,
            S.SUCCEEDED,
            "the learning rate is the schedule's times 0.5 from step 8 on",
            (
                "Set learning rate factor succeeded",
                "Set learning rate factor to 0.5 succeeded: the learning rate is the schedule's times 0.5 from step 8 on",
            ),
            ("学习率：已成功", "学习率 ×0.5：已成功。从第 8 步起学习率 ×0.5"),
        ),
        (
            CommandKind.SET_MAX_GRAD_NORM,
            1.0,
            S.FAILED,
            "OSError: something of the machine's",
            ("Set max grad norm failed", "Set max grad norm to 1 failed: OSError: something of the machine's"),
            ("裁剪：失败", "裁剪到 1：失败。OSError: something of the machine's"),
        ),
    ],
)
def test_what_became_of_a_command_is_told_in_the_endpoints_language(scene, kind, value, state, reason, en, zh):
    command = given(scene, kind, **({} if value is None else {"value": value}))
    for each, why in ((S.DELIVERED, ""), (S.RUNNING, ""), (state, reason)):
        scene.trainer.report(command.command_id, each, 7, why)
    scene.trainer.send()
    assert said(scene, f"command.{state}") == {"en": en, "zh": zh}
    (event,) = events_store.newest(scene.connection, "run", (EventType(f"command.{state}"),), limit=1)
    assert (event.event.data["reason"], event.event.data["zh"]["text"]) == (reason, zh[1])


def test_a_rollback_names_its_step_and_one_that_was_left_behind_says_why(scene):
    scene.trainer.log(3, loss=1.0).save(4).log(5, loss=1.0).send()
    command = given(scene, CommandKind.ROLLBACK)
    for state in (S.DELIVERED, S.RUNNING):
        scene.trainer.report(command.command_id, state, 5)
    scene.trainer.end(EndReason.FAILED).send()
    why = "the run ended without a word on it"
    assert said(scene, "command.unconfirmed") == {
        "en": ("Rollback unconfirmed", f"Rollback to step 4 unconfirmed: {why}"),
        "zh": ("回滚：未确认", "回滚到第 4 步：未确认。训练已结束，没有报告结果"),
    }


@pytest.mark.parametrize(
    ("reason", "detail", "kind", "en", "zh"),
    [
        (EndReason.FINISHED, "", "finished", ("Run finished", "Finished"), ("训练完成", "训练完成")),
        (EndReason.FAILED, "killed", "failed", ("Run failed", "Failed: killed"), ("训练失败", "训练失败：被强制终止")),
        (EndReason.FAILED, "OSError", "failed", ("Run failed", "Failed: OSError"), ("训练失败", "训练失败：OSError")),
        (EndReason.STOPPED_BY_COMMAND, "", "stopped", ("Run stopped", "Stopped by command"), ("训练停止", "已按指令停止")),
        (
            EndReason.STOPPED_BY_GUARD,
            "16 steps in a row without an update, since step 50",
            "stopped",
            ("Run stopped", "Stopped by guard: 16 steps in a row without an update, since step 50"),
            ("训练停止", "已由守护停止：自第 50 步起连续 16 步没有更新"),
        ),
    ],
)
def test_how_a_run_ended_is_told_in_the_endpoints_language(scene, reason, detail, kind, en, zh):
    scene.trainer.record(RunEnded(reason, 0.0, 9, detail)).send()
    assert said(scene, f"run.{kind}") == {"en": en, "zh": zh}


def test_a_run_that_a_rule_stopped_says_so_by_its_alert(scene):
    in_trouble(scene, replace(ROLLBACK, action=Action(ActionKind.STOP, 30.0)))
    countdowns.run_due(scene.connection, scene.clock.advance(30))
    (command,) = commands_store.read_commands(scene.connection, "run")
    scene.trainer.record(RunEnded(EndReason.STOPPED_BY_COMMAND, 0.0, 9, command.reason)).send()
    assert said(scene, "run.stopped") == {
        "en": ("Run stopped", f"Stopped by command: {ALERT[0]}"),
        "zh": ("训练停止", f"已按指令停止：{ALERT[1]}"),
    }


def test_what_is_found_of_earlier_processes_and_of_checkpoints_is_told_in_the_endpoints_language(scene):
    scene.trainer.record(SaveFailed(12, 0.0, "No space left on device"))
    scene.trainer.save(16, state=CheckpointState.CORRUPT, problem="model.safetensors is missing")
    scene.trainer.record(
        ResumeChecked(1, 8, 20, 0.0, ("loss 3 where it was 2", "other batches than before: 2 of 9 steps, the first is 8"))
    )
    scene.trainer.send()
    assert said(scene, "checkpoint.save_failed")["zh"] == ("检查点没能保存", "第 12 步的检查点没能保存：No space left on device")
    assert said(scene, "checkpoint.changed")["zh"] == ("检查点损坏", "第 16 步的检查点损坏：缺少 model.safetensors")
    found = "损失为 3，原为 2；批次与之前不同：9 步中有 2 步，最先是第 8 步"
    assert said(scene, "run.resume_checked")["zh"] == ("恢复检查", f"从第 8 步恢复：{found}")
    english = "Resumed at step 8: loss 3 where it was 2; other batches than before: 2 of 9 steps, the first is 8"
    assert said(scene, "run.resume_checked")["en"] == ("Resume checked", english)


def test_a_process_that_was_called_killed_and_lives_is_told_in_the_endpoints_language(scene):
    scene.trainer.record(RunEnded(EndReason.FAILED, 0.0, 9, "killed")).send()
    scene.trainer.log(10, loss=1.0).send()
    assert said(scene, "run.lives") == {
        "en": ("Not killed after all", "It was not killed: it is heard again"),
        "zh": ("并未被终止", "进程并未被终止：又收到它的消息"),
    }


def test_a_test_is_told_in_the_endpoints_language(scene):
    endpoint = next(each for each in webhooks.store.endpoints(scene.connection) if each.language == "zh")
    webhooks.test(scene.connection, endpoint.webhook_id, "ann", scene.clock())
    assert said(scene, "webhook.test") == {"zh": ("测试消息", "Webhook zh 的测试消息，由 ann 发送。")}


def test_a_person_who_says_no_is_named_in_both_languages(scene):
    in_trouble(scene)
    countdowns.cancel(scene.connection, "run", Hand("ann"), scene.clock())
    (ended,) = events_store.newest(scene.connection, "run", (EventType.COUNTDOWN_ENDED,), limit=1)
    assert (ended.event.data["outcome"], ended.event.data["zh"]["outcome"]) == ("cancelled by ann", "由 ann 取消")


def test_nothing_that_is_sent_in_chinese_holds_words_of_the_english_tables(scene):
    in_trouble(scene)
    scene.later(minutes=2)
    texts = [
        body["data"][name]
        for _, language, body in scene.sent
        if language == "zh"
        for name in ("text", "done", "next")
        if name in body["data"]
    ]
    left = {word for text in texts for word in re.findall(r"[A-Za-z]{2,}", text.replace("train/loss", ""))}
    assert texts
    assert left == set()

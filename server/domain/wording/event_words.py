"""What is told of what happens beside alerts: title and text of an event, one entry for each in every language.

`told` gives them as the event's data hold them. The Chinese of commands, their states and the ends of runs is that of the page.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from server.domain.events import EventType
from trainer_agent.wire.vocabulary import CommandKind, CommandState, EndReason

from .words import Both, Value, by_language, filled

_T = EventType
TITLES: Final[Mapping[EventType, Both]] = {
    _T.RUN_FINISHED: ("Run finished", "训练完成"),
    _T.RUN_FAILED: ("Run failed", "训练失败"),
    _T.RUN_STOPPED: ("Run stopped", "训练停止"),
    _T.RUN_INCARNATION_ENDED: ("Earlier process ended", "上一个进程已结束"),
    _T.RUN_LIVES: ("Not killed after all", "并未被终止"),
    _T.RUN_RESUME_CHECKED: ("Resume checked", "恢复检查"),
    _T.CHECKPOINT_CHANGED: ("Checkpoint corrupt", "检查点损坏"),
    _T.CHECKPOINT_SAVE_FAILED: ("Checkpoint not saved", "检查点没能保存"),
    _T.COUNTDOWN_STARTED: ("{rule}: {name}", "{rule}：{name}"),
    _T.RULE_FAILED: ("Rule failed", "规则出错"),
    _T.WEBHOOK_TEST: ("Test message", "测试消息"),
}
TEXTS: Final[Mapping[EventType, Both]] = {
    _T.RUN_STARTED: ("Started[ on {host}][ {again}]", "训练[{again}]开始[，主机 {host}]"),
    _T.RUN_LOST: ("No word since {since} UTC", "自 {since} UTC 起没有消息"),
    _T.RUN_FOUND: ("Heard again", "训练恢复联系"),
    _T.RUN_PAUSED: ("Paused", "训练暂停"),
    _T.RUN_RESUMED: ("Goes on", "训练继续"),
    _T.RUN_FINISHED: ("{How}[: {detail}]", "{how}[：{detail}]"),
    _T.RUN_FAILED: ("{How}[: {detail}]", "{how}[：{detail}]"),
    _T.RUN_STOPPED: ("{How}[: {detail}]", "{how}[：{detail}]"),
    _T.RUN_INCARNATION_ENDED: (
        "An earlier process of this run ended[ at step {step}]: {how}[: {detail}]",
        "上一个进程已结束[（第 {step} 步）]：{how}[：{detail}]",
    ),
    _T.RUN_LIVES: ("{Who} was not killed: it is heard again", "{who}并未被终止：又收到它的消息"),
    _T.RUN_RESUME_CHECKED: ("Resumed at step {step}: {found}", "从第 {step} 步恢复：{found}"),
    _T.CHECKPOINT_CHANGED: ("The checkpoint of step {step} is corrupt: {reason}", "第 {step} 步的检查点损坏：{reason}"),
    _T.CHECKPOINT_SAVE_FAILED: (
        "The checkpoint of step {step} could not be saved: {reason}",
        "第 {step} 步的检查点没能保存：{reason}",
    ),
    _T.RULE_FAILED: (
        "The rule {rule} is judged no more until it is changed: {reason}",
        "规则“{rule}”出错，修改之前不再判断：{reason}",
    ),
    _T.WEBHOOK_TEST: ("A test of the endpoint {name}, asked for by {by}.", "Webhook {name} 的测试消息，由 {by} 发送。"),
}
# These fill places of the texts above.
AGAIN: Final[Both] = ("again", "再次")
THE_PROCESS: Final[Both] = ("it", "进程")
AN_EARLIER_PROCESS: Final[Both] = ("an earlier process", "上一个进程")
COUNTDOWN_NAME: Final[Both] = ("countdown", "倒计时")
DRY_RUN_NAME: Final[Both] = ("dry run", "演练")
NO_LINK: Final[Both] = (
    "The page is on the server's own machine; set LOSSGUARD_PUBLIC_URL to get a link here.",
    "页面在服务器本机上；设置 LOSSGUARD_PUBLIC_URL 后，这里会有链接。",
)
COUNTDOWN: Final[Both] = (
    "{what} in {seconds} s unless cancelled[ ({because})]: {alert}",
    "{seconds} 秒后{what}，除非有人取消[（{because}）]：{alert}",
)
DRY_RUN: Final[Both] = (
    "dry run: {what} would follow in {seconds} s, and nothing is done[ ({because})]: {alert}",
    "演练：{seconds} 秒后本会{what}，什么都不会做[（{because}）]：{alert}",
)
SAME_AS_BEFORE: Final[Both] = ("goes on as it was ({steps} steps compared)", "与之前一致（对比了 {steps} 步）")
ENDS: Final[Mapping[EndReason, Both]] = {
    EndReason.FINISHED: ("finished", "训练完成"),
    EndReason.FAILED: ("failed", "训练失败"),
    EndReason.STOPPED_BY_COMMAND: ("stopped by command", "已按指令停止"),
    EndReason.STOPPED_BY_GUARD: ("stopped by guard", "已由守护停止"),
}
COMMANDS: Final[Mapping[CommandKind, Both]] = {
    CommandKind.STOP: ("Stop", "停止"),
    CommandKind.ROLLBACK: ("Rollback[ to step {step}]", "回滚[到第 {step} 步]"),
    CommandKind.SAVE: ("Save", "立即保存"),
    CommandKind.PAUSE: ("Pause", "暂停"),
    CommandKind.RESUME: ("Resume", "继续"),
    CommandKind.SET_LEARNING_RATE_FACTOR: ("Set learning rate factor[ to {value}]", "学习率[ ×{value}]"),
    CommandKind.SET_MAX_GRAD_NORM: ("Set max grad norm[ to {value}]", "裁剪[到 {value}]"),
}
STATES: Final[Mapping[CommandState, Both]] = {
    CommandState.QUEUED: ("queued", "已排队"),
    CommandState.DELIVERED: ("delivered", "已送达"),
    CommandState.RUNNING: ("running", "执行中"),
    CommandState.SUCCEEDED: ("succeeded", "已成功"),
    CommandState.FAILED: ("failed", "失败"),
    CommandState.UNCONFIRMED: ("unconfirmed", "未确认"),
    CommandState.REJECTED: ("rejected", "被拒绝"),
    CommandState.CANCELLED: ("cancelled", "已取消"),
    CommandState.EXPIRED: ("expired", "已过期"),
    CommandState.SUPERSEDED: ("superseded", "被取代"),
}
COMMAND_TITLE: Final[Both] = ("{command} {state}", "{command}：{state}")
COMMAND_TEXT: Final[Both] = ("{command} {state}[: {reason}]", "{command}：{state}[。{reason}]")


def told(kind: EventType, words: Mapping[str, Both] | None = None, **facts: Value) -> dict[str, Any]:
    """Title and text of an event, filled with its facts; `words` stand beside them or in their place."""
    own = {name: filled(table[kind], **facts) for name, table in (("title", TITLES), ("text", TEXTS)) if kind in table}
    return by_language(**own | dict(words or {}))


def countdown_text(order: Both, seconds: float, because: Both, alert: Both, *, dry_run: bool) -> Both:
    """What a countdown that begins says: what follows, when, what of the guard rails limits it, and for which alert."""
    facts = {"what": order, "alert": alert, "because": because if because[0] else None}
    return filled(DRY_RUN if dry_run else COUNTDOWN, seconds=f"{seconds:g}", **facts)


def resumed(steps: int, findings: Sequence[Both]) -> Both:
    """What the first steps after a resume look like beside the stored curve."""
    if not findings:
        return filled(SAME_AS_BEFORE, steps=steps)
    return "; ".join(each[0] for each in findings), "；".join(each[1] for each in findings)


def command_told(kind: CommandKind, state: CommandState, step: int | None, value: float | None, reason: Both) -> dict[str, Any]:
    """What became of a command: `step` is where a rollback goes, `value` what is set."""
    whole = filled(COMMANDS[kind], step=step, value=None if value is None else f"{value:g}")
    title = filled(COMMAND_TITLE, command=filled(COMMANDS[kind]), state=STATES[state])
    text = filled(COMMAND_TEXT, command=whole, state=STATES[state], reason=reason if reason[0] else None)
    return by_language(title=title, text=text, reason=reason)

"""What to do next about an alert: short, concrete, and only what is so. A rollback is named only where one can be made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from server.domain.alerts import Alert, CloseReason
from server.domain.checkpoints import LOOK_BACK_STEPS
from server.domain.inhibition import is_loss
from server.domain.runs import ENDED
from trainer_agent.wire.vocabulary import RunState

from .words import Both, filled


@dataclass(frozen=True, slots=True)
class Situation:
    """What of the run decides what can be done now."""

    state: RunState
    target_step: int | None = None
    """Of the checkpoint that a rollback would go to: sound, older than the first sign."""
    can_roll_back: bool = False
    has_samples: bool = False
    """Whether it is recorded which samples each step has read."""
    is_counting: bool = False
    is_dry_run: bool = False
    """What counts down only says what it would do."""
    is_commanded: bool = False
    is_held: bool = False
    """The rule would act, and a person holds what is automatic."""
    forbids_rollback: bool = False
    """The rule asks for a rollback, and the run's policy allows none that nobody has ordered."""


_OVER: Final[Mapping[CloseReason, Both]] = {
    CloseReason.RECOVERED: ("Nothing, as long as it stays away.", "无需处理，除非再次出现。"),
    CloseReason.REWOUND: ("Watch whether it comes back.", "请留意它是否再次出现。"),
    CloseReason.RULE_CHANGED: (
        "Nothing: the rule was changed, and fires by itself if its new condition holds.",
        "无需处理：规则已修改，新条件成立时会自行触发。",
    ),
}
_OF_KIND: Final[Mapping[str, Both]] = {
    "plateau": ("Check the learning rate and the data before more time goes into it.", "继续训练之前，请检查学习率和数据。"),
    "frozen": (
        "See whether this value is still measured: one that stands still tells nothing.",
        "请检查这个数值是否仍在测量：不变的数值说明不了任何问题。",
    ),
    "zero": (
        "See whether all labels are masked, the data set is empty, or a filter writes 0 for NaN.",
        "请检查标签是否全被屏蔽、数据集是否为空，或是否有过滤器把 NaN 记成了 0。",
    ),
    "discontinuity": (
        "See whether optimizer, schedule and place in the data came back with the weights.",
        "请检查优化器、学习率计划和数据位置是否随权重一起恢复。",
    ),
    "slowdown": ("Look at the data loader, and at what else runs on the machine.", "请检查数据加载，以及机器上的其他任务。"),
    "creep": (
        "Look for tensors that are kept from step to step: it ends when the memory is full.",
        "请查找逐步累积而未释放的张量：内存耗尽时训练会中断。",
    ),
    "straggler": (
        "Look at the machine of that rank: its temperature, its clock, other work on it.",
        "请检查该进程所在的机器：温度、频率和其他任务。",
    ),
    "lost": ("See whether the process and its machine still run.", "请检查训练进程及其机器是否仍在运行。"),
    "stalled": (
        "See where the process hangs: `py-spy dump --pid` prints its stack.",
        "请查看进程卡在哪里：`py-spy dump --pid` 会打印调用栈。",
    ),
    "ended": ("Read the last lines of the trainer's own log.", "请查看训练程序自己的日志的最后几行。"),
    "skip_share": (
        "Look at the loss scale: it may start or grow too high for this model.",
        "请检查损失缩放：它的初值或增长对这个模型可能过高。",
    ),
}
_TRIAL: Final[Both] = (
    "Nothing: the rule is on trial. See whether it was right before you let it speak.",
    "无需处理：该规则正在试用。启用之前，请先看它判断得是否正确。",
)
_COMMANDED: Final[Both] = ("Wait for the command that is on its way.", "请等待正在执行的指令。")
_HELD: Final[Both] = ("Lift the hold, or act by hand.", "请解除暂缓，或手动处理。")
_COUNTING: Final[Both] = ("Let it happen, or cancel it on the run's page.", "等待执行，或在训练页面上取消。")
_DRY_RUN: Final[Both] = (
    "Nothing happens by itself: what counts down is a dry run. {by_hand}",
    "不会自动处置：正在倒计时的是演练。{by_hand}",
)
_FORBIDDEN: Final[Both] = (
    "The run's policy allows no automatic rollback, which the rule asks for: it is stopped instead, unless somebody cancels.",
    "该训练的策略不允许规则要求的自动回滚：将改为停止训练，除非有人取消。",
)
_FINISHED: Final[Both] = ("Check the result before you use it.", "使用结果之前请先检查。")
_FIND_THE_CAUSE: Final[Both] = (
    "Find the cause before you start again: there is no sound checkpoint to go on from.",
    "重新开始之前请先找到原因：没有健全的检查点可以继续。",
)
_START_AGAIN: Final[Both] = ("Start again from the sound checkpoint of step {step}.", "请从第 {step} 步的健全检查点重新开始。")

_STEP: Final[Both] = ("step {last}", "{last}")
_STEPS: Final[Both] = ("steps {first}-{last}", "{first}-{last}")
_LOOK_AT_SAMPLES: Final[Both] = ("Look at the samples of {steps}; {way_back}", "请查看第 {steps} 步的样本；{way_back}")
_LOOK_AT_DATA: Final[Both] = ("Look at what was read in {steps}; {way_back}", "请查看第 {steps} 步读入的数据；{way_back}")
_COMES_DOWN: Final[Both] = ("if it does not come down by itself", "如果不自行回落")
_COMES_BACK: Final[Both] = ("if it does not come back by itself", "如果不自行恢复")
_STOP_AT_ONCE: Final[Both] = (
    "there is no sound checkpoint older than the first sign: stop the run.",
    "最早征兆之前没有健全的检查点：请停止训练。",
)
_STOP: Final[Both] = ("{unless}, stop the run.", "{unless}，请停止训练。")
_STOP_AND_START: Final[Both] = (
    "a sound checkpoint is {step}: stop the run and start again from it.",
    "健全的检查点在第 {step} 步：请停止训练并从那里重新开始。",
)
_ROLL_BACK_AT_ONCE: Final[Both] = ("a sound checkpoint is {step}: roll back.", "健全的检查点在第 {step} 步：请回滚。")
_ROLL_BACK: Final[Both] = ("{unless}, roll back to the sound checkpoint {step}.", "{unless}，请回滚到第 {step} 步的健全检查点。")

_RISING: Final = frozenset({"spike", "ramp", "divergence", "consecutive_rise"})
_DEAD: Final = frozenset({"skip_streak", "loss_scale"})
"""With these, and a loss that is not finite, nothing more is learnt: waiting cures nothing."""


def advice(alert: Alert, situation: Situation) -> Both:
    """What to do next, in both languages."""
    if alert.trial or situation.state in ENDED:
        return _TRIAL if alert.trial else _after_the_end(situation)
    if alert.closed_because is not None and alert.closed_because in _OVER:
        return _OVER[alert.closed_because]
    if (in_hand := _in_hand(situation)) is not None:
        return in_hand
    by_hand = _OF_KIND.get(alert.detector) or _look_and_act(alert, situation)
    return filled(_DRY_RUN, by_hand=by_hand) if situation.is_dry_run else by_hand


def _in_hand(situation: Situation) -> Both | None:
    """What there is to do where something is on its way already, or is kept from it."""
    if situation.is_counting:
        return _FORBIDDEN if situation.forbids_rollback else _COUNTING
    if situation.is_commanded:
        return _COMMANDED
    return _HELD if situation.is_held else None


def _after_the_end(situation: Situation) -> Both:
    if situation.state is RunState.FINISHED:
        return _FINISHED
    if situation.target_step is None:
        return _FIND_THE_CAUSE
    return filled(_START_AGAIN, step=situation.target_step)


def _look_and_act(alert: Alert, situation: Situation) -> Both:
    """Where to look, and which way there is back. The data that did it come before the sign."""
    first, last = max(1, alert.onset_step - LOOK_BACK_STEPS), max(1, alert.onset_step)
    steps = filled(_STEP if first == last else _STEPS, first=first, last=last)
    look = _LOOK_AT_SAMPLES if situation.has_samples else _LOOK_AT_DATA
    return filled(look, steps=steps, way_back=_way_back(alert, situation))


def _way_back(alert: Alert, situation: Situation) -> Both:
    step, unless = situation.target_step, _unless_it_heals(alert)
    is_dead = alert.detector in _DEAD or (alert.detector == "nonfinite" and is_loss(alert.series))
    if step is None:
        return _STOP_AT_ONCE if is_dead else filled(_STOP, unless=unless)
    if not situation.can_roll_back:
        return filled(_STOP_AND_START, step=step)
    return filled(_ROLL_BACK_AT_ONCE if is_dead else _ROLL_BACK, unless=unless, step=step)


def _unless_it_heals(alert: Alert) -> Both:
    """What is too high comes down by itself; all else can only come back."""
    if alert.detector in _RISING or (alert.detector == "threshold" and "below" not in alert.evidence):
        return _COMES_DOWN
    return _COMES_BACK

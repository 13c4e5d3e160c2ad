"""Clauses that are stored in English alone: why a command ended so, why a checkpoint is unsound, how a countdown or a run ended.

Most come from the trainer, which speaks no other language, and all of them stand in rows that were written before this table: so
they are known by how they read. What is not known here stays as it is, such as the message of an operating system or what a
person wrote. Places named `why` and `because` hold another clause, `kind` and `parts` a word. `tests/incidents` fails for a
clause that nobody says any more.
"""

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Final

from .deeds import dry_run_in_words
from .event_words import COMMANDS, ENDS
from .words import PLACE, Both, fill, filled

MOST_CHARACTERS: Final = 500
"""A longer text is no clause of these."""

WORDS: Final[Mapping[str, str]] = {
    **{kind.value: filled(words)[1] for kind, words in COMMANDS.items()},
    "model": "模型",
    "optimizer": "优化器",
    "scaler": "缩放器",
}
"""Of commands, and of what a checkpoint holds."""

OF_ENDS: Final[Mapping[str, str]] = {
    "killed": "被强制终止",
    "left before its end": "未到结尾就离开",
    "the loss is not finite at step {step}, and no loss scaler protects": "第 {step} 步的损失不是有限值，且没有损失缩放器保护",
    "{count} steps in a row without an update, since step {step}": "自第 {step} 步起连续 {count} 步没有更新",
    "the weights are not finite before the save at step {step} ({tensor})": "第 {step} 步保存之前，权重不是有限值（{tensor}）",
    **dict(ENDS.values()),
    "{why}; held for {seconds} s and told nothing": "{why}；等待 {seconds} 秒后没有指令",
    "no word since {time} UTC": "自 {time} UTC 起没有消息",
}
OF_ABILITIES: Final[Mapping[str, str]] = {
    "the script's policy obeys no command": "脚本的策略不执行任何指令",
    "the script's policy does not obey {kinds}": "脚本的策略不执行：{kinds}",
    "the callback alone cannot roll back: use guarded_train(trainer) in place of trainer.train()": (
        "仅有回调不能回滚：请用 guarded_train(trainer) 代替 trainer.train()"
    ),
    "rollback under DeepSpeed or FSDP is not supported yet": "尚不支持 DeepSpeed 或 FSDP 下的回滚",
    "several processes under DeepSpeed or FSDP cannot be told together yet": "尚不能同时指挥 DeepSpeed 或 FSDP 下的多个进程",
    "save_only_model=True leaves optimizer, scaler and RNG out of the checkpoints": (
        "save_only_model=True 使检查点不含优化器、缩放器和随机状态"
    ),
    "ignore_data_skip=True would start the epoch's data again": "ignore_data_skip=True 会从头读取本轮数据",
    "the data set is iterable, so its order cannot be changed": "数据集是可迭代的，次序无法改变",
    "dispatch_batches=True reads the data in one process, and their order cannot be changed": (
        "dispatch_batches=True 在一个进程里读取数据，次序无法改变"
    ),
    "what more can be done with the data is known once the loop has begun": "循环开始后才知道对数据还能做什么",
    "the script takes its batches itself (run.steps), so what is in them is not known": (
        "脚本自行取批次（run.steps），其中的内容无从得知"
    ),
    "the ranks cannot agree any more: {why}": "各进程无法再协同：{why}",
}
OF_CHECKPOINTS: Final[Mapping[str, str]] = {
    "step {step}: {why}": "第 {step} 步：{why}",
    "weights and optimizer finite": "权重和优化器为有限值",
    "weights and optimizer finite, scaler present": "权重和优化器为有限值，含缩放器",
    "weights or optimizer not checked": "权重或优化器未经检查",
    "{count} weights are not finite": "{count} 个权重不是有限值",
    "{count} optimizer values are not finite": "{count} 个优化器数值不是有限值",
    "holds no {parts}, so a rollback would not be exact": "缺少{parts}，回滚不会精确",
    "saved while the run was dead: {why}": "保存时训练已死：{why}",
    "the loss was not finite for {count} steps up to the save": "保存之前连续 {count} 步损失不是有限值",
    "the last {count} steps before the save were skipped": "保存之前连续跳过 {count} 步",
    "saved {count} steps after the first sign ({step})": "保存于最早征兆（{step}）之后 {count} 步",
    "not older than the first sign ({step})": "不早于最早征兆（{step}）",
    "{count} steps before the first sign ({step}): what made it may be in these weights already": (
        "最早征兆（{step}）之前 {count} 步：起因可能已在这些权重里"
    ),
    "a rollback has left its stretch behind": "所在的一段已被取代",
    "older than the target (step {step})": "早于目标（第 {step} 步）",
    "its directory is gone": "目录已不存在",
    "removed, because {count} are kept and newer ones are as good": "已删除：保留 {count} 个，较新的同样好",
    "there are no weights in it": "其中没有权重",
    "{file} is missing": "缺少 {file}",
    "{file} has changed since it was saved": "{file} 在保存之后被改动",
    "{file} cannot be understood": "{file} 无法识别",
    "{file} cannot be read ({error})": "{file} 无法读取（{error}）",
    "cannot be read: {error}": "无法读取：{error}",
    "{file} does not get to the disk ({error})": "{file} 没能写到磁盘（{error}）",
    "{file} is cut off or no torch file": "{file} 被截断，或不是 torch 文件",
    "{file} has {size} bytes where its header wants {wanted}": "{file} 有 {size} 字节，按文件头应为 {wanted} 字节",
    "it was not begun: {why}": "没有开始：{why}",
}
OF_RESUMES: Final[Mapping[str, str]] = {
    "scaler not restored: there was a loss scale, and there is none": "损失缩放器未恢复：原来有损失缩放，现在没有",
    "scaler not restored: loss scale {now} where it was {then}": "损失缩放器未恢复：损失缩放为 {now}，原为 {then}",
    "other batches than before: {count} of {of} steps, the first is {step}": (
        "批次与之前不同：{of} 步中有 {count} 步，最先是第 {step} 步"
    ),
    "learning rate {now} where it was {then}, at step {step}": "第 {step} 步的学习率为 {now}，原为 {then}",
    "learning rate {now} right after {then}": "学习率紧接 {then} 之后为 {now}",
    "loss not finite in {count} of {of} steps where it was": "{of} 步中有 {count} 步的损失不是有限值，原来是",
    "loss {now} where it was {then}": "损失为 {now}，原为 {then}",
    "vocabulary differs: {now}, and the checkpoint was saved with {then}": "词表不同：现为 {now}，检查点保存时为 {then}",
}
OF_COMMANDS: Final[Mapping[str, str]] = {
    "nothing was saved: {why}": "没有保存检查点：{why}",
    "stopped; nothing was saved: {why}": "已停止；没有保存检查点：{why}",
    "paused at step {step}": "停在第 {step} 步",
    "goes on at step {step}": "从第 {step} 步继续",
    "the learning rate is the schedule's own from step {step} on": "从第 {step} 步起学习率按调度",
    "the learning rate is the schedule's times {factor} from step {step} on": "从第 {step} 步起学习率 ×{factor}",
    "gradients are clipped as the script has it from step {step} on": "从第 {step} 步起按脚本裁剪",
    "gradients are clipped at a norm of {norm} from step {step} on": "从第 {step} 步起裁剪到 {norm}",
    "this run does not obey {kind}": "这个训练不执行“{kind}”",
    "the run is not paused": "训练没有暂停",
    "the run is paused already": "训练已经暂停",
    "the run is dead: {why}": "训练已死：{why}",
    "made for another process of this run": "是给这个训练的另一个进程的",
    "made for segment {segment}; the run is in segment {now}": "是给第 {segment} 段的，训练现在第 {now} 段",
    "came after its time": "送达时已过期",
    "the training ended before the next step boundary": "训练在下一个步间之前结束",
    "the training ended before it was done": "训练在完成之前结束",
    "the training ended: {why}": "训练已结束：{why}",
    "the process that had begun it ended before it was done": "开始执行的进程在完成之前结束",
    "the process that had begun it ended before it was done, and its time is over": "开始执行的进程在完成之前结束，且已过期",
    "the process that had begun it ended, and its target is not fit any more: {why}": (
        "开始执行的进程已结束，目标也不再可用：{why}"
    ),
    "the command does not say where to go back to": "指令没有说明回到哪里",
    "{checkpoint} is no checkpoint of this run that has been verified": "{checkpoint} 不是这个训练经过核验的检查点",
    "{checkpoint} is gone from the disk": "{checkpoint} 已不在磁盘上",
    "{checkpoint} is of step {step}, the rollback wants step {wanted}": "{checkpoint} 是第 {step} 步的，回滚要求第 {wanted} 步",
    "{checkpoint} is not sound: {why}": "{checkpoint} 不健全：{why}",
    "the trainer did not fetch it in time": "训练进程没有及时取走",
    "the trainer fetched it and did not say in time that it began": "训练进程已取走，但没有及时说已开始",
    "the trainer began and never said how it ended": "训练进程已开始，但没有报告结果",
    "the trainer started again in segment {segment} before it said how it ended": (
        "训练在第 {segment} 段重新开始，之前没有报告结果"
    ),
    "the run ended without a word on it": "训练已结束，没有报告结果",
    "the run ended before it was begun": "训练在开始执行之前结束",
    "the run went on in segment {segment} before it was begun": "训练在开始执行之前进入第 {segment} 段",
    "replaced by a {kind} of {who}": "被 {who} 的“{kind}”取代",
    "cancelled by {who}": "由 {who} 取消",
}
OF_COUNTDOWNS: Final[Mapping[str, str]] = {
    "rollback to step {step} given": "已发出回滚到第 {step} 步的指令",
    "{kind} given": "已发出“{kind}”指令",
    "not done: {why}": "没有执行：{why}",
    "{who} said now": "{who} 要求立即执行",
    "{who} gave the command {kind}": "{who} 发出了“{kind}”指令",
    "the alert is over": "告警已解除",
    "the alert was rewound": "告警随回滚解除",
    "the rule was changed": "规则已修改",
    "the run has ended": "训练已结束",
    "the run went on in segment {segment}": "训练已进入第 {segment} 段",
    "{who} holds automatic actions: {reason}": "{who} 暂缓了自动处置：{reason}",
    "the rule {rule} acts, and this was a dry run": "规则“{rule}”将会处置，而这是演练",
    **dict(dry_run_in_words(step, is_rollback=back) for step, back in (("{step}", True), (None, True), (None, False))),
    "dry run: nothing would have been done": "演练：本不会做什么",
    "waits for a backlog of the run: what it is like now is not known": "等待积压的记录：训练的现状未知",
    "waits: the condition does not hold at the newest step": "等待：最新一步不符合条件",
    "waits for a {kind}": "等待“{kind}”完成",
    "the run's policy does not allow automatic rollbacks": "该训练的策略不允许自动回滚",
    "the run cannot roll back ({why})": "该训练不能回滚（{why}）",
    "there is no sound checkpoint older than the first sign": "最早征兆之前没有健全的检查点",
    "{why}, so it is stopped": "{why}，因此停止",
    "this integration cannot be stopped": "此接入方式不能停止",
    "{count} automatic rollbacks have not cured this run, and no more than {most} are made": (
        "{count} 次自动回滚没有解决问题，最多 {most} 次"
    ),
    "the same rule had the run rolled back {ago} steps ago, and it is done once in {steps} steps": (
        "同一规则在 {ago} 步之前回滚过，每 {steps} 步只做一次"
    ),
    "nothing can be done from here: {why}": "这里做不了什么：{why}",
    "{because}; nothing can be done from here: {why}": "{because}；这里做不了什么：{why}",
    "{because} ({why})": "{because}（{why}）",
}
CLAUSES: Final[Mapping[str, str]] = {**OF_ENDS, **OF_ABILITIES, **OF_CHECKPOINTS, **OF_RESUMES, **OF_COMMANDS, **OF_COUNTDOWNS}
"""English, Chinese. The first that fits is taken, so the more special one comes first."""


def clause(text: str) -> Both:
    """The clause as it is stored, and in Chinese where it is known."""
    return text, in_chinese(text)


@lru_cache(maxsize=1024)
def in_chinese(text: str) -> str:
    """The clause in Chinese, or as it is; several, each by itself.

    Cached, or a clause within others would be looked at once for each it may stand in.
    """
    if len(text) > MOST_CHARACTERS:
        return text
    for pattern, chinese in _patterns():
        found = pattern.fullmatch(text)
        parts = {} if found is None else {name: _part(name, value) for name, value in found.groupdict().items()}
        if found is not None and None not in parts.values():
            return fill(chinese, parts)
    several = text.split("; ")
    said = [in_chinese(each) for each in several] if len(several) > 1 else several
    return text if said == several else "；".join(said)


def _part(name: str, value: str) -> str | None:
    """What fills a place in Chinese; None where it must be known and is not, so the clause only seems to fit."""
    if name == "parts":
        words = [WORDS.get(each) for each in value.split(" and no ")]
        return None if None in words else "和".join(each for each in words if each)
    if name == "kind":
        return WORDS.get(value)
    if name == "because" and in_chinese(value) == value:
        return None
    return in_chinese(value) if name in ("because", "why") else value


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((_pattern(english), chinese) for english, chinese in CLAUSES.items())


def _pattern(english: str) -> re.Pattern[str]:
    words = PLACE.split(english)
    held = "".join(re.escape(word) if at % 3 == 0 else f"(?P<{word}>.+?)" for at, word in enumerate(words) if at % 3 < 2)
    return re.compile(held, re.DOTALL)

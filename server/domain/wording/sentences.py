"""What an alert says: one sentence for each detector, in every language, made of the figures that the detector gave.

The places are the names of `Verdict.evidence`, and `series`, `value` and `limit`; how they are written is in `words`. Every
figure may be NaN or infinite. A new detector is one more entry here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from .facts import Facts
from .words import LANGUAGES, Both, Value, fill


def _nothing(_: Facts) -> Mapping[str, Value]:
    return {}


@dataclass(frozen=True, slots=True)
class Sentence:
    """The sentence in English and in Simplified Chinese. `more` gives what the figures do not say as they are."""

    en: str
    zh: str
    more: Callable[[Facts], Mapping[str, Value]] = _nothing


def _side(f: Facts) -> Mapping[str, Value]:
    return {"side": ("below", "低于下限") if f.has("below") else ("above", "高于上限")}


def _times(f: Facts) -> Mapping[str, Value]:
    """How many times the median, where that says something; else the median itself."""
    middle = f.evidence.get("median")
    if middle is None or middle <= 0 or f.limit is None:
        return {"middle": middle}
    return {"times": f.value / middle, "most": f.limit / middle}


def _counts(f: Facts) -> Mapping[str, Value]:
    """A count of 0 is not worth a word."""
    return {name: f.evidence.get(name) or None for name in ("found", "zeros")}


_DOING: Final[Mapping[str, Both]] = {
    "starting": ("it is starting", "正在启动"),
    "evaluating": ("it is evaluating", "正在评估"),
    "saving": ("it is saving", "正在保存"),
    "rolling_back": ("it is rolling back", "正在回滚"),
    "ending": ("it is ending", "正在结束"),
}
_ENDS: Final[Mapping[str, Both]] = {
    "failed": ("has failed", "训练失败"),
    "stopped": ("was stopped", "训练被停止"),
    "finished": ("has come to its end", "训练已正常结束"),
}


def _doing(f: Facts) -> Mapping[str, Value]:
    return {"doing": next((words for name, words in _DOING.items() if f.has(name)), None)}


def _how(f: Facts) -> Mapping[str, Value]:
    return {"how": next((words for name, words in _ENDS.items() if f.has(name)), ("has ended", "训练已结束"))}


SENTENCES: Final[Mapping[str, Sentence]] = {
    "threshold": Sentence(
        "{series} is {value:unit}, {side} the limit of {limit:unit}",
        "{series} 为 {value:unit}，{side} {limit:unit}",
        _side,
    ),
    "nonfinite": Sentence(
        "{series} is {value}[, {found} times within {of} points]",
        "{series} 为 {value}[，{of} 个点内出现 {found} 次]",
    ),
    "consecutive_rise": Sentence(
        "{series} rose {rises} times in a row, from {start} to {value}",
        "{series} 连续上升 {rises} 次，从 {start} 到 {value}",
    ),
    "spike": Sentence(
        "{series} is {value}[ = {times:2}x the median of the last {points} points, limit {most:2}x]"
        "[, the median of the last {points} points {middle}]",
        "{series} 为 {value}[，是最近 {points} 个点中位数的 {times:2} 倍，上限 {most:2} 倍]"
        "[，最近 {points} 个点的中位数为 {middle}]",
        _times,
    ),
    "ramp": Sentence(
        "{series} is {value}; its short median rose {rises} times in a row, from {start} to {level}, limit {limit}",
        "{series} 为 {value}；其短期中位数连续上升 {rises} 次，从 {start} 到 {level}，上限 {limit}",
    ),
    "divergence": Sentence(
        "{series} is {value}; the median of the last {points} points is {level}, against {best} at its best[, limit {limit}]",
        "{series} 为 {value}；最近 {points} 个点的中位数为 {level}，最好时为 {best}[，上限 {limit}]",
    ),
    "plateau": Sentence(
        "{series} is {value} after {points} points and nothing was learnt: it began at {first}, its lowest was {lowest}, "
        "limit {limit}",
        "{series} 在 {points} 个点之后为 {value}，没有学到东西：开始时为 {first}，最低为 {lowest}，上限 {limit}",
    ),
    "frozen": Sentence(
        "{series} has stood still at {value} for {points} points",
        "{series} 已连续 {points} 个点停在 {value}",
    ),
    "zero": Sentence(
        "{series} is {value}[; {zeros} points in a row are 0][; {found} of the last {of} points are too low to be real]",
        "{series} 为 {value}[；连续 {zeros} 个点为 0][；最近 {of} 个点中有 {found} 个低得不可能是真的]",
        _counts,
    ),
    "loss_scale": Sentence(
        "{series} has fallen[ from {maximum}] to {value}, limit {limit}",
        "{series} 已[从 {maximum} ]降到 {value}，下限 {limit}",
    ),
    "skip_streak": Sentence(
        "{streak} optimizer steps in a row were skipped by the loss scaler ({series})",
        "损失缩放器连续跳过 {streak} 个优化步（{series}）",
    ),
    "skip_share": Sentence(
        "{skips} of the last {window} optimizer steps were skipped by the loss scaler ({series})"
        "[, {share:share} in the long run]",
        "最近 {window} 个优化步中有 {skips} 个被损失缩放器跳过（{series}）[，较长时间内占 {share:share}]",
    ),
    "discontinuity": Sentence(
        "{series} is about {level} after the run was taken up again, where {expected} was expected, limit {limit}",
        "恢复训练后 {series} 约为 {level}，按之前的走势应为 {expected}，限值 {limit}",
    ),
    "slowdown": Sentence(
        "{series} has been about {level:unit} for {points} points, against {usual:unit} before, limit {limit:unit}",
        "{series} 已连续 {points} 个点约为 {level:unit}，之前为 {usual:unit}，限值 {limit:unit}",
    ),
    "creep": Sentence(
        "{series} keeps growing: from {start:unit} to {level:unit} within {points} points"
        "[; at this pace it is used up in {left} points]",
        "{series} 持续增长：在 {points} 个点内从 {start:unit} 增至 {level:unit}[；照此速度再过 {left} 个点就会用尽]",
    ),
    "straggler": Sentence(
        "rank {rank} takes {value:unit} by itself ({series}), against {others:unit} on the other ranks, limit {limit:unit}",
        "进程 {rank} 自身用时 {value:unit}（{series}），其他进程为 {others:unit}，上限 {limit:unit}",
    ),
    "lost": Sentence(
        "no word from the trainer for {value:time}[, limit {limit:time}]",
        "已有 {value:time}没有训练进程的消息[，上限 {limit:time}]",
    ),
    "stalled": Sentence(
        "no new step for {value:time}[, limit {limit:time}][ (a step comes every {median:2} s)], while the trainer is heard"
        "[: {doing}]",
        "已有 {value:time}没有新的一步[，上限 {limit:time}][（平时每 {median:2} 秒一步）]，但训练进程仍有心跳[：{doing}]",
        _doing,
    ),
    "ended": Sentence("the training {how}", "{how}", _how),
}
"""By the value of `DetectorKind`."""
FALLBACK: Final = Sentence("{series} is {value}[, limit {limit}]", "{series} 为 {value}[，限值 {limit}]")
"""Of an alert whose detector this code does not know (any more)."""
_WHERE: Final[Both] = ("[ on rank {on_rank}], since step {onset_step}", "[（进程 {on_rank}）]，自第 {onset_step} 步起")


def sentence(detector: str, facts: Facts, language: str = "en") -> str:
    """The series, its value, the limit and how it was found, on which rank, and since which step."""
    known = SENTENCES.get(detector, FALLBACK)
    said: dict[str, Value] = {"series": facts.series, "value": facts.value, "limit": facts.limit}
    where: dict[str, Value] = {"on_rank": facts.rank if facts.rank > 0 else None, "onset_step": facts.onset_step}
    text = f"{getattr(known, language)}{_WHERE[LANGUAGES.index(language)]}"
    return fill(text, {**facts.evidence, **known.more(facts), **said, **where}, language, facts.series)

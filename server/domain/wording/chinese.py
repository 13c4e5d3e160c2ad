"""One sentence for each detector, in Simplified Chinese. Series names stay as they are."""

from collections.abc import Mapping

from .english import Sentence
from .facts import Facts
from .numbers import number, parts, quantity, share


def duration(seconds: float) -> str:
    """A time as a person says it."""
    hours, minutes, rest = parts(seconds)
    if hours:
        return f"{hours} 小时 {minutes} 分" if minutes else f"{hours} 小时"
    if minutes:
        return f"{minutes} 分 {rest} 秒" if rest else f"{minutes} 分钟"
    return f"{rest} 秒"


def where(facts: Facts) -> str:
    """On which rank, and since when."""
    rank = f"（进程 {facts.rank}）" if facts.rank > 0 else ""
    return f"{rank}，自第 {facts.onset_step} 步起"


def _threshold(f: Facts) -> str:
    side = "低于下限" if f.has("below") else "高于上限"
    return f"{f.series} 为 {quantity(f.value, f.series)}，{side} {quantity(f.limit, f.series)}"


def _nonfinite(f: Facts) -> str:
    found, of = f.evidence.get("found"), f.evidence.get("of")
    many = "" if found is None else f"，{number(of)} 个点内出现 {number(found)} 次"
    return f"{f.series} 为 {number(f.value)}{many}"


def _rise(f: Facts) -> str:
    start, rises = f.evidence.get("start"), f.evidence.get("rises")
    return f"{f.series} 连续上升 {number(rises)} 次，从 {number(start)} 到 {number(f.value)}"


def _spike(f: Facts) -> str:
    middle, points, limit = f.evidence.get("median"), number(f.evidence.get("points")), f.limit
    if middle is None or middle <= 0 or limit is None:
        return f"{f.series} 为 {number(f.value)}，最近 {points} 个点的中位数为 {number(middle)}"
    times, most = number(f.value / middle, 2), number(limit / middle, 2)
    return f"{f.series} 为 {number(f.value)}，是最近 {points} 个点中位数的 {times} 倍，上限 {most} 倍"


def _ramp(f: Facts) -> str:
    rises, start, level = (number(f.evidence.get(name)) for name in ("rises", "start", "level"))
    return f"{f.series} 为 {number(f.value)}；其短期中位数连续上升 {rises} 次，从 {start} 到 {level}，上限 {number(f.limit)}"


def _divergence(f: Facts) -> str:
    level, best, points = (number(f.evidence.get(name)) for name in ("level", "best", "points"))
    most = "" if f.limit is None else f"，上限 {number(f.limit)}"
    return f"{f.series} 为 {number(f.value)}；最近 {points} 个点的中位数为 {level}，最好时为 {best}{most}"


def _plateau(f: Facts) -> str:
    first, lowest, points = (number(f.evidence.get(name)) for name in ("first", "lowest", "points"))
    levels = f"开始时为 {first}，最低为 {lowest}，上限 {number(f.limit)}"
    return f"{f.series} 在 {points} 个点之后为 {number(f.value)}，没有学到东西：{levels}"


def _frozen(f: Facts) -> str:
    return f"{f.series} 已连续 {number(f.evidence.get('points'))} 个点停在 {number(f.value)}"


def _zero(f: Facts) -> str:
    found, of, zeros = (f.evidence.get(name) for name in ("found", "of", "zeros"))
    dips = f"；最近 {number(of)} 个点中有 {number(found)} 个低得不可能是真的" if found else ""
    flat = f"；连续 {number(zeros)} 个点为 0" if zeros else ""
    return f"{f.series} 为 {number(f.value)}{flat}{dips}"


def _loss_scale(f: Facts) -> str:
    start = f"从 {number(f.evidence['maximum'])} " if f.has("maximum") else ""
    return f"{f.series} 已{start}降到 {number(f.value)}，下限 {number(f.limit)}"


def _skip_streak(f: Facts) -> str:
    return f"损失缩放器连续跳过 {number(f.evidence.get('streak'))} 个优化步（{f.series}）"


def _skip_share(f: Facts) -> str:
    skips, window, part = (f.evidence.get(name) for name in ("skips", "window", "share"))
    long = "" if part is None else f"，较长时间内占 {share(part)}"
    return f"最近 {number(window)} 个优化步中有 {number(skips)} 个被损失缩放器跳过（{f.series}）{long}"


def _discontinuity(f: Facts) -> str:
    level, expected, limit = number(f.evidence.get("level")), number(f.evidence.get("expected")), number(f.limit)
    return f"恢复训练后 {f.series} 约为 {level}，按之前的走势应为 {expected}，限值 {limit}"


def _slowdown(f: Facts) -> str:
    level, usual, limit = (quantity(each, f.series) for each in (f.evidence.get("level"), f.evidence.get("usual"), f.limit))
    points = number(f.evidence.get("points"))
    return f"{f.series} 已连续 {points} 个点约为 {level}，之前为 {usual}，限值 {limit}"


def _creep(f: Facts) -> str:
    start, level = (quantity(f.evidence.get(name), f.series) for name in ("start", "level"))
    left = f"；照此速度再过 {number(f.evidence['left'])} 个点就会用尽" if f.has("left") else ""
    return f"{f.series} 持续增长：在 {number(f.evidence.get('points'))} 个点内从 {start} 增至 {level}{left}"


def _straggler(f: Facts) -> str:
    mine, others, limit = (quantity(each, f.series) for each in (f.value, f.evidence.get("others"), f.limit))
    who = f"进程 {number(f.evidence.get('rank'))}"
    return f"{who} 自身用时 {mine}（{f.series}），其他进程为 {others}，上限 {limit}"


def _lost(f: Facts) -> str:
    most = "" if f.limit is None else f"，上限 {duration(f.limit)}"
    return f"已有 {duration(f.value)}没有训练进程的消息{most}"


_DOING: Mapping[str, str] = {
    "starting": "正在启动",
    "evaluating": "正在评估",
    "saving": "正在保存",
    "rolling_back": "正在回滚",
    "ending": "正在结束",
}


def _stalled(f: Facts) -> str:
    most = "" if f.limit is None else f"，上限 {duration(f.limit)}"
    pace = f"（平时每 {number(f.evidence['median'], 2)} 秒一步）" if f.has("median") else ""
    doing = next((f"：{words}" for name, words in _DOING.items() if f.has(name)), "")
    return f"已有 {duration(f.value)}没有新的一步{most}{pace}，但训练进程仍有心跳{doing}"


_ENDS: Mapping[str, str] = {"failed": "训练失败", "stopped": "训练被停止", "finished": "训练已正常结束"}


def _ended(f: Facts) -> str:
    return next((words for name, words in _ENDS.items() if f.has(name)), "训练已结束")


def fallback(f: Facts) -> str:
    """For an alert of a detector that this code does not know (any more)."""
    most = "" if f.limit is None else f"，限值 {number(f.limit)}"
    return f"{f.series} 为 {number(f.value)}{most}"


SENTENCES: Mapping[str, Sentence] = {
    "threshold": _threshold,
    "nonfinite": _nonfinite,
    "consecutive_rise": _rise,
    "spike": _spike,
    "ramp": _ramp,
    "divergence": _divergence,
    "plateau": _plateau,
    "frozen": _frozen,
    "zero": _zero,
    "loss_scale": _loss_scale,
    "skip_streak": _skip_streak,
    "skip_share": _skip_share,
    "discontinuity": _discontinuity,
    "slowdown": _slowdown,
    "creep": _creep,
    "straggler": _straggler,
    "lost": _lost,
    "stalled": _stalled,
    "ended": _ended,
}

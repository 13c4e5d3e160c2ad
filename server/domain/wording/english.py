"""One sentence for each detector, in English: the series, its value, the limit, and what it was measured against.

Every figure may be NaN or infinite. Since when and on which rank is added by `sentence`.
"""

from collections.abc import Callable, Mapping

from .facts import Facts
from .numbers import number, parts, quantity, share

Sentence = Callable[[Facts], str]


def duration(seconds: float) -> str:
    """A time as a person says it: `5 h 12 min`, `2 min 5 s`, `40 s`."""
    hours, minutes, rest = parts(seconds)
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    if minutes:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{rest} s"


def where(facts: Facts) -> str:
    """On which rank, and since when."""
    rank = f" on rank {facts.rank}" if facts.rank > 0 else ""
    return f"{rank}, since step {facts.onset_step}"


def _threshold(f: Facts) -> str:
    side = "below" if f.has("below") else "above"
    return f"{f.series} is {quantity(f.value, f.series)}, {side} the limit of {quantity(f.limit, f.series)}"


def _nonfinite(f: Facts) -> str:
    found, of = f.evidence.get("found"), f.evidence.get("of")
    many = "" if found is None else f", {number(found)} times within {number(of)} points"
    return f"{f.series} is {number(f.value)}{many}"


def _rise(f: Facts) -> str:
    start, rises = f.evidence.get("start"), f.evidence.get("rises")
    return f"{f.series} rose {number(rises)} times in a row, from {number(start)} to {number(f.value)}"


def _spike(f: Facts) -> str:
    middle, points, limit = f.evidence.get("median"), number(f.evidence.get("points")), f.limit
    if middle is None or middle <= 0 or limit is None:
        return f"{f.series} is {number(f.value)}, the median of the last {points} points {number(middle)}"
    times, most = number(f.value / middle, 2), number(limit / middle, 2)
    return f"{f.series} is {number(f.value)} = {times}x the median of the last {points} points, limit {most}x"


def _ramp(f: Facts) -> str:
    rises, start, level = (number(f.evidence.get(name)) for name in ("rises", "start", "level"))
    rose = f"its short median rose {rises} times in a row, from {start} to {level}, limit {number(f.limit)}"
    return f"{f.series} is {number(f.value)}; {rose}"


def _divergence(f: Facts) -> str:
    level, best, points = (number(f.evidence.get(name)) for name in ("level", "best", "points"))
    most = "" if f.limit is None else f", limit {number(f.limit)}"
    return f"{f.series} is {number(f.value)}; the median of the last {points} points is {level}, against {best} at its best{most}"


def _plateau(f: Facts) -> str:
    first, lowest, points = (number(f.evidence.get(name)) for name in ("first", "lowest", "points"))
    levels = f"it began at {first}, its lowest was {lowest}, limit {number(f.limit)}"
    return f"{f.series} is {number(f.value)} after {points} points and nothing was learnt: {levels}"


def _frozen(f: Facts) -> str:
    return f"{f.series} has stood still at {number(f.value)} for {number(f.evidence.get('points'))} points"


def _zero(f: Facts) -> str:
    found, of, zeros = (f.evidence.get(name) for name in ("found", "of", "zeros"))
    dips = f"; {number(found)} of the last {number(of)} points are too low to be real" if found else ""
    flat = f"; {number(zeros)} points in a row are 0" if zeros else ""
    return f"{f.series} is {number(f.value)}{flat}{dips}"


def _loss_scale(f: Facts) -> str:
    start = f" from {number(f.evidence['maximum'])}" if f.has("maximum") else ""
    return f"{f.series} has fallen{start} to {number(f.value)}, limit {number(f.limit)}"


def _skip_streak(f: Facts) -> str:
    return f"{number(f.evidence.get('streak'))} optimizer steps in a row were skipped by the loss scaler ({f.series})"


def _skip_share(f: Facts) -> str:
    skips, window, part = (f.evidence.get(name) for name in ("skips", "window", "share"))
    long = "" if part is None else f", {share(part)} in the long run"
    return f"{number(skips)} of the last {number(window)} optimizer steps were skipped by the loss scaler ({f.series}){long}"


def _discontinuity(f: Facts) -> str:
    level, expected, limit = number(f.evidence.get("level")), number(f.evidence.get("expected")), number(f.limit)
    return f"{f.series} is about {level} after the run was taken up again, where {expected} was expected, limit {limit}"


def _slowdown(f: Facts) -> str:
    level, usual, limit = (quantity(each, f.series) for each in (f.evidence.get("level"), f.evidence.get("usual"), f.limit))
    points = number(f.evidence.get("points"))
    return f"{f.series} has been about {level} for {points} points, against {usual} before, limit {limit}"


def _creep(f: Facts) -> str:
    start, level = (quantity(f.evidence.get(name), f.series) for name in ("start", "level"))
    left = f"; at this pace it is used up in {number(f.evidence['left'])} points" if f.has("left") else ""
    return f"{f.series} keeps growing: from {start} to {level} within {number(f.evidence.get('points'))} points{left}"


def _straggler(f: Facts) -> str:
    mine, others, limit = (quantity(each, f.series) for each in (f.value, f.evidence.get("others"), f.limit))
    who = f"rank {number(f.evidence.get('rank'))}"
    return f"{who} takes {mine} by itself ({f.series}), against {others} on the other ranks, limit {limit}"


def _lost(f: Facts) -> str:
    most = "" if f.limit is None else f", limit {duration(f.limit)}"
    return f"no word from the trainer for {duration(f.value)}{most}"


_DOING: Mapping[str, str] = {
    "starting": "it is starting",
    "evaluating": "it is evaluating",
    "saving": "it is saving",
    "rolling_back": "it is rolling back",
    "ending": "it is ending",
}


def _stalled(f: Facts) -> str:
    most = "" if f.limit is None else f", limit {duration(f.limit)}"
    pace = f" (a step comes every {number(f.evidence['median'], 2)} s)" if f.has("median") else ""
    doing = next((f": {words}" for name, words in _DOING.items() if f.has(name)), "")
    return f"no new step for {duration(f.value)}{most}{pace}, while the trainer is heard{doing}"


_ENDS: Mapping[str, str] = {"failed": "has failed", "stopped": "was stopped", "finished": "has come to its end"}


def _ended(f: Facts) -> str:
    return f"the training {next((words for name, words in _ENDS.items() if f.has(name)), 'has ended')}"


def fallback(f: Facts) -> str:
    """For an alert of a detector that this code does not know (any more)."""
    most = "" if f.limit is None else f", limit {number(f.limit)}"
    return f"{f.series} is {number(f.value)}{most}"


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
"""By the value of `DetectorKind`."""

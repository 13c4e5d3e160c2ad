"""A value that is NaN or infinite: at once, or several among the last few.

The one condition that is a statement about the number itself. A gradient norm is infinite at each step that a loss scaler skips,
about one in 2,000 when all is well, so there `need` of the last `of` are asked for. At the start a scaler searches its scale
from above and may skip every step: as long as no value was finite, nothing is said for `search_steps` steps.
"""

import math
from typing import Final

from server.domain.points import Point
from server.domain.values import frozen

from .base import CLEAR, MOST_BITS, Setting, Settings, Verdict

SETTINGS: Final[dict[str, Setting]] = {
    "need": Setting(1, 1, MOST_BITS, whole=True, meaning="non-finite points that are needed"),
    "of": Setting(1, 1, MOST_BITS, whole=True, meaning="among the last so many"),
    "search_steps": Setting(0, 0, 1e9, whole=True, meaning="steps from the first on in which none needs to be finite"),
}


@frozen
class NonfiniteState:
    """The last non-finite points, a bit each; whether any was finite, and the step of the first (None before it)."""

    hits: int = 0
    any_finite: bool = False
    first_step: int | None = None


_FINITE: Final = NonfiniteState(any_finite=True)


def step(state: NonfiniteState, point: Point, settings: Settings) -> tuple[NonfiniteState, Verdict]:
    """Holds at NaN, inf and -inf, as often as it takes."""
    finite = math.isfinite(point.value)
    if finite and not state.hits:
        return _FINITE, Verdict(CLEAR, point.value)
    first_step = point.step if state.first_step is None else state.first_step
    if finite and not state.any_finite:
        return _FINITE, Verdict(CLEAR, point.value)  # the search is over, and what it skipped is no sign
    hits = (state.hits << 1 | (not finite)) & (1 << int(settings["of"])) - 1
    following = NonfiniteState(hits, state.any_finite or finite, first_step)
    found = hits.bit_count()
    searching = not following.any_finite and point.step - first_step < settings["search_steps"]
    evidence = (("found", float(found)), ("of", float(settings["of"]))) if settings["of"] > 1 else ()
    return following, Verdict(found >= settings["need"] and not searching, point.value, None, evidence)

"""Numbers as logs spell them."""

import math
from typing import Final

NOT_FINITE: Final = {
    "nan": math.nan,
    "-nan": math.nan,
    "+nan": math.nan,
    "inf": math.inf,
    "+inf": math.inf,
    "-inf": -math.inf,
    "infinity": math.inf,
    "+infinity": math.inf,
    "-infinity": -math.inf,
    "1.#inf": math.inf,
    "-1.#inf": -math.inf,
    "1.#qnan": math.nan,
    "-1.#ind": math.nan,
}


def spelled(text: str) -> float | None:
    """The number that a text says; None where it says none. A number too large for a float64 is one that overflowed."""
    special = NOT_FINITE.get(text.strip().lower())
    if special is not None:
        return special
    if "_" in text or not text.isascii():  # which Python takes in a number, and nobody writes
        return None
    try:
        return float(text)
    except ValueError:
        return None

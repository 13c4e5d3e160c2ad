"""Numbers, sizes and times as people write them."""

import math

from trainer_agent.wire import series as names

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def number(value: float | None, digits: int = 4) -> str:
    """A number in few digits: NaN, Inf and -Inf by name, and no exponent from 1 up to a million."""
    if value is None:
        return "none"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    if 1e4 <= abs(value) < 1e6 and digits >= 4:
        return f"{value:.0f}"
    short = f"{value:.{digits}g}"
    return f"{float(short):.0f}" if "e" in short and 1 <= abs(value) < 1e6 else _short_exponent(short)


def _short_exponent(text: str) -> str:
    """`2.45e-5` for `2.45e-05`."""
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if e else text


def quantity(value: float | None, series: str) -> str:
    """A number with the unit of its series: bytes by 1024, seconds as they are."""
    if value is None or not math.isfinite(value):
        return number(value)
    unit = names.unit(series)
    if unit == "B":
        return size(value)
    return f"{number(value)} {unit}" if unit else number(value)


def size(value: float) -> str:
    """Bytes in the largest unit of which there is at least one."""
    place = min(max(int(math.log(abs(value), 1024)), 0), len(_BYTES) - 1) if value else 0
    return f"{number(value / 1024**place, 3)} {_BYTES[place]}"


def share(value: float) -> str:
    """A ratio from 0 to 1 in percent."""
    return f"{number(value * 100, 3)} %"


def parts(seconds: float) -> tuple[int, int, int]:
    """Whole hours, minutes and seconds of a time that is not negative; one that is no number counts as none."""
    whole = round(seconds) if math.isfinite(seconds) and seconds > 0 else 0
    return whole // 3600, whole % 3600 // 60, whole % 60

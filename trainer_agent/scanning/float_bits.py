"""Counting what is not finite in raw bytes, exactly and at a fraction of the price of a digest.

    sign | exponent | fraction        a number is not finite from a bit pattern on, the sign left aside

So the largest pattern tells: read as signed integers, the largest is that of the largest positive number; read as unsigned ones,
that of the largest negative one. Two such looks over bytes that lie in the cache cost little, and nothing is computed that could
run over or slow down at tiny numbers. Only where one of them finds something is it counted. Formats without infinities have one
pattern that is no number.

Source: IEEE 754 section 3.4; the 8-bit formats of the OCP OFP8 and MX specifications and their "fnuz" relatives.
"""

from dataclasses import dataclass
from typing import Any

try:
    import numpy as np
except ImportError:  # torch runs without it
    np = None  # type: ignore[assignment]

can_count = np is not None
"""Whether bytes can be counted here at all."""


@dataclass(frozen=True, slots=True)
class Floats:
    """How numbers lie in bytes, lowest byte first. An element is `lanes` numbers of `width` bytes: a complex one has two."""

    width: int
    first: int
    """The lowest pattern that is not finite, without the sign."""
    lanes: int = 1
    is_alone: bool = False
    """The pattern `first`, taken with the sign, is the only one that is not finite."""

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.width * self.lanes


F64, F32, F16, BF16 = Floats(8, 0x7FF0 << 48), Floats(4, 0x7F800000), Floats(2, 0x7C00), Floats(2, 0x7F80)
F8_E5M2, F8_E4M3 = Floats(1, 0x7C), Floats(1, 0x7F)
F8_FNUZ, F8_E8M0 = Floats(1, 0x80, is_alone=True), Floats(1, 0xFF, is_alone=True)
C32, C64, C128 = Floats(2, 0x7C00, 2), Floats(4, 0x7F800000, 2), Floats(8, 0x7FF0 << 48, 2)

OF_SAFETENSORS = {
    "F64": F64,
    "F32": F32,
    "F16": F16,
    "BF16": BF16,
    "F8_E5M2": F8_E5M2,
    "F8_E4M3": F8_E4M3,
    "F8_E5M2FNUZ": F8_FNUZ,
    "F8_E4M3FNUZ": F8_FNUZ,
    "F8_E8M0": F8_E8M0,
    "C64": C64,
    "C128": C128,
}
"""By the names in a safetensors header. A name that is not here is one of integers, which are all finite."""

OF_TORCH = {
    "float64": F64,
    "float32": F32,
    "float16": F16,
    "bfloat16": BF16,
    "float8_e5m2": F8_E5M2,
    "float8_e4m3fn": F8_E4M3,
    "float8_e5m2fnuz": F8_FNUZ,
    "float8_e4m3fnuz": F8_FNUZ,
    "float8_e8m0fnu": F8_E8M0,
    "complex32": C32,
    "complex64": C64,
    "complex128": C128,
    "DoubleStorage": F64,
    "FloatStorage": F32,
    "HalfStorage": F16,
    "BFloat16Storage": BF16,
    "ComplexFloatStorage": C64,
    "ComplexDoubleStorage": C128,
}
"""By the names of types and of typed storages in a torch file."""


def count(data: memoryview, floats: Floats) -> int:
    """How many elements in `data`, which holds whole ones, are NaN or infinite. Lets go of the interpreter while it looks."""
    unsigned = np.frombuffer(data, f"<u{floats.width}")
    if floats.is_alone:
        return int(np.count_nonzero(unsigned == floats.first))
    sign = 1 << (8 * floats.width - 1)
    signed = unsigned.view(f"<i{floats.width}")
    if not unsigned.size or (int(signed.max()) < floats.first and int(unsigned.max()) < sign | floats.first):
        return 0
    return _count_found(unsigned & (sign - 1), floats)


def _count_found(magnitudes: Any, floats: Floats) -> int:
    found = magnitudes >= floats.first
    return int(np.count_nonzero(found.reshape(-1, floats.lanes).any(axis=1)))

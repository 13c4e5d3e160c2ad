"""The call for a person: a rule would have acted and must not.

It is stored in English, before the sentence of its alert. In Chinese it is made out of that, since nothing else is stored of it.
"""

import re
from typing import Final

from .clauses import in_chinese
from .words import Both, fill

_CALL: Final[Both] = (
    "No automatic {kind}: {because}.[ The run is stopped in {seconds} s unless somebody says no.]",
    "自动处置已停止，需要人来处理。[{because}。][{seconds} 秒后停止训练，除非有人取消。]",
)
_STORED: Final = r"No automatic \w+: (?P<because>.+?)\.(?: The run is stopped in (?P<seconds>\S+) s unless somebody says no\.)?"
_WHOLE, _BEGINNING = re.compile(_STORED, re.DOTALL), re.compile(f"{_STORED} ", re.DOTALL)


def called(kind: str, because: str, seconds: float | None) -> str:
    """Why people are called, in English. `seconds`: until the run is stopped instead; None where it is not."""
    return fill(_CALL[0], {"kind": kind, "because": because, "seconds": None if seconds is None else f"{seconds:g}"})


def called_in_chinese(text: str, sentence: str) -> str:
    """The same in Chinese, out of a stored text that ends with the `sentence` of its alert.

    Where an earlier version had another sentence, the first full stop that can end the call ends it.
    """
    call = text.removesuffix(f" {sentence}")
    found = _BEGINNING.match(text) if call == text else _WHOLE.fullmatch(call)
    said = {} if found is None else found.groupdict()
    because = said.get("because")
    return fill(_CALL[1], {**said, "because": None if because is None else in_chinese(because)}, "zh")

"""Messages to strict JSON and back.

Non-finite numbers are the strings "NaN", "Infinity", "-Infinity"; bare NaN is refused in both directions. Unknown fields are
ignored, so that either side may be one version ahead. A record names its type in the field "type".
"""

import dataclasses
import json
import math
import types
import typing
from enum import StrEnum
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar, cast

from . import messages, series

T = TypeVar("T")

MAX_STEP = 2**53 - 1
"""Steps and numbers above this would lose bits in a float64 or a browser."""

_TO_TEXT = {math.inf: "Infinity", -math.inf: "-Infinity"}
_FROM_TEXT = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_RECORDS = {t.__name__: t for t in typing.get_args(messages.Record)}


class WireError(ValueError):
    """A message that does not keep the contract. `where` is the path of the offending field."""

    def __init__(self, where: str, problem: str) -> None:
        where = where[:200]  # a key of a hostile message is part of it
        super().__init__(f"{where}: {problem}" if where else problem)
        self.where = where
        self.problem = problem


def number_to_json(value: float) -> float | str:
    """A float as strict JSON may carry it."""
    return value if math.isfinite(value) else _TO_TEXT.get(value, "NaN")


def number_from_json(value: object, where: str = "") -> float:
    """A float from a JSON number or one of the three strings."""
    if isinstance(value, str) and value in _FROM_TEXT:
        return _FROM_TEXT[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WireError(where, 'must be a number, or one of the strings "NaN", "Infinity", "-Infinity"')
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):  # 1e999 parses to inf: a number that large is a mistake, an infinity says so by name
        raise WireError(where, "is larger than a float64 can hold")
    return number


def encode(message: object) -> bytes:
    """A message as UTF-8 JSON, without spaces."""
    return json.dumps(to_json(message), allow_nan=False, separators=(",", ":"), ensure_ascii=False).encode()


def decode(kind: type[T], data: bytes | str) -> T:
    """A message of type `kind` out of JSON.

    Raises:
        WireError: the text is not strict JSON, or a field is missing, of the wrong type or out of range.
    """
    try:
        parsed = json.loads(data, parse_constant=_refuse_constant)
    except WireError:
        raise
    except (ValueError, RecursionError) as error:
        raise WireError("", f"is not JSON: {error}") from None
    return from_json(kind, parsed)


def check_batch(batch: messages.Batch) -> None:
    """That a decoded batch keeps what the types cannot say.

    Raises:
        WireError: numbers out of order or with holes, columns of unequal length, bad series names, too many points.
    """
    if not 1 <= batch.first_seq <= batch.last_seq:
        raise WireError("first_seq", "must be at least 1 and at most last_seq")
    keys: set[tuple[str, int]] = set()
    seen: set[int] = set()
    points = 0
    for index, column in enumerate(batch.columns):
        points += len(column.seq)
        _check_column(column, f"columns[{index}]")
        keys.add((column.series, column.segment))
        seen.update(column.seq)
    if points > messages.MAX_BATCH_POINTS:
        raise WireError("columns", f"hold {points} points; at most {messages.MAX_BATCH_POINTS} fit in a batch")
    if len(keys) != len(batch.columns):
        raise WireError("columns", "must differ in series or segment: send the points of one series and segment in one column")
    if not _is_whole(batch, seen):
        raise WireError("", f"records {batch.first_seq} to {batch.last_seq} must all be there and no other")


def _is_whole(batch: messages.Batch, seen: set[int]) -> bool:
    """Whether points (numbered `seen`) and records cover the batch without a hole.

    Counted by stretches: one `Dropped` may stand for more records than fit into memory.
    """
    stretches = [(seq, seq) for seq in seen]
    for numbered in batch.records:
        span = numbered.record.count if isinstance(numbered.record, messages.Dropped) else 1
        stretches.append((numbered.seq, numbered.seq + span - 1))
    reached = batch.first_seq - 1
    for begin, end in sorted(stretches):
        if not batch.first_seq <= begin <= reached + 1:
            return False
        reached = max(reached, end)
    return reached == batch.last_seq


def _check_column(column: messages.Column, where: str) -> None:
    length = len(column.seq)
    if not length or any(len(values) != length for values in (column.step, column.time, column.value)):
        raise WireError(where, "must have seq, step, time and value of the same length, at least 1")
    if not series.is_valid(column.series):
        raise WireError(f"{where}.series", f"{column.series[:80]!r} is not group/name in lower case, such as train/loss")
    if any(later <= earlier for earlier, later in pairwise(column.seq)):
        raise WireError(f"{where}.seq", "must rise")


def to_json(value: object) -> Any:
    """Dataclasses, tuples, enums and floats as what `json` takes."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"type": type(value).__name__, **fields} if type(value).__name__ in _RECORDS else fields
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, float):
        return number_to_json(value)
    if isinstance(value, list | tuple):  # the hot case: a column of plain numbers
        return [v if type(v) is int or (type(v) is float and v - v == 0) else to_json(v) for v in value]
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    return value


def from_json(kind: type[T], value: object, where: str = "") -> T:
    """A dataclass of type `kind` out of parsed JSON."""
    if not isinstance(value, dict):
        raise WireError(where, "must be an object")
    arguments = {}
    for name, (annotation, required) in _fields(cast("type", kind)).items():
        path = f"{where}.{name}" if where else name
        if name in value:
            arguments[name] = _read(annotation, value[name], path)
        elif required:
            raise WireError(path, "is missing")
    return kind(**arguments)


@cache
def _fields(kind: type) -> dict[str, tuple[Any, bool]]:
    hints = typing.get_type_hints(kind)
    missing = dataclasses.MISSING
    fields = dataclasses.fields(kind)
    return {f.name: (hints[f.name], f.default is missing and f.default_factory is missing) for f in fields}


def _read(annotation: Any, value: object, where: str) -> Any:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _read_union(arguments, value, where)
    if origin is tuple:
        return _read_tuple(arguments[0], value, where)
    if origin is dict:
        return _read_dict(arguments[1], value, where)
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return _read_enum(annotation, value, where)
    if dataclasses.is_dataclass(annotation):
        return from_json(cast("type", annotation), value, where)
    return _read_scalar(annotation, value, where)


def _read_union(choices: tuple[Any, ...], value: object, where: str) -> Any:
    if value is None and type(None) in choices:
        return None
    if str in choices and float in choices:
        return _read_attribute(value, where)
    if all(dataclasses.is_dataclass(choice) for choice in choices if choice is not type(None)) and len(choices) > 2:
        name = value.get("type") if isinstance(value, dict) else None
        if not isinstance(name, str) or name not in _RECORDS:
            raise WireError(where, f"has type {name!r:.80}; known are {', '.join(sorted(_RECORDS))}")
        return from_json(_RECORDS[name], value, where)
    return _read(next(choice for choice in choices if choice is not type(None)), value, where)


def _read_attribute(value: object, where: str) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return _read_scalar(str, value, where)
    if isinstance(value, float):
        return number_from_json(value, where)
    raise WireError(where, "must be a text, a number, true, false or null")


def _read_tuple(annotation: Any, value: object, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise WireError(where, "must be a list")
    if annotation is float:  # the hot case: a column of plain numbers
        return tuple(
            [v if type(v) is float and v - v == 0 else number_from_json(v, f"{where}[{i}]") for i, v in enumerate(value)]
        )
    return tuple(_read(annotation, item, f"{where}[{i}]") for i, item in enumerate(value))


def _read_dict(annotation: Any, value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise WireError(where, "must be an object")
    return {str(key): _read(annotation, item, f"{where}.{key}") for key, item in value.items()}


def _read_enum(annotation: type[StrEnum], value: object, where: str) -> StrEnum:
    try:
        return annotation(cast("str", value))
    except ValueError:
        raise WireError(where, f"must be one of {', '.join(annotation)}") from None


def _read_scalar(annotation: Any, value: object, where: str) -> Any:
    if annotation is float:
        return number_from_json(value, where)
    if annotation is int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise WireError(where, "must be a whole number")
        if not 0 <= value <= MAX_STEP:
            raise WireError(where, f"must lie between 0 and {MAX_STEP}")
        return value
    if annotation is bool and isinstance(value, bool):
        return value
    if annotation is str and isinstance(value, str):
        if "\x00" in value or len(value) > 65536 or _has_lone_surrogate(value):
            raise WireError(where, "must be text without NUL and lone surrogates, at most 65536 characters")
        return value
    raise WireError(where, f"must be of type {annotation.__name__}")


def _has_lone_surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


def _refuse_constant(text: str) -> float:
    raise WireError("", f'holds a bare {text}, which is not JSON: write the string "{text}"')

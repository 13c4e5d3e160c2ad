"""Logs of other tools as points: HF's `trainer_state.json`, CSV with a step column, JSON lines. Text in, columns out.

    trainer_state.json   an object with `log_history`; the summary that HF adds at the end is no point of a curve and is left out
    JSON lines           one object a line; a last line that was cut off in the middle is left out
    CSV                  commas, semicolons or tabs; a header; an empty field was not logged; a column of words only is left out

The step is in one of `STEP_NAMES`. `loss`, `grad_norm`, `learning_rate`, `lr` and `loss_scale` are the series of those names,
all else is named as the agent names it (`eval_loss` is `eval/loss`). Not a number is said in any usual way: nan, inf, -inf,
Infinity, NaN. Steps may repeat and never fall: a log is one segment, and where steps start again somebody must say which part
counts.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from trainer_agent.wire import series
from trainer_agent.wire.codec import MAX_STEP

from .backtest import Recording, SegmentBegun, StoredColumn
from .spelling import NOT_FINITE, spelled

MAX_SERIES: Final = 200
MAX_COLUMNS: Final = 10_000
"""Of a CSV, most of which may hold words or nothing."""
MAX_SHOWN: Final = 60
STEP_NAMES: Final = ("step", "global_step", "train/global_step", "_step", "iteration", "iter")
KNOWN: Final = {
    "loss": series.LOSS,
    "train_loss": series.LOSS,
    "grad_norm": series.GRAD_NORM,
    "learning_rate": series.LEARNING_RATE,
    "lr": series.LEARNING_RATE,
    "loss_scale": series.LOSS_SCALE,
    "overflow": series.OVERFLOW,
}
_SUMMARY: Final = frozenset({"train_runtime", "total_flos"})
"""What only the last entry of HF's history holds."""


class BadLog(ValueError):  # noqa: N818  named for what happened
    """The log cannot be read: the text says where and why."""


@dataclass
class Log:
    """A log as it was read: the points of each series in the order of the log."""

    name: str
    columns: dict[str, tuple[list[int], list[int], list[float]]] = field(default_factory=dict)
    """Series to the number of the record, the step and the value of each point."""
    records: int = 0
    last_step: int = -1

    @property
    def points(self) -> int:
        """How many there are."""
        return sum(len(values) for _, _, values in self.columns.values())

    def add(self, step: int, values: Iterable[tuple[str, float]], where: str) -> None:
        """One more record."""
        if step < self.last_step:
            fix = "Where steps start again, give each part as a log of its own"
            raise BadLog(f"{where}: step {step} comes after step {self.last_step}. {fix}")
        self.records, self.last_step = self.records + 1, step
        for name, value in values:
            column = self.columns.get(name)
            if column is None:
                if len(self.columns) >= MAX_SERIES:
                    raise BadLog(f"{where}: more than {MAX_SERIES} series. Leave out those that are not needed")
                column = self.columns[name] = ([], [], [])
            column[0].append(self.records)
            column[1].append(step)
            column[2].append(value)

    def recording(self, run_id: str) -> Recording:
        """The log as the one segment of a run of rank 0."""
        made = (
            StoredColumn(name, 1, 0, 1, seq, step, [float(number) for number in seq], value)
            for name, (seq, step, value) in self.columns.items()
        )
        return Recording(run_id, "", tuple(made), {1: SegmentBegun(0)})


def read_log(name: str, text: str) -> Log:
    """The log out of its text; `name` is only to say which.

    Raises:
        BadLog: it is none of the kinds, or something in it cannot be read; the text names the line or the entry.
    """
    text = text.removeprefix("\ufeff")
    log = Log(name)
    start = text.lstrip()[:1]
    if not start:
        raise BadLog("the log is empty")
    if start in "{[":
        _read_json(log, text)
    else:
        _read_csv(log, text)
    if not log.columns:
        raise BadLog("the log holds no numbers beside its steps")
    return log


# --- JSON ---


def _read_json(log: Log, text: str) -> None:
    try:
        whole = json.loads(text)
    except RecursionError:
        raise BadLog("the log is nested too deep") from None
    except ValueError as error:
        if not _is_object(text.lstrip().partition("\n")[0]):
            raise BadLog(_said(error)) from None
        _add_all(log, _lines(text))
        return
    if isinstance(whole, dict) and "log_history" in whole:
        history = whole["log_history"]
        if not isinstance(history, list):
            raise BadLog("log_history is not a list")
        _add_all(log, _numbered(history, "log_history"))
    elif isinstance(whole, list):
        _add_all(log, _numbered(whole, "the list"))
    else:
        _add_all(log, [("line 1", whole)])


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _said(error: ValueError) -> str:
    """What is wrong with JSON, and in which line."""
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}: not JSON ({error.msg})"
    return "not JSON (a number with too many digits)"


def _numbered(entries: list[Any], of: str) -> Iterator[tuple[str, Any]]:
    for number, entry in enumerate(entries, 1):
        yield f"entry {number} of {of}", entry


def _lines(text: str) -> Iterator[tuple[str, Any]]:
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield f"line {number}", json.loads(line)
        except RecursionError:
            raise BadLog(f"line {number}: nested too deep") from None
        except ValueError as error:
            if number == len(lines) and number > 1:  # its process was killed while it wrote
                return
            raise BadLog(f"line {number}: not JSON ({getattr(error, 'msg', 'a number with too many digits')})") from None


def _add_all(log: Log, entries: Iterable[tuple[str, Any]]) -> None:
    named = _names()
    for where, entry in entries:
        if not isinstance(entry, dict):
            raise BadLog(f"{where}: not an object")
        if _SUMMARY & entry.keys():
            continue
        log.add(_step_of(entry, where), _values_of(entry, named, where), where)


def _step_of(entry: dict[str, Any], where: str) -> int:
    for name in STEP_NAMES:
        if entry.get(name) is not None:
            return _step(entry[name], where)
    raise BadLog(f"{where}: no step. It must be in one of {', '.join(STEP_NAMES)}")


def _values_of(entry: dict[str, Any], named: Callable[[str], str | None], where: str) -> list[tuple[str, float]]:
    values = {}
    for key, told in entry.items():
        value = _number(told, where, key)
        name = named(key) if value is not None else None
        if value is not None and name is not None:
            values[name] = value
    return sorted(values.items())


def _number(told: Any, where: str, key: str) -> float | None:
    """A number of a JSON record; None of anything that is none, such as a word."""
    if isinstance(told, bool) or not isinstance(told, int | float | str):
        return None
    if isinstance(told, str):
        return NOT_FINITE.get(told.strip().lower())  # as strict JSON must say it
    try:
        return float(told)
    except OverflowError:
        raise BadLog(f"{where}: {key[:MAX_SHOWN]} is larger than a float64 can hold") from None


# --- CSV ---


def _read_csv(log: Log, text: str) -> None:
    head, _, _ = text.lstrip("\r\n").partition("\n")
    delimiter = max(",;\t", key=head.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    rows = _rows(reader)
    where, header = next(rows, ("line 1", []))
    if len(header) > MAX_COLUMNS:
        raise BadLog(f"{where}: {len(header)} columns, more than {MAX_COLUMNS}. Leave out those that are not needed")
    keys = [key.strip() for key in header]
    lower = [key.lower() for key in keys]
    step_at = next((lower.index(name) for name in STEP_NAMES if name in lower), None)
    if step_at is None:
        raise BadLog(
            f"{where}: no step column. The header must name one of {', '.join(STEP_NAMES)}; it has {', '.join(keys)[:200]}"
        )
    _Csv(log, keys, step_at, where).read(rows)


def _rows(reader: Any) -> Iterator[tuple[str, list[str]]]:
    """Each row that holds something, and its line."""
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise BadLog(f"line {reader.line_num}: {error}") from None
        if any(field.strip() for field in row):
            yield f"line {reader.line_num}", row


_DECIMAL_COMMA: Final = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?", re.ASCII)
_COMMA: Final = ": write decimals with a point, not with a comma"


class _Csv:
    """The rows of a CSV on their way into a log. A column is known to hold words only when all of it was read."""

    def __init__(self, log: Log, keys: list[str], step_at: int, where: str) -> None:
        self._log, self._step_at, self._width, self._keys = log, step_at, len(keys), keys
        named = _names()
        self._names = [None if at == step_at else named(key) for at, key in enumerate(keys)]
        counts = Counter(name for name in self._names if name is not None)
        twice = next((name for name, count in counts.items() if count > 1), None)
        if twice is not None:
            raise BadLog(f"{where}: two columns are {twice}. Leave one out")
        self._words: dict[int, str] = {}
        """By column: what the first field says that is no number."""
        self._has_numbers: set[int] = set()

    def read(self, rows: Iterable[tuple[str, list[str]]]) -> None:
        for where, row in rows:
            if len(row) != self._width:
                why = ". Decimals must have a point, not a comma" if len(row) > self._width and self._may_be_decimals(row) else ""
                raise BadLog(f"{where}: {len(row)} fields, where the header has {self._width}{why}")
            step = _step(row[self._step_at].strip(), where)
            self._log.add(step, sorted(self._values(row, where)), where)
        for problem in self._words.values():
            if problem.endswith(_COMMA):  # all of its numbers are written so
                raise BadLog(problem)

    @staticmethod
    def _may_be_decimals(row: list[str]) -> bool:
        return all(spelled(told) is not None for told in row if told.strip())

    def _values(self, row: list[str], where: str) -> Iterator[tuple[str, float]]:
        for at, name in enumerate(self._names):
            told = row[at].strip()
            if name is None or not told:
                continue
            value = spelled(told)
            if value is not None:
                self._has_numbers.add(at)
                yield name, value
            else:
                problem = f"{where}: column {self._keys[at][:MAX_SHOWN]} holds {told[:MAX_SHOWN]!r}, which is no number"
                self._words.setdefault(at, problem + (_COMMA if _DECIMAL_COMMA.fullmatch(told) else ""))
            if at in self._words and at in self._has_numbers:
                raise BadLog(self._words[at])


# --- both ---


def _step(told: Any, where: str) -> int:
    number = spelled(told) if isinstance(told, str) else told
    if isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number <= MAX_STEP and number == int(number):
        return int(number)
    raise BadLog(f"{where}: the step is {str(told)[:MAX_SHOWN]!r}. It must be a whole number from 0 to {MAX_STEP}")


def _names() -> Callable[[str], str | None]:
    """Gives the series of a key, None where it has none; each key is looked at once."""
    known: dict[str, str | None] = {}

    def name_of(key: str) -> str | None:
        if key not in known:
            known[key] = _series(key)
        return known[key]

    return name_of


def _series(key: str) -> str | None:
    if key.lower() in STEP_NAMES:
        return None
    if key in KNOWN:
        return KNOWN[key]
    if series.is_valid(key):
        return key
    try:
        return series.normalise(key)
    except ValueError:
        return None

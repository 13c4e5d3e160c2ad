"""Words in every language side by side, with places for what differs.

`{name}` is filled: a number as `number` writes it, or by `{name:unit}`, `{name:time}`, `{name:share}`, `{name:2}` (digits); a
whole one, such as a step, in all its digits; words as they are, or by `{Name}` with a capital. What stands in [brackets] is left
out where a place in it has nothing to say. Elsewhere such a place is called none.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from .numbers import number, parts, quantity, share

LANGUAGES: Final = ("en", "zh")
Both = tuple[str, str]
"""In English and in Simplified Chinese: the order of `LANGUAGES`."""
Value = float | str | Both | None

_BRACKETS: Final = re.compile(r"[\[\]]")
PLACE: Final = re.compile(r"\{(\w+):?(\w*)\}")
"""Its name, and the way in which it is written."""
_TIMES: Final[Mapping[str, tuple[str, ...]]] = {
    "en": ("{} h {} min", "{} h", "{} min {} s", "{} min", "{} s"),
    "zh": ("{} 小时 {} 分", "{} 小时", "{} 分 {} 秒", "{} 分钟", "{} 秒"),
}
"""Hours with minutes and without, minutes with seconds and without, seconds."""


def places(text: str) -> set[str]:
    """The names of the places in a text, those in brackets too."""
    return {found[1] for found in PLACE.finditer(text)}


def fill(text: str, values: Mapping[str, Value], language: str = "en", series: str = "") -> str:
    """The text of a language with its places filled, numbers in the unit of a series."""
    said = []
    for needed, parts_of in _taken_apart(text):
        if any(_value(values, name) is None for name in needed):
            continue
        for words, name, way in parts_of:
            said.append(words)
            said.append(_written(_value(values, name), way, language, series) if name else "")
    return "".join(said)


def by_language(**words: Both) -> dict[str, Any]:
    """Words by their names as an event holds them: in English plain, in every other language below its name."""
    en: dict[str, Any] = {name: each[0] for name, each in words.items()}
    return en | {language: {name: each[at] for name, each in words.items()} for at, language in enumerate(LANGUAGES) if at}


@cache
def _taken_apart(text: str) -> tuple[tuple[frozenset[str], tuple[tuple[str, str, str], ...]], ...]:
    """The stretches of a text: the places that one in brackets needs, and its words, each with the place that follows it."""
    stretches = []
    for at, stretch in enumerate(_BRACKETS.split(text)):
        cut = [*PLACE.split(stretch), "", ""]
        needed = frozenset(places(stretch)) if at % 2 else frozenset()
        stretches.append((needed, tuple(zip(cut[::3], cut[1::3], cut[2::3], strict=True))))
    return tuple(stretches)


def _value(values: Mapping[str, Value], name: str) -> Value:
    """What fills a place: `Name` is `name` as a sentence begins with it. A figure may have a capital of its own."""
    if name in values or not name[:1].isupper():
        return values.get(name)
    value = values.get(f"{name[0].lower()}{name[1:]}")
    if isinstance(value, tuple):
        return _capital(value[0]), _capital(value[1])
    return _capital(value) if isinstance(value, str) else value


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _written(value: Value, way: str, language: str, series: str) -> str:
    if isinstance(value, tuple):
        return value[LANGUAGES.index(language)]
    if isinstance(value, str) or value is None:
        return number(None) if value is None else value
    if isinstance(value, int) and not way:
        return str(value)
    if way == "unit":
        return quantity(value, series)
    if way in ("time", "share"):
        return duration(value, language) if way == "time" else share(value)
    return number(value, int(way)) if way else number(value)


def filled(texts: Both, **values: Value) -> Both:
    """The text of each language with its places filled."""
    en, zh = (fill(text, values, language) for text, language in zip(texts, LANGUAGES, strict=True))
    return en, zh


def duration(seconds: float, language: str = "en") -> str:
    """A time as a person says it: `5 h 12 min`, `2 min 5 s`, `40 s`."""
    hours, minutes, rest = parts(seconds)
    large, small, place = (hours, minutes, 0) if hours else (minutes, rest, 2)
    if not large:
        return _TIMES[language][4].format(rest)
    return _TIMES[language][place].format(large, small) if small else _TIMES[language][place + 1].format(large)

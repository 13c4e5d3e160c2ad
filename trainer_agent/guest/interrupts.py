"""Errors that a signal handler of the script raised while code of ours was at work: they are the script's, and pass through.

A handler runs on the main thread between any two instructions there. What it raises comes up through whoever was at work just
then, as KeyboardInterrupt does; but it may be an ordinary Exception, as torchelastic's SignalException is, and would then be
taken for an error of ours and be swallowed, and the training would not end when it was told to.
"""

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_VARARGS
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any


def is_of_handler(error: BaseException) -> bool:
    """Whether a signal handler raised it, to be seen by a call in its traceback that was given the frame it interrupted."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(_is_handler(frame, caller) for caller, frame in pairwise(frames))


def let_pass(error: BaseException) -> None:
    """Raises an error again that is the script's. For an `except` that takes whatever comes."""
    if is_of_handler(error):
        raise error


@contextmanager
def suppress_ours() -> Iterator[None]:
    """Suppresses errors, but not those that are the script's."""
    try:
        yield
    except Exception as error:
        let_pass(error)


def _is_handler(frame: FrameType, caller: FrameType) -> bool:
    given = _arguments(frame)
    is_given = any(isinstance(number, int) and at is caller for number, at in pairwise(given))
    return is_given or frame.f_code in _installed()  # it may have deleted its arguments, or put another handler in its place


def _arguments(frame: FrameType) -> list[Any]:
    code, values = frame.f_code, frame.f_locals
    named = [values.get(name) for name in code.co_varnames[: code.co_argcount]]
    rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount :][:1] if code.co_flags & CO_VARARGS else ()
    return named + [each for name in rest for each in values.get(name, ())]


def _installed() -> set[CodeType]:
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    return {code for handler in handlers if isinstance(code := getattr(handler, "__code__", None), CodeType)}

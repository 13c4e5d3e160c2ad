"""What becomes of an error of LossGuard's own: it is said once on stderr, and the training goes on.

What a signal handler of the script raises is no error of ours, and goes on its way (see `interrupts`).
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from .interrupts import let_pass, suppress_ours
from .voice import Voice

Method = TypeVar("Method", bound=Callable[..., None])

_voice = Voice()


def tell(error: Exception, consequence: str) -> None:
    """Says that LossGuard itself went wrong, once for each kind of error; raises what is the script's."""
    let_pass(error)
    _voice.once(f"error {type(error).__name__}", f"{type(error).__name__}: {error}; an error of LossGuard, {consequence}")


def unwatched(error: Exception) -> None:
    """Says that a training begins without LossGuard, of each training anew; raises what is the script's."""
    _voice.forget(f"error {type(error).__name__}")
    tell(error, "so this training is not watched")


def go_on(error: Exception) -> None:
    """What is done about an error of our own in the middle of a training."""
    tell(error, "the training goes on")


def quietly(method: Method) -> Method:
    """The method with its errors said once instead of raised. An interrupt by the user passes through."""

    @functools.wraps(method)
    def quiet(*args: Any, **kwargs: Any) -> None:
        try:
            method(*args, **kwargs)
        except Exception as error:
            go_on(error)

    return cast("Method", quiet)


def last_word(say: Callable[[], None], plainly: Callable[[], None]) -> None:
    """Says how a training ended; `plainly` where that fails, because a run whose end is not told would be called lost."""
    try:
        say()
    except Exception as error:
        with suppress_ours():
            plainly()
        tell(error, "after the training")

"""What becomes of an error of LossGuard's own: it is said once on stderr, and the training goes on."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from .voice import Voice

Method = TypeVar("Method", bound=Callable[..., None])

_voice = Voice()


def tell(error: Exception, consequence: str) -> None:
    """Says that LossGuard itself went wrong, once for each kind of error."""
    _voice.once(f"error {type(error).__name__}", f"{type(error).__name__}: {error}; an error of LossGuard, {consequence}")


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

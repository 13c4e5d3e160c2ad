"""Standing around a method of one object of the script's, and leaving no trace of it afterwards."""

import functools
from collections.abc import Callable
from typing import Any


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> Callable[[], None]:
    """Puts `around` in the place of a method of `owner`, which it is given first; what puts the method back.

    Of several around one method the last is to be taken off first.
    """
    original, is_own = getattr(owner, name), name in vars(owner)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    setattr(owner, name, wrapped)
    return lambda: setattr(owner, name, original) if is_own else delattr(owner, name)

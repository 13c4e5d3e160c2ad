"""How the life of a process ended, as far as that can be known without a hook on the interpreter.

    what a block was left by        `of`            by whoever stands around the training: `guarded_train`, `with monitor`
    what the process is left by     `uncaught`      at exit, where nobody stood around it
    nothing more was written        `KILLED`        by the next start in the folder (see `backlog`): SIGKILL, a SIGTERM that
                                                    nobody handled, `os._exit`, a power cut

Words only, never a stack: a message of an exception may hold data of the user.
"""

import sys
from collections.abc import Callable

from trainer_agent.wire.vocabulary import KILLED, EndReason

__all__ = ["KILLED", "LEFT", "End", "also_at_exit_of_child", "of", "stamp", "uncaught"]

LEFT = "left before its end"
"""The detail of a training whose loop was begun and not ended, by a process that did not say why."""

End = tuple[EndReason, str]


def of(error: BaseException | None) -> End:
    """Reason and detail of what a block was left by; None is its own end, and so is `sys.exit(0)`."""
    if error is None:
        return EndReason.FINISHED, ""
    if not isinstance(error, SystemExit):
        return EndReason.FAILED, type(error).__name__
    if not error.code:
        return EndReason.FINISHED, ""
    return EndReason.FAILED, f"SystemExit {error.code if isinstance(error.code, int) else 1}"


def uncaught(known: int = 0) -> BaseException | None:
    """The exception this process is being left by; None where there is none, or none can be seen.

    The interpreter keeps it in `sys.last_value` before the functions of `atexit` run. At a prompt that variable holds the last
    error typed there, which ended nothing. `sys.exit` leaves no trace at all. In a child of multiprocessing it is on its way up
    while its finalizers run.

    Args:
        known: `stamp()` of earlier: an error that was there already did not end what began after it.
    """
    on_its_way = sys.exc_info()[1]
    if on_its_way is not None or hasattr(sys, "ps1"):
        return on_its_way
    error = _last()
    return None if id(error) == known else error


def stamp() -> int:
    """Tells the error that `uncaught` could see now from later ones; holds on to nothing."""
    return id(_last())


def also_at_exit_of_child(call: Callable[[], None]) -> None:
    """Has `call` made at the exit of a child of multiprocessing too: one that was forked leaves past `atexit`."""
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, call, exitpriority=0)


def _last() -> BaseException | None:
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)

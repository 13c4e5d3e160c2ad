"""A loop of ours in a thread of its own: outlives its own errors, a few times, and never ends in silence.

    running   -> restarted     an error of any kind
    restarted -> running       after `PAUSE_SECONDS`
    restarted -> given up      the fourth time, unless it had run well for `HEALTHY_SECONDS`: whoever began it does without

The training knows nothing of it either way.
"""

import time
from collections.abc import Callable

MOST_RESTARTS = 3
HEALTHY_SECONDS = 60.0
PAUSE_SECONDS = 1.0


def outlive(loop: Callable[[], None], is_over: Callable[[], bool], tell: Callable[[BaseException, bool], object]) -> bool:
    """Runs `loop` until it comes back; False when it was given up.

    `tell` is given each error, and whether it was the last. An error at the end of the process (`is_over`) restarts nothing.
    """
    restarts = 0
    while True:
        began = time.monotonic()
        try:
            if restarts:
                time.sleep(PAUSE_SECONDS)  # in here, because an error may come from outside at any place
            loop()
        except BaseException as error:  # SystemExit too, which would end the thread without a word
            restarts = 1 if time.monotonic() - began > HEALTHY_SECONDS else restarts + 1
            has_given_up = restarts > MOST_RESTARTS
            tell(error, has_given_up)
            if has_given_up or is_over():
                return not has_given_up
        else:
            return True

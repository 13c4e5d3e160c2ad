"""What a signal handler of the script raises passes through LossGuard, also where it is an ordinary Exception."""

import os
import signal
import time
from functools import partial

import pytest

from trainer_agent.guest import harmless
from trainer_agent.guest.interrupts import is_of_handler, let_pass, suppress_ours


class Told(Exception):  # noqa: N818  what a script may call it
    """As torchelastic's SignalException: an ordinary Exception."""


def with_frame(signum, frame):
    raise Told(signum)


def with_anything(*_):
    raise Told


def without_its_arguments(signum, frame):
    del signum, frame
    raise Told


def once_only(signum, frame):
    signal.signal(signum, signal.SIG_DFL)
    deeper()


def deeper():
    raise Told


class Handler:
    def stop(self, signum, frame):
        raise Told


HANDLERS = [with_frame, with_anything, without_its_arguments, once_only, Handler().stop, partial(with_frame), lambda *_: deeper()]


@pytest.fixture(params=HANDLERS)
def handler(request):
    before = signal.signal(signal.SIGUSR1, request.param)
    yield request.param
    signal.signal(signal.SIGUSR1, before)


def interrupted() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(5)  # the handler runs before this is over


def test_what_a_handler_raises_passes_a_method_of_ours(handler):
    with pytest.raises(Told):
        harmless.quietly(interrupted)()


def test_it_passes_where_errors_of_ours_are_suppressed(handler):
    with pytest.raises(Told), suppress_ours():
        interrupted()


def test_it_passes_the_last_word_which_is_said_all_the_same(handler):
    said = []
    with pytest.raises(Told):
        harmless.last_word(interrupted, lambda: said.append("finished"))
    assert said == ["finished"]


def of_ours(number: int = 10, frame: object = None) -> None:
    raise ValueError(number, frame)


@pytest.mark.parametrize("fail", [of_ours, lambda: of_ours(15, "no frame"), lambda: of_ours(15, object())])
def test_an_error_of_ours_goes_no_further(fail):
    with pytest.raises(ValueError) as caught:
        fail()
    assert not is_of_handler(caught.value)
    let_pass(caught.value)
    with suppress_ours():
        fail()
    harmless.quietly(fail)()

"""Servers to be killed under a scenario: those of `tests/kill`, with messages that wait for nothing, and faults of judging.

Messages about incidents are grouped by time, and a server that comes back has lost some: here none waits, so that what goes out
is what the points say, and nothing else.
"""

import importlib
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "kill"))
os.environ["LOSSGUARD_ALLOW_PRIVATE_WEBHOOKS"] = "true"

import kill_victims

HELD_SECONDS = 1.0


def no_waits() -> None:
    from server.domain import grouping

    for name in ("GROUP_WAIT", "SPACING", "URGENT_SPACING"):
        setattr(grouping, name, timedelta(0))


def state_outside() -> None:
    """Where the rules stand is written down with the next batch, not with the points that brought them there."""
    from server.store import rules

    read, save, held = rules.read_states, rules.save_states, []

    def flush(connection):
        while held:
            save(connection, *held.pop(0))

    def reads(connection, run_id, rank=None):
        flush(connection)
        return read(connection, run_id, rank)

    rules.read_states, rules.save_states = reads, lambda _connection, run_id, states: held.append((run_id, list(states)))


def outbox_outside() -> None:
    """Messages are put in line a second later, in another transaction than the event that they tell of."""
    from server.services import webhooks as service
    from server.store import webhooks

    queue, take, held = webhooks.queue, service.take_due, []

    def queued(*given, **named):
        held.append((time.monotonic() + HELD_SECONDS, given[1:], named))

    def taken(connection, *given):
        while held and held[0][0] < time.monotonic():
            _, late, named = held.pop(0)
            queue(connection, *late, **named)
        return take(connection, *given)

    webhooks.queue, service.take_due = queued, taken


def _at_once(fault):
    def plant():
        no_waits()
        fault()

    return plant


kill_victims.FAULTS |= {
    "none": no_waits,
    "no dedupe, at once": _at_once(kill_victims.no_dedupe),
    "state outside": _at_once(state_outside),
    "outbox outside": _at_once(outbox_outside),
}

if __name__ == "__main__":
    importlib.import_module("server.__main__")
    kill_victims.main()

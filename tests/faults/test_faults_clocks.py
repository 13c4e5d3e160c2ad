"""Time that misbehaves: wall clocks that are wrong or jump, and many agents that were cut off at the same moment."""

import itertools
import json
import math
import random
import statistics
import time
import urllib.request
from collections import Counter
from datetime import datetime

import pytest
from fault_proxy import FaultProxy
from faults_kit import began, new_monitor

from trainer_agent.sending import link
from trainer_agent.wire.messages import RunStart
from trainer_agent.wire.vocabulary import CommandKind, EndReason

DAY, HOUR = 86_400.0, 3600.0
CLOCKS = {
    "right": (0.0, 0.0),
    "a day ahead": (DAY, 0.0),
    "a day behind": (-DAY, 0.0),
    "an hour back in mid-run": (0.0, -HOUR),
    "an hour on in mid-run": (0.0, HOUR),
}


def curve(step: int) -> dict[str, float]:
    """A curve on which rules fire, close, fire again, and stay open."""
    loss = math.nan if step in (40, 90) else 2.0 + 0.01 * (step % 7)
    norm = 40.0 if 60 <= step <= 63 or step > 115 else 1.0 + 0.01 * (step % 5)
    return {"train/loss": loss, "train/grad_norm": norm}


def live(server, folder, monkeypatch, shift: float, jump: float) -> dict:
    """One life under a clock that is off by `shift`, and by `jump` more from the middle on. What the page has of it."""
    real, moved = time.time, [shift]
    with monkeypatch.context() as patch, FaultProxy(server.url) as proxy:
        patch.setattr(time, "time", lambda: real() + moved[0])
        monitor = new_monitor(proxy.url, server.token, folder)
        monitor.start = RunStart(monitor.start.run_id, monitor.start.incarnation, "p", "n", capabilities=(CommandKind.STOP,))
        monitor.spool.start = monitor.start
        began(monitor)
        for step in range(1, 121):
            if step == 60:
                assert monitor.flush(30)
                proxy.refuses, moved[0] = True, shift + jump
                monitor.flush(0.1)
            if step == 80:
                proxy.refuses = False
            monitor.log(curve(step), step)
            time.sleep(0.001)
        begin = time.monotonic()
        assert monitor.flush(30)
        back = time.monotonic() - begin
        stop(server, monitor.start.run_id)
        command = monitor.wait_for_command(60)
        run = server.run_of(monitor.start.run_id)
        heard = datetime.fromisoformat(run["heard_at"]).timestamp()
        monitor.end(EndReason.STOPPED_BY_COMMAND, 120)
        assert abs(heard - real()) < 60, "the server's own clock says when it heard"
    return told(server, monitor.start.run_id) | {"command": command.kind.value, "is back soon": back < 20}


def stop(server, run_id: str) -> None:
    headers = {
        "Authorization": f"Bearer {server.operator}",
        "Idempotency-Key": run_id,
        "Content-Type": "application/json",
        "X-LossGuard": "1",
    }
    body = json.dumps({"kind": "stop", "seen_segment": 1}).encode()
    urllib.request.urlopen(urllib.request.Request(f"{server.url}/api/runs/{run_id}/commands", body, headers), timeout=20).close()


def told(server, run_id: str) -> dict:
    run = server.run_of(run_id)
    keys = (
        "rule_id",
        "series",
        "segment",
        "state",
        "onset_step",
        "firing_step",
        "resolved_step",
        "closed_because",
        "value",
        "text",
    )
    return {
        "state": run["state"],
        "step": run["step"],
        "alerts": sorted([str(alert[key]) for key in keys] for alert in run["alerts"]),
        "events": [(event["type"], event["step"], event["segment"]) for event in reversed(run["events"])],
        "points": [(point["seq"], point["step"], point["value"]) for point in server.points(run_id, "train/loss")],
        "history": [entry["state"] for command in run["commands"] for entry in command["history"]],
    }


def test_f20_a_clock_that_is_wrong_or_jumps_changes_nothing(fault_server, tmp_path, monkeypatch, quick, figure):
    lives = {
        name: live(fault_server, tmp_path / str(number), monkeypatch, *clock)
        for number, (name, clock) in enumerate(CLOCKS.items())
    }
    right = lives.pop("right")
    assert len(right["alerts"]) >= 4
    assert right["history"][:2] == ["queued", "delivered"]
    for name, life in lives.items():
        differing = sum(one != other for key in right for one, other in _pairs(right[key], life[key]))
        figure("F20", f"transitions, points and ends that differ: clock {name}", differing, at_most=0)


def _pairs(left, right):
    return itertools.zip_longest(left, right) if isinstance(left, list) else [(left, right)]


def arrivals(agents: int, outage: float, chance: random.Random | None) -> list[float]:
    """Seconds after the end of an outage at which each agent's first request comes. All were cut off at the same moment."""
    dice = chance.random if chance else lambda: 0.5
    found = []
    for _ in range(agents):
        state = link.step(link.LinkState(), link.Failed(), 0.0, dice)
        while state.try_at < outage:
            state = link.step(state, link.Failed(), state.try_at, dice)
        found.append(state.try_at - outage)
    return found


def busiest(found: list[float]) -> float:
    """The largest share of the agents that comes within one second, wherever that second begins, in per cent."""
    ordered = sorted(found)
    return 100 * max(sum(begin <= each < begin + 1 for each in ordered) for begin in ordered) / len(ordered)


@pytest.mark.parametrize("outage", [60, 600, 3600])
def test_f21_two_hundred_agents_do_not_come_back_at_once(outage, figure):
    shares = [busiest(arrivals(200, outage, random.Random(seed))) for seed in range(10)]
    figure("F21", f"agents in the busiest second after {outage} s, of 10 outages the worst", max(shares), at_most=20, unit="%")
    figure("F21", f"the same, in the median (outage of {outage} s)", statistics.median(shares), unit="%")
    assert busiest(arrivals(200, outage, None)) == 100, "without jitter they would"


def test_the_link_is_up_down_and_up_again_by_what_is_heard_and_nothing_else():
    def walk(*given: link.Input, now: float = 100.0):
        state = link.LinkState()
        for each in given:
            state = link.step(state, each, now, lambda: 0.5)
        return state

    assert walk().is_up
    assert walk(link.Tried()) == link.LinkState()
    assert walk(link.Failed()).wait_seconds(100.0) == 0.5
    assert walk(link.Failed(), link.Failed()).wait_seconds(100.0) == 1.0
    assert walk(link.Failed(), link.Tried()).wait_seconds(100.0) == link.TRY_SECONDS
    assert walk(link.Failed(120.0)).wait_seconds(100.0) == 120.5
    assert walk(link.Refused()).wait_seconds(100.0) == pytest.approx(315.0)
    assert walk(link.Failed(), link.Refused(), link.Heard()) == link.LinkState()
    assert walk(link.Failed()).wait_seconds(99_999.0) == 0.0
    kinds = Counter(walk(*path).is_up for path in itertools.product([link.Heard(), link.Failed(), link.Tried()], repeat=4))
    assert kinds[True] + kinds[False] == 81

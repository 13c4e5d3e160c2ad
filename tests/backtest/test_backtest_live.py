"""A backtest over stored points makes the same episodes as the server made of the same points as they came."""

import os
from dataclasses import asdict
from random import Random

import pytest
from backtest_kit import ALL_RULES, BY_GUARD, NOW, QUICK_RULES, Training, rule, train_at_random
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from judging_kit import use_rules

from server.domain import backtest as domain
from server.domain.backtest import replay
from server.domain.judging import ALL_RANKS
from server.store import alerts, backtest_recordings, rules
from server.store import runs as run_store
from trainer_agent.wire import series

OF_THE_SERVER = ("onset_at", "firing_at", "resolved_at", "incident_id", "again_after", "run_id", "told")
"""What only the server writes down: times, and what became of an episode among people."""


def told(found):
    """Episodes as text, since NaN equals nothing; in an order of their own, since ranks come in any."""
    kept = [{name: value for name, value in asdict(each).items() if name not in OF_THE_SERVER} for each in found]
    return sorted(str({name: _stored(value) for name, value in each.items()}) for each in kept)


def _stored(value):
    """As the database gives it back: its numbers are floats."""
    if isinstance(value, dict):
        return {name: float(each) for name, each in value.items()}
    return float(value) if type(value) is int else value


def live_of(connection):
    found = alerts.read_alerts(connection, "r", limit=100_000)
    return [
        each for each in found if each.firing_step is not None and not each.series.startswith("run/")
    ]  # by time, not by points


def replayed(connection, run_id="r"):
    run = run_store.get(connection, run_id)
    recording, _ = backtest_recordings.read_recording(connection, run, lambda _: True, 10**9)
    return replay(recording, rules.read_rules(connection, enabled_only=True), NOW).alerts


def same(connection):
    live, again = live_of(connection), replayed(connection)
    assert told(again) == told(live)
    return live


LONG = bool(os.environ.get("LOSSGUARD_SOAK"))
MANY = {
    "deadline": None,
    "phases": [Phase.generate],
    "suppress_health_check": [HealthCheck.function_scoped_fixture],
    "derandomize": True,
}


def check(connection, seed):
    with connection.begin_nested() as transaction:
        use_rules(connection, *(QUICK_RULES if seed % 2 else ALL_RULES))
        train_at_random(Training(connection, ranks=1 + seed % 3 % 2), Random(seed))
        found = same(connection)
        transaction.rollback()
    return found


@pytest.mark.parametrize("backend", ["sqlite"])
def test_random_runs_with_rollbacks_restarts_and_nan_give_the_servers_own_episodes_on_sqlite(connection):
    reasons = set()

    @settings(max_examples=15 if LONG else 8, **MANY)
    @given(seed=st.integers(0, 2**32))
    def random_runs(seed):
        reasons.update(each.closed_because for each in check(connection, seed))

    random_runs()
    assert {None, "recovered", "rewound", "run_ended"} <= reasons  # all ways out were taken


@pytest.mark.parametrize("backend", ["postgresql"])
@settings(max_examples=4 if LONG else 2, **MANY)
@given(seed=st.integers(0, 2**32))
def test_random_runs_give_the_servers_own_episodes_on_postgresql(connection, seed):
    check(connection, seed)


def losses(values, first=1):
    return [(first + at, {series.LOSS: value, series.GRAD_NORM: value}) for at, value in enumerate(values)]


def test_a_run_that_was_rolled_back_twice_gives_the_servers_episodes(connection):
    use_rules(connection, *ALL_RULES)
    training = Training(connection, ranks=1)
    training.start()
    training.log([losses([2.0] * 200 + [50.0, 60.0, 70.0, float("nan")])])
    training.roll_back(150)
    training.log([losses([2.0] * 60 + [float("inf")] * 4, 151)])
    training.roll_back(100)
    training.log([losses([2.0] * 200, 101)])
    training.end()
    found = same(connection)
    assert {each.segment for each in found} == {1, 2}
    assert any(each.closed_because == "rewound" for each in found)


def test_an_episode_that_a_restart_leaves_open_goes_on(connection):
    use_rules(connection, *QUICK_RULES)
    training = Training(connection, ranks=1)
    training.start()
    training.log([losses([2.0] * 10 + [50.0] * 10)])
    training.start(from_step=15)
    training.log([losses([50.0] * 5 + [2.0] * 10, 16)])
    (spike, *_) = [each for each in same(connection) if each.rule_id == "above-10"]
    assert (spike.segment, spike.onset_step, spike.resolved_step) == (1, 11, 23)


def test_what_is_open_closes_where_the_guard_stopped_the_run(connection):
    use_rules(connection, *QUICK_RULES)
    training = Training(connection, ranks=2)
    training.start()
    training.log([losses([2.0] * 5 + [50.0] * 5), losses([2.0] * 10)])
    training.end(BY_GUARD, "3 losses that are not finite")
    ends = {each.resolved_step for each in same(connection) if each.closed_because == "run_ended"}
    assert ends == {10}


def test_leaving_out_the_rewind_is_noticed(connection, monkeypatch):
    use_rules(connection, *QUICK_RULES)
    training = Training(connection, ranks=1)
    training.start()
    training.log([losses([2.0] * 20 + [50.0] * 4)])
    training.roll_back(10)
    training.log([losses([2.0] * 20, 11)])
    same(connection)
    monkeypatch.setattr(domain._Replaying, "_close_rewound", lambda *_: None)
    with pytest.raises(AssertionError):
        same(connection)


def test_points_sealed_into_chunks_and_points_still_in_the_tail_are_read_alike(connection):
    use_rules(connection, *QUICK_RULES)
    training = Training(connection, ranks=1)
    training.start()
    for first in range(1, 2400, 600):
        training.log([losses([2.0 if at % 97 > 2 else 50.0 for at in range(600)], first)])
    assert len(same(connection)) > 20


def test_rules_across_ranks_see_the_points_of_all_of_them(connection):
    use_rules(connection, rule("slow-rank", "straggler", series.STEP_SECONDS))
    training = Training(connection, ranks=3)
    training.start()
    for first in range(1, 400, 20):
        steps = range(first, first + 20)
        training.log([[(step, {series.STEP_SECONDS: 2.0 if rank == 2 else 0.5}) for step in steps] for rank in range(3)])
        if first == 201:
            training.roll_back(220)
    assert [each.rank for each in same(connection)] == [ALL_RANKS]

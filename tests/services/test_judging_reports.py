"""Bugs reported of other products, tried on this one: a restart within `for`, NaN in a condition, one of two writers rewinds."""

import math
from dataclasses import replace

import pytest
from judging_kit import Trainer, alerts_of, told, use_default_rules, use_rules

from server.domain.rules import AlertRule, DetectorKind
from server.store import points as points_store
from server.store.database import Database
from trainer_agent.wire import series
from trainer_agent.wire.vocabulary import AlertState, SegmentCause

NAN, INF = math.nan, math.inf
HIGH = AlertRule(
    "high",
    "Loss is high",
    "Loss high",
    series.LOSS,
    DetectorKind.THRESHOLD,
    {"above": 10.0},
    for_points=10,
    keep_firing_for_points=3,
)


def test_b12_a_server_that_restarts_within_for_remembers_how_long_the_condition_has_held(database_url, clock):
    """prometheus 422."""
    state, trainer, stretches = None, Trainer(None, clock), ([20.0] * 4, [20.0] * 5, [20.0])

    def live(connection, values, first_step):
        trainer.connection = connection
        if first_step == 1:
            use_rules(connection, HIGH)
            trainer.start()
        for step, value in enumerate(values, first_step):
            trainer.log(step, loss=value)
        trainer.send()
        return alerts_of(connection)["high"].state

    for n, (values, expected) in enumerate(zip(stretches, ("pending", "pending", "firing"), strict=True)):
        database = Database.open(database_url)
        database.migrate()
        try:
            state = database.writer.submit(lambda connection, values=values, n=n: live(connection, values, (1, 5, 10)[n]))
        finally:
            database.close()
        assert state == expected


@pytest.mark.parametrize("odd", [NAN, INF, -INF])
def test_b13_a_value_that_is_no_number_neither_fires_nor_ends_a_condition_on_its_size(connection, clock, odd):
    """grafana 40392. That it is no number is what the rule says that is made for it."""
    use_rules(connection, replace(HIGH, for_points=2))
    use_default_rules(connection)
    trainer = Trainer(connection, clock).start()
    for step, value in enumerate([1.0, odd, odd, 20.0, odd, odd, 20.0], 1):
        trainer.log(step, loss=value)
    trainer.send()
    assert (alerts_of(connection)["high"].onset_step, alerts_of(connection)["high"].firing_step) == (4, 7)
    for step in range(8, 30):
        trainer.log(step, loss=odd)
    trainer.send()
    assert alerts_of(connection)["high"].state is AlertState.FIRING, "twenty odd values are no recovery"
    assert alerts_of(connection)["loss-not-finite"].onset_step == 2
    trainer.log(30, loss=1.0).log(31, loss=1.0).log(32, loss=1.0).send()
    assert alerts_of(connection)["high"].state is AlertState.RESOLVED


def values_of(connection, rank):
    """What is stored of the loss of a rank, by segment and step."""
    found = {}
    for trace in points_store.read_points(connection, "run", series.LOSS, rank=rank):
        found.setdefault(trace.segment, {}).update(zip(map(int, trace.step), trace.value.tolist(), strict=True))
    return found


def test_b14_of_two_writers_one_rewinds_and_the_points_of_the_other_stay(connection, clock):
    """tensorboard 1519. A rewind is announced for a rank's own curve, never guessed from a step that went down."""
    use_rules(connection, replace(HIGH, for_points=1))
    first, second = Trainer(connection, clock).start(), Trainer(connection, clock, incarnation="life-1b", rank=1).start()
    for step in range(1, 11):
        first.log(step, loss=1.0)
        second.log(step, loss=20.0)
    first.send()
    second.send()
    again = Trainer(connection, clock, incarnation="life-2", segment=2).start(SegmentCause.RESTART, from_step=4)
    again.log(5, loss=2.0).log(6, loss=2.0).send()
    second.log(11, loss=20.0).send()
    assert values_of(connection, 0) == {1: dict.fromkeys(range(1, 11), 1.0), 2: {5: 2.0, 6: 2.0}}, "nothing is deleted"
    assert values_of(connection, 1) == {1: dict.fromkeys(range(1, 12), 20.0)}
    alert = alerts_of(connection)["high"]
    assert (alert.rank, alert.onset_step, alert.state) == (1, 1, AlertState.FIRING), "its onset lies before the rewind"
    assert "alert.rewound" not in [kind for kind, _ in told(connection)]

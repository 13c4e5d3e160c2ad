"""When an alert fires and recovers: a table of small series, and the reports of other tools' users that it answers.

A series is written as the steps and values of one metric; `x` stands for a value over the limit of 10, `X` for the limit itself.
"""

import math

import pytest
from judging_kit import Trainer, alerts_of, data_of, told, use_default_rules, use_rules

from server.domain import judging
from server.domain.alerts import CloseReason
from server.domain.points import Point
from server.domain.rules import AlertRule, DetectorKind
from server.services import rules
from server.store import alerts as alerts_store
from server.store import points as points_store
from server.store import rules as rules_store
from trainer_agent.wire.vocabulary import AlertState, SegmentCause

NAN, INF = math.nan, math.inf
HIGH = 20.0
VALUES = {"x": HIGH, "X": 10.0, ".": 1.0, "n": NAN, "i": INF, "-": -INF}


def rule(for_points=1, keep=1, detector=DetectorKind.THRESHOLD, **change):
    settings = {"above": 10.0} if detector is DetectorKind.THRESHOLD else {}
    return AlertRule("high", "High", "High", "train/loss", detector, settings, for_points, keep, **change)


def transitions(the_rule, points):
    """Step and state after each point that changes the alert."""
    judged = judging.Judging("run", "p", 0, [the_rule])
    made = [Point("train/loss", 1, 0, seq, step, 0.0, value) for seq, (step, value) in enumerate(points, 1)]
    return [(change.point.step, str(change.outcome.after or "none")) for point in made for change in judged.judge(point)]


def series(text, every=1):
    return [(step * every, VALUES[sign]) for step, sign in enumerate(text, 1)]


F, P, R, E = "firing", "pending", "recovering", "resolved"  # fires, pends, recovers, ends

TABLE = [
    # for = 1
    ("for 1: the first point fires", 1, 1, series("..x"), [(3, F)]),
    ("for 1: the very first point fires", 1, 1, series("x"), [(1, F)]),
    ("for 1: the limit itself is within it", 1, 1, series("XXX"), []),
    ("for 1: just over the limit is over", 1, 1, [(1, math.nextafter(10.0, 11))], [(1, F)]),
    ("for 1: just under the limit is not", 1, 1, [(1, math.nextafter(10.0, 9))], []),
    ("for 1: one good point ends it", 1, 1, series("x.x."), [(1, F), (2, E), (3, F), (4, E)]),
    ("for 1: keep 0 ends it at the first good point", 1, 0, series("x."), [(1, F), (2, E)]),
    ("for 1: keep 3 waits for three", 1, 3, series("x..x..."), [(1, F), (2, R), (4, F), (5, R), (7, E)]),
    ("for 1: the limit itself is a good point", 1, 1, series("xX"), [(1, F), (2, E)]),
    ("for 1: an empty series", 1, 1, [], []),
    ("for 1: a single good point", 1, 1, series("."), []),
    # what cannot be judged
    ("a NaN neither fires a threshold nor ends it", 1, 1, series("nxn.n"), [(2, F), (4, E)]),
    ("infinities are not for a threshold", 1, 1, series("ii-"), []),
    ("a NaN does not break what is pending", 3, 1, series("xnxnx"), [(1, P), (5, F)]),
    ("a NaN does not count as good", 1, 2, series("x.n."), [(1, F), (2, R), (4, E)]),
    ("all NaN", 3, 1, series("nnnnnn"), []),
    # for = 3
    ("for 3: the third in a row fires", 3, 1, series("xxx"), [(1, P), (3, F)]),
    ("for 3: two are not enough", 3, 1, series("xx.xx."), [(1, P), (3, "none"), (4, P), (6, "none")]),
    ("for 3: begins again after a good point", 3, 1, series("xx.xxx"), [(1, P), (3, "none"), (4, P), (6, F)]),
    ("for 3: the limit itself breaks the row", 3, 1, series("xxXxxx"), [(1, P), (3, "none"), (4, P), (6, F)]),
    ("for 3: a gap in the steps does not", 3, 1, [(1, HIGH), (50, HIGH), (900, HIGH)], [(1, P), (900, F)]),
    ("for 3: a step counts once, whatever is logged at it", 3, 1, [(1, HIGH)] * 5, [(1, P)]),
    ("for 3: repeats between others", 3, 1, [(1, HIGH), (1, HIGH), (2, HIGH), (2, HIGH), (3, HIGH)], [(1, P), (3, F)]),
    ("for 3: the worst of a step counts", 3, 1, [(1, HIGH), (1, 1.0), (2, HIGH), (2, 1.0), (3, HIGH)], [(1, P), (3, F)]),
    ("for 3: a step that comes late counts no more", 3, 1, [(5, HIGH), (3, HIGH), (4, HIGH)], [(5, P)]),
    ("for 3: once it fires every point keeps it", 3, 1, series("xxxxxx."), [(1, P), (3, F), (7, E)]),
    ("for 3: it fires again only after three more", 3, 1, series("xxx.x.xxx"),
        [(1, P), (3, F), (4, E), (5, P), (6, "none"), (7, P), (9, F)]),
    ("for 3: recovering goes back at the first bad point", 3, 3, series("xxx..x..."),
        [(1, P), (3, F), (4, R), (6, F), (7, R), (9, E)]),
    ("keep 2: good points of one step count once", 1, 2, [(1, HIGH), (2, 1.0), (2, 1.0), (3, 1.0)], [(1, F), (2, R), (3, E)]),
    ("keep 2: bad news at a step that looked good", 1, 2, [(1, HIGH), (2, 1.0), (2, HIGH), (3, 1.0)],
        [(1, F), (2, R), (2, F), (3, R)]),
    # for = 10
    ("for 10: nine are not enough", 10, 1, series("xxxxxxxxx."), [(1, P), (10, "none")]),
    ("for 10: the tenth fires", 10, 1, series("xxxxxxxxxx"), [(1, P), (10, F)]),
    ("for 10: with gaps", 10, 1, series("xxxxxxxxxx", every=100), [(100, P), (1000, F)]),
    ("for 10: with NaN between", 10, 1, series("xnxnxnxnxnxnxnxnxnx"), [(1, P), (19, F)]),
]  # fmt: skip


@pytest.mark.parametrize(("for_points", "keep", "points", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_golden_table(for_points, keep, points, expected):
    assert transitions(rule(for_points, keep), points) == expected


def test_the_table_has_thirty_series():
    assert len(TABLE) >= 30


def test_a_nonfinite_rule_fires_at_each_kind_and_no_number_ends_it_before_its_time():
    for sign in "ni-":
        assert transitions(rule(1, 2, DetectorKind.NONFINITE), series(f"..{sign}..")) == [(3, F), (4, R), (5, E)]


def test_an_alert_that_comes_and_goes_a_thousand_times_is_one_alert(connection, clock):
    """R3: 1,000 points, bad and good in turn, keep 10: one firing, and one end after ten good ones."""
    use_rules(connection, rule(1, 10))
    trainer = Trainer(connection, clock).start()
    for step in range(1, 1001):
        trainer.log(step, loss=HIGH if step % 2 else 1.0)
    trainer.send(*range(50, 1000, 50))
    assert told(connection, prefix="alert") == [("alert.firing", 1)]
    for step in range(1001, 1010):
        trainer.log(step, loss=1.0)
    trainer.send()
    assert told(connection, prefix="alert") == [("alert.firing", 1), ("alert.resolved", 1009)]


def test_a_coarse_series_is_judged_on_its_own_points(connection, clock):
    """R4: logged every 500 steps, three bad in a row: fires at the third, and the steps between say nothing."""
    use_rules(connection, AlertRule("eval", "E", "E", "eval/loss", DetectorKind.THRESHOLD, {"above": 10.0}, 3, 1))
    trainer = Trainer(connection, clock).start()
    for step in range(10, 2001, 10):
        values = {"train/loss": 1.0} | ({"eval/loss": HIGH} if step % 500 == 0 else {})
        trainer.records.append((1, step, values))
    trainer.send(*range(7, 200, 7))
    assert told(connection, prefix="alert") == [("alert.firing", 1500)]
    assert alerts_of(connection)["eval"].state is AlertState.FIRING


def fires(connection, clock, the_rule):
    use_rules(connection, the_rule)
    trainer = Trainer(connection, clock).start()
    for step in range(1, 4):
        trainer.log(step, loss=HIGH)
    return trainer.send()


@pytest.mark.parametrize(
    ("change", "state", "again"),
    [
        ({"settings": {"above": 50.0}}, AlertState.RESOLVED, False),
        ({"settings": {"above": 5.0}}, AlertState.RESOLVED, True),
        ({"name": "Other", "title": "Other", "reason": "said better"}, AlertState.FIRING, False),
    ],
)
def test_a_threshold_put_up_or_down_closes_what_is_open_and_other_words_close_nothing(connection, clock, change, state, again):
    """R16."""
    trainer = fires(connection, clock, rule())
    rules.change(connection, "high", change, "ann", clock())
    (alert,) = alerts_store.read_alerts(connection, "run")
    assert alert.state is state
    if state is AlertState.RESOLVED:
        assert (alert.closed_because, alert.resolved_step) == (CloseReason.RULE_CHANGED, 3)
    assert [kind for kind, _ in told(connection, prefix="alert")] == ["alert.firing"]
    trainer.log(4, loss=HIGH).send()
    assert [kind for kind, _ in told(connection, prefix="alert")] == ["alert.firing"] * (2 if again else 1)


def test_other_words_for_a_rule_leave_it_where_it_stands(connection, clock):
    use_rules(connection, rule(3))
    trainer = Trainer(connection, clock).start().log(1, loss=HIGH).log(2, loss=HIGH).send()
    rules.change(connection, "high", {"name": "Other"}, "ann", clock())
    trainer.log(3, loss=HIGH).send()
    assert told(connection, prefix="alert") == [("alert.firing", 3)]


def test_a_server_that_starts_again_while_a_condition_holds_counts_on(database, clock):
    """B12: another tool forgot with each restart how long a condition had held."""
    database.writer.submit(lambda c: use_rules(c, rule(5)))
    trainer = Trainer(None, clock)

    def with_server(act):
        def work(connection):
            trainer.connection = connection
            act()

        database.writer.submit(work)  # each in a transaction of its own; nothing else is kept between them

    with_server(trainer.start)
    for step in range(1, 6):
        with_server(lambda step=step: trainer.log(step, loss=HIGH).send())
        with database.reading() as connection:
            fired = told(connection, prefix="alert")
        assert fired == ([("alert.firing", 5)] if step == 5 else [])


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_what_is_no_number_makes_one_alert_and_its_value_stays_what_it_is(connection, clock, value):
    """B13: elsewhere a NaN made an alert fire, or not, in a way that nobody had chosen."""
    use_default_rules(connection)
    Trainer(connection, clock).start().log(1, loss=2.0).log(2, loss=value).log(3, loss=2.0).send()
    fired = data_of(connection, "alert.firing")
    assert [each["rule_id"] for each in fired] == ["loss-not-finite"]
    assert fired[0]["value"] in {"NaN", "Infinity", "-Infinity"}


def test_of_two_writers_one_rewinds_and_no_point_of_the_other_is_lost_or_judged_otherwise(connection, clock):
    """B14: elsewhere the restart of one writer took good points of the other away."""
    use_rules(connection, rule(3), AlertRule("rises", "R", "R", "train/loss", DetectorKind.CONSECUTIVE_RISE, {"rises": 4.0}))
    one, other = Trainer(connection, clock).start(), Trainer(connection, clock, rank=1, incarnation="life-b").start()
    for step in range(1, 9):
        one.log(step, loss=1.0)
        other.log(step, loss=float(step))
    one.send()
    other.send()
    before = rules_store.read_states(connection, "run", 1)
    one.open_segment(2, 4).log(5, loss=1.0).send()
    assert rules_store.read_states(connection, "run", 1) == before
    traces = points_store.read_points(connection, "run", "train/loss", rank=1)
    assert sorted(step for trace in traces for step in trace.step) == list(range(1, 9))
    other.open_segment(2, 4).log(5, loss=5.0).send()
    states = {each.rule_id: each for each in rules_store.read_states(connection, "run", 1)}
    assert (states["rises"].segment, states["rises"].state["detector"]["rises"]) == (2, 4)


def test_a_rule_that_fires_after_each_rollback_says_after_which(connection, clock):
    """R15: a curve that diverges after each of three rollbacks."""
    use_rules(connection, rule())
    trainer = Trainer(connection, clock).start()
    for segment in range(1, 5):
        if segment > 1:
            trainer.open_segment(segment, 4, SegmentCause.ROLLBACK)
        trainer.log(5, loss=1.0).log(6, loss=HIGH)
    trainer.send()
    found = sorted(alerts_store.read_alerts(connection, "run"), key=lambda alert: alert.segment)
    assert [(each.segment, each.again_after) for each in found] == [(1, None), (2, 2), (3, 3), (4, 4)]

"""A rewind judges again only what came after a snapshot; where no snapshot can be gone on from, all of it."""

from dataclasses import replace

import pytest
import sqlalchemy as sa
from judging_kit import Trainer, use_default_rules, use_rules

from server.domain.rules import AlertRule, DetectorKind
from server.services import rewinding
from server.store import rules as rules_store
from server.store import snapshots
from server.store.tables import rule_snapshots
from trainer_agent.wire.vocabulary import EndReason, SegmentCause

APART = 10
RISES = AlertRule("rises", "Rises", "Rises", "train/loss", DetectorKind.CONSECUTIVE_RISE, {"rises": 500.0})
"""It counts every rise of the run, so its state tells which points it has seen."""


@pytest.fixture
def judged(monkeypatch):
    """How many points each rewind has judged again."""
    counts, read = [], rewinding.kept_points

    def counted(*given, **named):
        points = read(*given, **named)
        counts.append(len(points))
        return points

    monkeypatch.setattr(rewinding, "kept_points", counted)
    monkeypatch.setattr(rewinding, "SNAPSHOT_RECORDS", APART)
    return counts


def rising(connection, clock, first, last, trainer=None):
    """A loss that rises with each step, sent record by record."""
    trainer = trainer or Trainer(connection, clock).start()
    for step in range(first, last + 1):
        trainer.log(step, loss=1.0 + step / 1000).send()
    return trainer


def rises(connection):
    (state,) = rules_store.read_states(connection, "run", 0)
    return state.state["detector"]


def places(connection, rank=0):
    query = sa.select(rule_snapshots.c.segment, rule_snapshots.c.top_step).where(rule_snapshots.c.rank == rank)
    return sorted(map(tuple, connection.execute(query)))


def test_a_rewind_judges_what_came_after_the_newest_snapshot_before_it(connection, clock, judged):
    use_rules(connection, RISES)
    trainer = rising(connection, clock, 1, 95)
    straight = rises(connection)
    trainer.open_segment(2, 93).send()
    assert judged == [5]  # since step 88, which is record 89: the first one opened the segment
    rising(connection, clock, 94, 95, trainer)
    assert rises(connection) == straight


def test_a_restart_where_nothing_is_taken_back_judges_next_to_nothing(connection, clock, judged):
    use_rules(connection, RISES)
    rising(connection, clock, 1, 88)
    trainer = Trainer(connection, clock, incarnation="life-2", segment=2).start(SegmentCause.RESTART, 88).send()
    assert judged == [0]
    rising(connection, clock, 89, 98, trainer)
    trainer.open_segment(3, 97).send()
    assert judged == [0, 1]  # life 2 counts its records from 1: its snapshot is at step 96


def test_what_a_rollback_takes_back_is_forgotten_and_no_more_than_some_are_kept(connection, clock, judged):
    use_rules(connection, RISES)
    trainer = rising(connection, clock, 1, 10 * (snapshots.KEPT + 5))
    assert len(places(connection)) == snapshots.KEPT
    newest = max(top for _, top in places(connection))
    trainer.open_segment(2, newest - 25).send()
    assert max(top for _, top in places(connection)) <= newest - 25
    trainer.open_segment(3, 3).send()
    assert (places(connection), judged[-1]) == ([], 3), "so far back all is judged again"


def test_a_rule_that_was_changed_since_is_judged_from_the_start_and_the_others_are_not(connection, clock, judged):
    other = replace(RISES, rule_id="other", name="Other")
    use_rules(connection, RISES, other)
    trainer = rising(connection, clock, 1, 90)
    assert rules_store.save_rule(connection, replace(RISES, version=2, edited=True), 1)
    rising(connection, clock, 91, 92, trainer)
    trainer.open_segment(2, 91).send()
    assert sorted(judged) == [3, 91]


def test_a_snapshot_that_cannot_be_read_is_passed_over(connection, clock, judged, monkeypatch, caplog):
    use_rules(connection, RISES)
    trainer = rising(connection, clock, 1, 90)
    monkeypatch.setattr(rewinding.watching, "from_parsed", lambda *_: 1 / 0)
    rewinding.rewound(connection, rewinding.Rewind("run", 2, 89, SegmentCause.ROLLBACK), [(("rises", "train/loss", 0), RISES)])
    assert judged == [89]
    assert "cannot be read" in caplog.text
    assert trainer.segment == 1


def test_each_rank_has_its_own(connection, clock, judged):
    use_rules(connection, RISES)
    rising(connection, clock, 1, 30)
    rising(connection, clock, 1, 30, Trainer(connection, clock, rank=1, incarnation="other").start())
    assert places(connection, 0) == places(connection, 1) != []


def test_a_rank_that_hears_of_a_rollback_late_keeps_its_own_in_the_new_segment_too(connection, clock, judged):
    use_rules(connection, RISES)
    leader = rising(connection, clock, 1, 30)
    other = rising(connection, clock, 1, 30, Trainer(connection, clock, rank=1, incarnation="other").start())
    leader.open_segment(2, 25).send()
    rising(connection, clock, 31, 33, other)
    other.open_segment(2, 25).send()
    rising(connection, clock, 26, 60, other)
    assert {segment for segment, _ in places(connection, 1)} == {1, 2}
    leader.open_segment(3, 58).send()
    other.open_segment(3, 58).send()
    assert judged[-1] < APART


def ends_after_a_late_backlog(connection, clock, back, late_from):
    """Where the rules stand when the last points of a killed process come while the next one is at step 40 and is rolled back."""
    with connection.begin_nested() as attempt:
        killed = Trainer(connection, clock).start()
        for step in range(1, 9):
            killed.log(step, loss=float(step), grad_norm=1.0)
        killed.take(1, late_from)
        following = Trainer(connection, clock, incarnation="life-2", segment=2).start(SegmentCause.RESTART, 8).send()
        for step in range(9, 41):
            following.log(step, loss=float(step), grad_norm=1.0).send()
        killed.take(late_from + 1, len(killed.records))
        for step in range(41, 47):
            following.log(step, loss=float(step), grad_norm=1.0).send()
        following.open_segment(3, back).send()
        found = [(each.rule_id, each.series, each.segment, each.state) for each in rules_store.read_states(connection, "run")]
        attempt.rollback()
    return found


@pytest.mark.parametrize("back", [6, 10, 20, 43])
@pytest.mark.parametrize("late_from", [3, 6])
def test_points_that_come_late_from_a_killed_process_count_from_the_next_rewind_on(
    connection, clock, judged, monkeypatch, back, late_from
):
    use_default_rules(connection)
    monkeypatch.setattr(rewinding, "SNAPSHOT_RECORDS", 5)
    by_snapshots = ends_after_a_late_backlog(connection, clock, back, late_from)
    monkeypatch.setattr(rewinding, "SNAPSHOT_RECORDS", 10**6)
    assert by_snapshots == ends_after_a_late_backlog(connection, clock, back, late_from)


def restarted_after_a_backlog(connection, clock, back):
    """Where the rules stand in a third life, when the last points of the first one came after the second had ended."""
    with connection.begin_nested() as attempt:
        killed = Trainer(connection, clock).start()
        for step in range(1, 9):
            killed.log(step, loss=float(step), grad_norm=1.0)
        killed.take(1, 4)
        following = Trainer(connection, clock, incarnation="life-2", segment=2).start(SegmentCause.RESTART, 8).send()
        for step in range(9, 41):
            following.log(step, loss=float(step), grad_norm=1.0).send()
        following.end(EndReason.FAILED).send()
        killed.take(5, len(killed.records))
        Trainer(connection, clock, incarnation="life-3", segment=3).start(SegmentCause.RESTART, back).send()
        found = [(each.rule_id, each.series, each.segment, each.state) for each in rules_store.read_states(connection, "run")]
        attempt.rollback()
    return found


@pytest.mark.parametrize("back", [6, 20, 40])
def test_points_that_come_when_the_run_has_ended_count_from_the_next_start_on(connection, clock, judged, monkeypatch, back):
    use_default_rules(connection)
    monkeypatch.setattr(rewinding, "SNAPSHOT_RECORDS", 5)
    by_snapshots = restarted_after_a_backlog(connection, clock, back)
    monkeypatch.setattr(rewinding, "SNAPSHOT_RECORDS", 10**6)
    assert by_snapshots == restarted_after_a_backlog(connection, clock, back)

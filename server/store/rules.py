"""Rules, and where each stands on each series and rank of a run."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from server.domain.rules import AlertRule, rule_from_json, rule_to_json

from .tables import rule_states, rules, runs, series_summaries
from .upserts import upsert

OWN_FROM = 1_000
"""The position of the first rule of people's own: those of the pack come before, in the pack's order."""

# Made once: these are run with every batch, and building a statement costs more than running it.
_ALL = sa.select(rules.c.body).order_by(rules.c.position, rules.c.rule_id)
_JUDGED = _ALL.where(rules.c.enabled, rules.c.failure.is_(None))
_s = rule_states.c
_STATES = sa.select(rule_states).where(_s.run_id == sa.bindparam("of_run")).order_by(_s.rule_id, _s.series, _s.rank)
_STATES_OF_RANK = _STATES.where(_s.rank == sa.bindparam("of_rank"))


@lru_cache(maxsize=1024)
def _parse(body: str) -> AlertRule:
    """Rules are read with each batch and change once a month."""
    return rule_from_json(json.loads(body))


def _dump(rule: AlertRule) -> str:
    return json.dumps(rule_to_json(rule), allow_nan=False)


def read_rules(connection: sa.Connection, *, enabled_only: bool = False) -> tuple[AlertRule, ...]:
    """All rules in the order in which the page lists them; only those that are on and have not failed where asked for."""
    return tuple(_parse(body) for body in connection.execute(_JUDGED if enabled_only else _ALL).scalars())


def read_rule(connection: sa.Connection, rule_id: str) -> AlertRule | None:
    """One rule; None when there is none of that id."""
    body = connection.execute(sa.select(rules.c.body).where(rules.c.rule_id == rule_id)).scalar_one_or_none()
    return None if body is None else _parse(body)


def read_failures(connection: sa.Connection) -> dict[str, dict[str, Any]]:
    """The rules that are judged no more, by id, and why: see `fail`."""
    query = sa.select(rules.c.rule_id, rules.c.failure).where(rules.c.failure.is_not(None))
    return {row.rule_id: json.loads(row.failure) for row in connection.execute(query)}


def add_missing(connection: sa.Connection, pack: Iterable[AlertRule]) -> int:
    """Insert the rules of `pack` whose ids are not there yet, at their places in it. How many were inserted.

    None where another server process inserts them at the same moment.
    """
    known = set(connection.execute(sa.select(rules.c.rule_id)).scalars())
    rows = [_row(rule, place) for place, rule in enumerate(pack) if rule.rule_id not in known]
    if not rows:
        return 0
    try:
        with connection.begin_nested():
            connection.execute(sa.insert(rules), rows)
    except sa.exc.IntegrityError:
        return 0
    return len(rows)


def add_rule(connection: sa.Connection, rule: AlertRule) -> None:
    """Keep a rule of a person's own, behind all others."""
    last = connection.execute(sa.select(sa.func.max(rules.c.position))).scalar() or 0
    connection.execute(sa.insert(rules), _row(rule, max(OWN_FROM, last + 1)))


def _row(rule: AlertRule, position: int) -> dict[str, Any]:
    return {
        "rule_id": rule.rule_id,
        "position": position,
        "version": rule.version,
        "enabled": rule.enabled,
        "body": _dump(rule),
    }


def place(connection: sa.Connection, order: Iterable[str]) -> None:
    """Put the rules of the pack in its order."""
    placed = {row.rule_id: row.position for row in connection.execute(sa.select(rules.c.rule_id, rules.c.position))}
    for position, rule_id in enumerate(order):
        if placed.get(rule_id, position) != position:
            connection.execute(sa.update(rules).where(rules.c.rule_id == rule_id).values(position=position))


def save_rule(connection: sa.Connection, rule: AlertRule, previous_version: int) -> bool:
    """Replace the rule where it still has `previous_version`, failed or not; False when somebody else was quicker."""
    mine = (rules.c.rule_id == rule.rule_id, rules.c.version == previous_version)
    values = {"version": rule.version, "enabled": rule.enabled, "body": _dump(rule), "failure": None}
    return connection.execute(sa.update(rules).where(*mine).values(values)).rowcount == 1


def rename(connection: sa.Connection, rule: AlertRule, previous_version: int) -> bool:
    """Replace the words of the rule, and carry over where it stands everywhere; False when somebody else was quicker."""
    mine = (rules.c.rule_id == rule.rule_id, rules.c.version == previous_version)
    values = {"version": rule.version, "body": _dump(rule)}
    if connection.execute(sa.update(rules).where(*mine).values(values)).rowcount != 1:
        return False
    stands = (_s.rule_id == rule.rule_id, _s.rule_version == previous_version)
    connection.execute(sa.update(rule_states).where(*stands).values(rule_version=rule.version))
    return True


def remove_rule(connection: sa.Connection, rule_id: str) -> None:
    """Forget a rule and where it stands."""
    connection.execute(sa.delete(rules).where(rules.c.rule_id == rule_id))
    connection.execute(sa.delete(rule_states).where(_s.rule_id == rule_id))


def fail(connection: sa.Connection, rule_id: str, version: int, failure: Mapping[str, Any]) -> bool:
    """Have the rule judged no more, and keep why; False where that is known, or the rule has changed meanwhile."""
    mine = (rules.c.rule_id == rule_id, rules.c.version == version, rules.c.failure.is_(None))
    text = json.dumps(failure, allow_nan=False)
    return connection.execute(sa.update(rules).where(*mine).values(failure=text)).rowcount == 1


@dataclass(frozen=True, slots=True)
class StoredState:
    """Where one rule stands on one series of one rank: `state` is parsed JSON, made of the segment's points so far."""

    rule_id: str
    series: str
    rank: int
    rule_version: int
    segment: int
    state: Mapping[str, Any]


def read_states(connection: sa.Connection, run_id: str, rank: int | None = None) -> tuple[StoredState, ...]:
    """The states of one rank of a run, or of all."""
    rows = connection.execute(_STATES if rank is None else _STATES_OF_RANK, {"of_run": run_id, "of_rank": rank})
    return tuple(
        StoredState(row.rule_id, row.series, row.rank, row.rule_version, row.segment, json.loads(row.state)) for row in rows
    )


def save_states(connection: sa.Connection, run_id: str, states: Iterable[StoredState]) -> None:
    """Write states, replacing what was there."""
    rows = [
        {
            "run_id": run_id,
            "rule_id": each.rule_id,
            "series": each.series,
            "rank": each.rank,
            "rule_version": each.rule_version,
            "segment": each.segment,
            "state": json.dumps(each.state, allow_nan=False, separators=(",", ":")),
        }
        for each in states
    ]
    upsert(connection, rule_states, rows)


def forget_states(connection: sa.Connection, run_id: str, rule_ids: Collection[str], rank: int) -> None:
    """Remove the states of some rules at one rank of a run."""
    mine = (_s.run_id == run_id, _s.rule_id.in_(list(rule_ids)), _s.rank == rank)
    connection.execute(sa.delete(rule_states).where(*mine))


def read_notes(connection: sa.Connection, rank: int) -> tuple[tuple[str, int, str, str], ...]:
    """Rule, version, run and the run's name of every state at a rank that stands for a note; the newest run first."""
    query = sa.select(_s.rule_id, _s.rule_version, _s.run_id, runs.c.name).where(_s.rank == rank, runs.c.run_id == _s.run_id)
    rows = connection.execute(query.order_by(runs.c.heard_at.desc(), _s.run_id))
    return tuple((row.rule_id, row.rule_version, row.run_id, row.name) for row in rows)


def seen_series(connection: sa.Connection, run_id: str, names: Collection[str]) -> frozenset[str]:
    """Those of `names` of which the run has a point, of whichever rank."""
    c = series_summaries.c
    query = sa.select(c.series).where(c.run_id == run_id, c.series.in_(list(names)))
    return frozenset(connection.execute(query).scalars())

"""Rules, and where each stands on each series and rank of a run."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from server.domain.rules import AlertRule, rule_from_json, rule_to_json

from .tables import rule_states, rules
from .upserts import upsert

# Made once: these are run with every batch, and building a statement costs more than running it.
_ALL = sa.select(rules.c.body).order_by(rules.c.position, rules.c.rule_id)
_ENABLED = _ALL.where(rules.c.enabled)
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
    """All rules in the order in which the page lists them."""
    return tuple(_parse(body) for body in connection.execute(_ENABLED if enabled_only else _ALL).scalars())


def read_rule(connection: sa.Connection, rule_id: str) -> AlertRule | None:
    """One rule; None when there is none of that id."""
    body = connection.execute(sa.select(rules.c.body).where(rules.c.rule_id == rule_id)).scalar_one_or_none()
    return None if body is None else _parse(body)


def add_missing(connection: sa.Connection, pack: Iterable[AlertRule]) -> int:
    """Insert the rules of `pack` whose ids are not there yet, behind those that are. How many were inserted.

    None where another server process inserts them at the same moment.
    """
    known = set(connection.execute(sa.select(rules.c.rule_id)).scalars())
    rows = [
        {
            "rule_id": rule.rule_id,
            "position": len(known) + place,
            "version": rule.version,
            "enabled": rule.enabled,
            "body": _dump(rule),
        }
        for place, rule in enumerate(rule for rule in pack if rule.rule_id not in known)
    ]
    if not rows:
        return 0
    try:
        with connection.begin_nested():
            connection.execute(sa.insert(rules), rows)
    except sa.exc.IntegrityError:
        return 0
    return len(rows)


def save_rule(connection: sa.Connection, rule: AlertRule, previous_version: int) -> bool:
    """Replace the rule where it still has `previous_version`; False when somebody else was quicker."""
    mine = (rules.c.rule_id == rule.rule_id, rules.c.version == previous_version)
    values = {"version": rule.version, "enabled": rule.enabled, "body": _dump(rule)}
    return connection.execute(sa.update(rules).where(*mine).values(values)).rowcount == 1


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

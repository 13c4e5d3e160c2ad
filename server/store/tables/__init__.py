"""Every table, the same on SQLite and PostgreSQL.

Keys begin with the run (or stand for no run at all), so that a database can be spread by run.

Numbers that may be non-finite live in float64 blobs: SQLite turns a NaN into NULL, so no such column is ever a `Double`.
Times are whole microseconds since the epoch, UTC: exact on both databases.
"""

from server.store.columns import metadata

from .curves import point_batches, point_chunks, series_summaries, step_samples
from .entry import sessions, sign_in_codes, tokens
from .judging import alerts, backtests, incidents, rule_snapshots, rule_states, rules, silences
from .orders import checkpoints, command_keys, commands, countdowns
from .running import incarnations, runs, segments
from .telling import deliveries, delivery_attempts, events, pulses, webhooks

__all__ = [
    "alerts",
    "backtests",
    "checkpoints",
    "command_keys",
    "commands",
    "countdowns",
    "deliveries",
    "delivery_attempts",
    "events",
    "incarnations",
    "incidents",
    "metadata",
    "point_batches",
    "point_chunks",
    "pulses",
    "rule_snapshots",
    "rule_states",
    "rules",
    "runs",
    "segments",
    "series_summaries",
    "sessions",
    "sign_in_codes",
    "silences",
    "step_samples",
    "tokens",
    "webhooks",
]

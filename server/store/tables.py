"""Every table, the same on SQLite and PostgreSQL.

Keys begin with the run (or stand for no run at all), so that a database can be spread by run.

Numbers that may be non-finite live in float64 blobs: SQLite turns a NaN into NULL, so no such column is ever a `Double`.
Times are whole microseconds since the epoch, UTC: exact on both databases.
"""

import sqlalchemy as sa

from .columns import Id, Json, Name, UtcTime, Word
from .columns import metadata as metadata  # noqa: PLC0414  with all tables in it: whoever takes it from here means that

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("owner_token_id", Id, nullable=False),
    sa.Column("project", Name, nullable=False),
    sa.Column("name", Name, nullable=False),
    sa.Column("state", Word, nullable=False),
    sa.Column("state_reason", sa.Text, nullable=False, default=""),
    sa.Column("deadline_at", UtcTime, index=True),
    sa.Column("phase", Word),
    sa.Column("step", sa.BigInteger),
    sa.Column("total_steps", sa.BigInteger),
    sa.Column("segment", sa.Integer, nullable=False, default=1),
    sa.Column("world_size", sa.Integer, nullable=False, default=1),
    sa.Column("host", Name, nullable=False, default=""),
    sa.Column("integration", Word, nullable=False, default=""),
    sa.Column("capabilities", Json, nullable=False, default="[]"),
    sa.Column("incapable_because", sa.Text, nullable=False, default=""),
    sa.Column("data_modes", Json, nullable=False, default='["replay", "skip"]'),
    sa.Column("data_modes_because", sa.Text, nullable=False, default=""),
    sa.Column("automatic_rollback", sa.Boolean, nullable=False, default=False),
    sa.Column("attributes", Json, nullable=False, default="{}"),
    sa.Column("latest", Json, nullable=False, default="{}"),  # of the last heartbeat: shown, never judged
    sa.Column("dropped_records", sa.BigInteger, nullable=False, default=0),
    sa.Column("save_failure", Json),  # the last one; None once a later save has succeeded
    sa.Column("stepped_at", UtcTime),  # by the server's clock: when the newest step came
    sa.Column("phase_since", UtcTime),
    sa.Column("pace", Json),  # what the limit for a stall follows from: see domain/detectors/absence.py
    sa.Column("look_at", UtcTime, index=True),  # when the worker looks again whether it steps, and whether a hold is over
    sa.Column("hold", Json),  # no automatic action meanwhile: who said so, until when, why; None where nobody has
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("heard_at", UtcTime, nullable=False, index=True),
    sa.Column("ended_at", UtcTime),
    sa.Column("revision", sa.BigInteger, nullable=False, default=0),
)

incarnations = sa.Table(
    "incarnations",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("incarnation", Id, primary_key=True),
    sa.Column("rank", sa.Integer, primary_key=True),
    sa.Column("next_seq", sa.BigInteger, nullable=False, default=1),
    sa.Column("made_seq", sa.BigInteger, nullable=False, default=0),  # records it had made by what it said last: a backlog
    sa.Column("host", Name, nullable=False, default=""),
    sa.Column("pid", sa.BigInteger, nullable=False, default=0),
    sa.Column("started_at", UtcTime, nullable=False),
    sa.Column("heard_at", UtcTime, nullable=False),
)

segments = sa.Table(
    "segments",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("segment", sa.Integer, primary_key=True),
    sa.Column("incarnation", Id, nullable=False),
    sa.Column("from_step", sa.BigInteger, nullable=False),
    sa.Column("cause", Word, nullable=False),
    sa.Column("parent", sa.Integer),
    sa.Column("command_id", Id),
    sa.Column("checkpoint_id", Name),
    sa.Column("attributes", Json, nullable=False, default="{}"),
    sa.Column("last_step", sa.BigInteger),  # of the points of rank 0; None as long as there are none
    sa.Column("started_at", UtcTime, nullable=False),
)

point_batches = sa.Table(
    "point_batches",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("segment", sa.Integer, primary_key=True),
    sa.Column("rank", sa.Integer, primary_key=True),
    sa.Column("incarnation", Id, primary_key=True),
    sa.Column("first_seq", sa.BigInteger, primary_key=True),
    sa.Column("last_seq", sa.BigInteger, nullable=False),
    sa.Column("steps", sa.Integer, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    comment="The durable tail: all series of one batch in one row, until there are enough to seal.",
)

point_chunks = sa.Table(
    "point_chunks",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("series", sa.String(128), primary_key=True),
    sa.Column("segment", sa.Integer, primary_key=True),
    sa.Column("rank", sa.Integer, primary_key=True),
    sa.Column("incarnation", Id, primary_key=True),
    sa.Column("first_seq", sa.BigInteger, primary_key=True),
    sa.Column("first_step", sa.BigInteger, nullable=False),
    sa.Column("last_step", sa.BigInteger, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("nonfinite_count", sa.Integer, nullable=False),
    sa.Column("min", sa.Double),
    sa.Column("max", sa.Double),
    sa.Column("body", sa.LargeBinary, nullable=False),
    comment="Sealed points of one series: seq, step, time, value as little-endian float64, 1,024 to 4,096 of each.",
)

series_summaries = sa.Table(
    "series_summaries",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("series", sa.String(128), primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("nonfinite_count", sa.BigInteger, nullable=False),
    sa.Column("first_nonfinite_step", sa.BigInteger),
    sa.Column("min", sa.Double),
    sa.Column("max", sa.Double),
    sa.Column("last_rank", sa.Integer, nullable=False),
    sa.Column("last_segment", sa.Integer, nullable=False),
    sa.Column("last_step", sa.BigInteger, nullable=False),
    sa.Column("last_value", sa.LargeBinary, nullable=False),  # 8 bytes, little-endian float64
    sa.Column("sparkline", sa.LargeBinary),  # of the loss only: see domain/reduction.py
)

rules = sa.Table(
    "rules",
    metadata,
    sa.Column("rule_id", Id, primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("body", Json, nullable=False),
    sa.Column("failure", Json),  # why it is not judged any more: see services/rules.py; None where it is
)

rule_states = sa.Table(
    "rule_states",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("rule_id", Id, primary_key=True),
    sa.Column("series", sa.String(128), primary_key=True),
    sa.Column("rank", sa.Integer, primary_key=True),
    sa.Column("rule_version", sa.Integer, nullable=False),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("state", Json, nullable=False),  # detector state and alert status
)

alerts = sa.Table(
    "alerts",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("alert_id", Id, primary_key=True),
    sa.Column("rule_id", Id, nullable=False),
    sa.Column("rule_version", sa.Integer, nullable=False),
    sa.Column("rule_name", Name, nullable=False),
    sa.Column("title", Name, nullable=False),
    sa.Column("severity", Word, nullable=False),
    sa.Column("series", sa.String(128), nullable=False),
    sa.Column("rank", sa.Integer, nullable=False),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("state", Word, nullable=False, index=True),
    sa.Column("onset_step", sa.BigInteger, nullable=False),
    sa.Column("firing_step", sa.BigInteger),
    sa.Column("resolved_step", sa.BigInteger),
    sa.Column("onset_at", UtcTime, nullable=False),
    sa.Column("firing_at", UtcTime),
    sa.Column("resolved_at", UtcTime),
    sa.Column("closed_because", Word),
    sa.Column("evidence", Json, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("detector", Word, nullable=False, default=""),  # whose sentence it is
    sa.Column("trial", sa.Boolean, nullable=False, default=False),
    sa.Column("incident_id", Id),
    sa.Column("again_after", sa.Integer),  # the segment of the rollback after which the same rule fires once more
    sa.Column("told", Word),  # whether a message has named it: see domain/grouping.py
    sa.Index("ix_alerts_incident", "run_id", "incident_id"),
)

incidents = sa.Table(
    "incidents",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("incident_id", Id, primary_key=True),
    sa.Column("number", sa.Integer, nullable=False),  # within the run
    sa.Column("state", Word, nullable=False, index=True),
    sa.Column("severity", Word, nullable=False),
    sa.Column("title", Name, nullable=False),
    sa.Column("first_step", sa.BigInteger, nullable=False),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("opened_at", UtcTime, nullable=False),
    sa.Column("acknowledged_at", UtcTime),
    sa.Column("acknowledged_by", Name, nullable=False, default=""),
    sa.Column("note", sa.Text, nullable=False, default=""),
    sa.Column("resolved_at", UtcTime),
    sa.Column("closed_because", Word),
    sa.Column("notify_at", UtcTime, index=True),  # when the next message is due; None where none is
    sa.Column("notified_at", UtcTime),  # the last message that reached somebody
    sa.Column("told", Json, nullable=False, default="{}"),  # what has been told already: see domain/incidents.py
    sa.Column("version", sa.Integer, nullable=False, default=1),
)

silences = sa.Table(
    "silences",
    metadata,
    sa.Column("silence_id", Id, primary_key=True),
    sa.Column("run_id", Id),
    sa.Column("project", Name),
    sa.Column("rule_id", Id),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("author", Name, nullable=False),
    sa.Column("starts_at", UtcTime, nullable=False),
    sa.Column("ends_at", UtcTime, nullable=False, index=True),
    sa.Column("ended_at", UtcTime),  # by hand, before its time
    sa.Column("ended_by", Name, nullable=False, default=""),
)

backtests = sa.Table(
    "backtests",
    metadata,
    sa.Column("backtest_id", Id, primary_key=True),
    sa.Column("state", Word, nullable=False, index=True),
    sa.Column("request", Json, nullable=False),
    sa.Column("logs", sa.LargeBinary),  # what was brought along to be judged, compressed
    sa.Column("done", sa.Integer, nullable=False, default=0),
    sa.Column("total", sa.Integer, nullable=False, default=0),
    sa.Column("points", sa.BigInteger, nullable=False, default=0),
    sa.Column("result", Json),
    sa.Column("problem", sa.Text, nullable=False, default=""),
    sa.Column("created_by", Name, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("heard_at", UtcTime, nullable=False),  # of the server process that works on it
    sa.Column("taken_by", Id),  # which server process that is; None while it waits for one
    sa.Column("attempts", sa.Integer, nullable=False, default=0),  # how many have begun with it
    sa.Column("started_at", UtcTime),
    sa.Column("ended_at", UtcTime),
)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("checkpoint_id", Name, primary_key=True),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("step", sa.BigInteger, nullable=False),
    sa.Column("state", Word, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("facts", Json, nullable=False),  # the wire's CheckpointSaved, as it came
    sa.Column("saved_at", UtcTime, nullable=False),
    sa.Column("changed_at", UtcTime, nullable=False),
    sa.Column("pinned", sa.Boolean, nullable=False, default=False),
    sa.Column("pinned_by", Name, nullable=False, default=""),
    sa.Column("pin_changed_at", UtcTime),  # when it was last pinned or unpinned; None where it never was
)

countdowns = sa.Table(
    "countdowns",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("countdown_id", Id, primary_key=True),
    sa.Column("state", Word, nullable=False),
    sa.Column("rule_id", Id, nullable=False),
    sa.Column("rule_name", Name, nullable=False),
    sa.Column("alert_id", Id, nullable=False),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("action", Json, nullable=False),
    sa.Column("checkpoint_id", Name),
    sa.Column("target_step", sa.BigInteger),
    sa.Column("started_at", UtcTime, nullable=False),
    sa.Column("due_at", UtcTime, nullable=False, index=True),
    sa.Column("ended_at", UtcTime),
    sa.Column("outcome", sa.Text, nullable=False, default=""),
)

commands = sa.Table(
    "commands",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("command_id", Id, primary_key=True),
    sa.Column("kind", Word, nullable=False),
    sa.Column("state", Word, nullable=False),
    sa.Column("incarnation", Id, nullable=False),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("reason", sa.Text, nullable=False, default=""),
    sa.Column("issued_by", Name, nullable=False),
    sa.Column("payload", Json),  # the wire's RollbackPayload
    sa.Column("outcome", sa.Text, nullable=False, default=""),
    sa.Column("step", sa.BigInteger),
    sa.Column("idempotency_key", Name, nullable=False),
    sa.Column("request_digest", Id, nullable=False),
    sa.Column("issued_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("deadline_at", UtcTime, index=True),  # deliver-within, then execute-within; None once it has ended
    sa.Column("value", sa.Double),  # of the kinds that set something; always finite
    sa.Column("behind", Id),  # the running command that a stop waits for; it is handed to nobody before
    sa.Column("issued_from", Name, nullable=False, default=""),
    sa.Column("version", sa.Integer, nullable=False, default=1),  # raised by every change: what a change compares with
    sa.UniqueConstraint("run_id", "idempotency_key"),
)
_active = commands.c.state.in_(["queued", "delivered", "running"])
_at_work, _waiting = sa.and_(_active, commands.c.behind.is_(None)), sa.and_(_active, commands.c.behind.is_not(None))
sa.Index("uq_commands_one_active", commands.c.run_id, unique=True, sqlite_where=_at_work, postgresql_where=_at_work)
sa.Index("uq_commands_one_waiting", commands.c.run_id, unique=True, sqlite_where=_waiting, postgresql_where=_waiting)

step_samples = sa.Table(
    "step_samples",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("segment", sa.Integer, primary_key=True),
    sa.Column("rank", sa.Integer, primary_key=True),
    sa.Column("first_step", sa.BigInteger, primary_key=True),
    sa.Column("part", sa.Integer, primary_key=True),  # of the first step, where its samples are spread over several blocks
    sa.Column("last_step", sa.BigInteger, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),  # a block of trainer_agent/wire/samples.py
)

command_keys = sa.Table(
    "command_keys",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("idempotency_key", Name, primary_key=True),
    sa.Column("request_digest", Id, nullable=False),
    sa.Column("command_id", Id, nullable=False),  # which another request may have made: the second click is the first command
    sa.Column("at", UtcTime, nullable=False),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("event_id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("run_id", Id),
    sa.Column("type", Word, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("step", sa.BigInteger),
    sa.Column("segment", sa.Integer),
    sa.Column("data", Json, nullable=False),
    sa.Index("ix_events_run", "run_id", "event_id"),
)

webhooks = sa.Table(
    "webhooks",
    metadata,
    sa.Column("webhook_id", Id, primary_key=True),
    sa.Column("name", Name, nullable=False),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("secret", sa.String(128), nullable=False),
    sa.Column("minimum_severity", Word, nullable=False),
    sa.Column("project", Name),
    sa.Column("language", Word, nullable=False, default="en"),
    sa.Column("enabled", sa.Boolean, nullable=False, default=True),
    sa.Column("disabled_because", sa.Text, nullable=False, default=""),
    sa.Column("created_at", UtcTime, nullable=False),
)

deliveries = sa.Table(
    "deliveries",
    metadata,
    sa.Column("delivery_id", Id, primary_key=True),  # the webhook-id header: the same over all attempts
    sa.Column("webhook_id", Id, nullable=False, index=True),
    sa.Column("event_id", sa.BigInteger, nullable=False),
    sa.Column("event_type", Word, nullable=False),
    sa.Column("run_id", Id),
    sa.Column("state", Word, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("next_attempt_at", UtcTime, index=True),
    sa.Column("attempt_count", sa.Integer, nullable=False, default=0),
)

delivery_attempts = sa.Table(
    "delivery_attempts",
    metadata,
    sa.Column("delivery_id", Id, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("status", sa.Integer),
    sa.Column("error", Name),
    sa.Column("seconds", sa.Double, nullable=False),
)

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("token_id", Id, primary_key=True),
    sa.Column("role", Word, nullable=False),
    sa.Column("name", Name, nullable=False),
    sa.Column("digest", Id, nullable=False, unique=True),  # SHA-256 of the secret; the secret itself is shown once
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("revoked_at", UtcTime),
)

sign_in_codes = sa.Table(
    "sign_in_codes",
    metadata,
    sa.Column("digest", Id, primary_key=True),
    sa.Column("expires_at", UtcTime, nullable=False),
    sa.Column("used_at", UtcTime),
)

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("digest", Id, primary_key=True),
    sa.Column("role", Word, nullable=False),
    sa.Column("name", Name, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("seen_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime, nullable=False),
)

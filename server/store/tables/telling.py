"""What happened, and who is told."""

import sqlalchemy as sa

from server.store.columns import Id, Json, Name, UtcTime, Word, metadata

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

pulses = sa.Table(
    "pulses",
    metadata,
    sa.Column("name", Word, primary_key=True),
    sa.Column("beaten_at", UtcTime, nullable=False),
    comment="Written before each ping to the watchdog outside, as the proof that the database takes a write.",
)

"""The first tables.

Written out in full, not made from the code's tables: those change, this version does not.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "alerts",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("alert_id", sa.String(length=64), nullable=False),
        sa.Column("rule_id", sa.String(length=64), nullable=False),
        sa.Column("rule_version", sa.Integer(), nullable=False),
        sa.Column("rule_name", sa.String(length=256), nullable=False),
        sa.Column("title", sa.String(length=256), nullable=False),
        sa.Column("severity", sa.String(length=32), nullable=False),
        sa.Column("series", sa.String(length=128), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("onset_step", sa.BigInteger(), nullable=False),
        sa.Column("firing_step", sa.BigInteger(), nullable=True),
        sa.Column("resolved_step", sa.BigInteger(), nullable=True),
        sa.Column("onset_at", sa.BigInteger(), nullable=False),
        sa.Column("firing_at", sa.BigInteger(), nullable=True),
        sa.Column("resolved_at", sa.BigInteger(), nullable=True),
        sa.Column("closed_because", sa.String(length=32), nullable=True),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "alert_id", name=op.f("pk_alerts")),
    )
    op.create_index(op.f("ix_alerts_state"), "alerts", ["state"], unique=False)
    op.create_table(
        "checkpoints",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("checkpoint_id", sa.String(length=256), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("saved_at", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "checkpoint_id", name=op.f("pk_checkpoints")),
    )
    op.create_table(
        "commands",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("command_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("incarnation", sa.String(length=64), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("issued_by", sa.String(length=256), nullable=False),
        sa.Column("payload", sa.Text(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("idempotency_key", sa.String(length=256), nullable=False),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.Column("issued_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("deadline_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "command_id", name=op.f("pk_commands")),
        sa.UniqueConstraint("run_id", "idempotency_key", name=op.f("uq_commands_run_id_idempotency_key")),
    )
    op.create_index(op.f("ix_commands_deadline_at"), "commands", ["deadline_at"], unique=False)
    op.create_index(
        "uq_commands_one_active",
        "commands",
        ["run_id"],
        unique=True,
        sqlite_where=sa.text("state IN ('queued', 'delivered', 'running')"),
        postgresql_where=sa.text("state IN ('queued', 'delivered', 'running')"),
    )
    op.create_table(
        "countdowns",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("countdown_id", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("rule_id", sa.String(length=64), nullable=False),
        sa.Column("rule_name", sa.String(length=256), nullable=False),
        sa.Column("alert_id", sa.String(length=64), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("checkpoint_id", sa.String(length=256), nullable=True),
        sa.Column("target_step", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "countdown_id", name=op.f("pk_countdowns")),
    )
    op.create_index(op.f("ix_countdowns_due_at"), "countdowns", ["due_at"], unique=False)
    op.create_table(
        "deliveries",
        sa.Column("delivery_id", sa.String(length=64), nullable=False),
        sa.Column("webhook_id", sa.String(length=64), nullable=False),
        sa.Column("event_id", sa.BigInteger(), nullable=False),
        sa.Column("event_type", sa.String(length=32), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=True),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("next_attempt_at", sa.BigInteger(), nullable=True),
        sa.Column("attempt_count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("delivery_id", name=op.f("pk_deliveries")),
    )
    op.create_index(op.f("ix_deliveries_next_attempt_at"), "deliveries", ["next_attempt_at"], unique=False)
    op.create_index(op.f("ix_deliveries_webhook_id"), "deliveries", ["webhook_id"], unique=False)
    op.create_table(
        "delivery_attempts",
        sa.Column("delivery_id", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("error", sa.String(length=256), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("delivery_id", "number", name=op.f("pk_delivery_attempts")),
    )
    op.create_table(
        "events",
        sa.Column("event_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=True),
        sa.Column("type", sa.String(length=32), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("segment", sa.Integer(), nullable=True),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("event_id", name=op.f("pk_events")),
    )
    op.create_index("ix_events_run", "events", ["run_id", "event_id"], unique=False)
    op.create_table(
        "incarnations",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("incarnation", sa.String(length=64), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("next_seq", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.String(length=256), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("heard_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "incarnation", "rank", name=op.f("pk_incarnations")),
    )
    op.create_table(
        "point_batches",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("incarnation", sa.String(length=64), nullable=False),
        sa.Column("first_seq", sa.BigInteger(), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "segment", "rank", "incarnation", "first_seq", name=op.f("pk_point_batches")),
        comment="The durable tail: all series of one batch in one row, until there are enough to seal.",
    )
    op.create_table(
        "point_chunks",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("series", sa.String(length=128), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("incarnation", sa.String(length=64), nullable=False),
        sa.Column("first_seq", sa.BigInteger(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("nonfinite_count", sa.Integer(), nullable=False),
        sa.Column("min", sa.Double(), nullable=True),
        sa.Column("max", sa.Double(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "series", "segment", "rank", "incarnation", "first_seq", name=op.f("pk_point_chunks")),
        comment="Sealed points of one series: seq, step, time, value as little-endian float64, 1,024 to 4,096 of each.",
    )
    op.create_table(
        "rule_states",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("rule_id", sa.String(length=64), nullable=False),
        sa.Column("series", sa.String(length=128), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("rule_version", sa.Integer(), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "rule_id", "series", "rank", name=op.f("pk_rule_states")),
    )
    op.create_table(
        "rules",
        sa.Column("rule_id", sa.String(length=64), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("rule_id", name=op.f("pk_rules")),
    )
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("owner_token_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=256), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("state_reason", sa.Text(), nullable=False),
        sa.Column("deadline_at", sa.BigInteger(), nullable=True),
        sa.Column("phase", sa.String(length=32), nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("total_steps", sa.BigInteger(), nullable=True),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(length=256), nullable=False),
        sa.Column("integration", sa.String(length=32), nullable=False),
        sa.Column("capabilities", sa.Text(), nullable=False),
        sa.Column("incapable_because", sa.Text(), nullable=False),
        sa.Column("automatic_rollback", sa.Boolean(), nullable=False),
        sa.Column("attributes", sa.Text(), nullable=False),
        sa.Column("latest", sa.Text(), nullable=False),
        sa.Column("dropped_records", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("heard_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_runs")),
    )
    op.create_index(op.f("ix_runs_deadline_at"), "runs", ["deadline_at"], unique=False)
    op.create_index(op.f("ix_runs_heard_at"), "runs", ["heard_at"], unique=False)
    op.create_table(
        "segments",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("incarnation", sa.String(length=64), nullable=False),
        sa.Column("from_step", sa.BigInteger(), nullable=False),
        sa.Column("cause", sa.String(length=32), nullable=False),
        sa.Column("parent", sa.Integer(), nullable=True),
        sa.Column("command_id", sa.String(length=64), nullable=True),
        sa.Column("checkpoint_id", sa.String(length=256), nullable=True),
        sa.Column("attributes", sa.Text(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "segment", name=op.f("pk_segments")),
    )
    op.create_table(
        "series_summaries",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("series", sa.String(length=128), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("nonfinite_count", sa.BigInteger(), nullable=False),
        sa.Column("first_nonfinite_step", sa.BigInteger(), nullable=True),
        sa.Column("min", sa.Double(), nullable=True),
        sa.Column("max", sa.Double(), nullable=True),
        sa.Column("last_rank", sa.Integer(), nullable=False),
        sa.Column("last_segment", sa.Integer(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("last_value", sa.LargeBinary(), nullable=False),
        sa.Column("sparkline", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "series", name=op.f("pk_series_summaries")),
    )
    op.create_table(
        "sessions",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_sessions")),
    )
    op.create_table(
        "sign_in_codes",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_sign_in_codes")),
    )
    op.create_table(
        "tokens",
        sa.Column("token_id", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("token_id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_tokens_digest")),
    )
    op.create_table(
        "webhooks",
        sa.Column("webhook_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("secret", sa.String(length=128), nullable=False),
        sa.Column("minimum_severity", sa.String(length=32), nullable=False),
        sa.Column("project", sa.String(length=256), nullable=True),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_because", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("webhook_id", name=op.f("pk_webhooks")),
    )

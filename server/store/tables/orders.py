"""Checkpoints, and what is done to a run."""

import sqlalchemy as sa

from server.store.columns import Id, Json, Name, UtcTime, Word, metadata

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

command_keys = sa.Table(
    "command_keys",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("idempotency_key", Name, primary_key=True),
    sa.Column("request_digest", Id, nullable=False),
    sa.Column("command_id", Id, nullable=False),  # which another request may have made: the second click is the first command
    sa.Column("at", UtcTime, nullable=False),
)

"""Incidents, silences, backtests; scope and trial of rules; what liveness is judged by.

Every new column has a default in the database, so that the code of 0002 goes on running beside it while servers are exchanged.
"""

import json

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _runs()
    _rules()
    _alerts()
    _incidents()
    _silences()
    _backtests()
    _webhooks()


def _runs() -> None:
    op.add_column("runs", sa.Column("stepped_at", sa.BigInteger(), nullable=True))
    op.add_column("runs", sa.Column("phase_since", sa.BigInteger(), nullable=True))
    op.add_column("runs", sa.Column("pace", sa.Text(), nullable=True))
    op.add_column("runs", sa.Column("look_at", sa.BigInteger(), nullable=True))
    op.add_column("runs", sa.Column("hold", sa.Text(), nullable=True))
    op.create_index(op.f("ix_runs_look_at"), "runs", ["look_at"])
    op.add_column("incarnations", sa.Column("made_seq", sa.BigInteger(), nullable=False, server_default="0"))


def _rules() -> None:
    op.add_column("rules", sa.Column("failure", sa.Text(), nullable=True))
    _mark_edited()


def _mark_edited() -> None:
    """What people have changed so far bears a later version than 1: no newer default pack replaces it."""
    rules = sa.table("rules", sa.column("rule_id", sa.String), sa.column("version", sa.Integer), sa.column("body", sa.Text))
    connection = op.get_bind()
    for row in connection.execute(sa.select(rules).where(rules.c.version > 1)).all():
        body = json.dumps({**json.loads(row.body), "edited": True}, allow_nan=False)
        connection.execute(sa.update(rules).where(rules.c.rule_id == row.rule_id).values(body=body))


def _alerts() -> None:
    op.add_column("alerts", sa.Column("detector", sa.String(length=32), nullable=False, server_default=""))
    op.add_column("alerts", sa.Column("trial", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("alerts", sa.Column("incident_id", sa.String(length=64), nullable=True))
    op.add_column("alerts", sa.Column("again_after", sa.Integer(), nullable=True))
    op.add_column("alerts", sa.Column("told", sa.String(length=32), nullable=True))
    op.create_index("ix_alerts_incident", "alerts", ["run_id", "incident_id"])


def _incidents() -> None:
    op.create_table(
        "incidents",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("incident_id", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("severity", sa.String(length=32), nullable=False),
        sa.Column("title", sa.String(length=256), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("opened_at", sa.BigInteger(), nullable=False),
        sa.Column("acknowledged_at", sa.BigInteger(), nullable=True),
        sa.Column("acknowledged_by", sa.String(length=256), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("resolved_at", sa.BigInteger(), nullable=True),
        sa.Column("closed_because", sa.String(length=32), nullable=True),
        sa.Column("notify_at", sa.BigInteger(), nullable=True),
        sa.Column("notified_at", sa.BigInteger(), nullable=True),
        sa.Column("told", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "incident_id", name=op.f("pk_incidents")),
    )
    op.create_index(op.f("ix_incidents_state"), "incidents", ["state"])
    op.create_index(op.f("ix_incidents_notify_at"), "incidents", ["notify_at"])


def _silences() -> None:
    op.create_table(
        "silences",
        sa.Column("silence_id", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=True),
        sa.Column("project", sa.String(length=256), nullable=True),
        sa.Column("rule_id", sa.String(length=64), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("author", sa.String(length=256), nullable=False),
        sa.Column("starts_at", sa.BigInteger(), nullable=False),
        sa.Column("ends_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_by", sa.String(length=256), nullable=False),
        sa.PrimaryKeyConstraint("silence_id", name=op.f("pk_silences")),
    )
    op.create_index(op.f("ix_silences_ends_at"), "silences", ["ends_at"])


def _backtests() -> None:
    op.create_table(
        "backtests",
        sa.Column("backtest_id", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("logs", sa.LargeBinary(), nullable=True),
        sa.Column("done", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("points", sa.BigInteger(), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("created_by", sa.String(length=256), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("heard_at", sa.BigInteger(), nullable=False),
        sa.Column("taken_by", sa.String(length=64), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("backtest_id", name=op.f("pk_backtests")),
    )
    op.create_index(op.f("ix_backtests_state"), "backtests", ["state"])


def _webhooks() -> None:
    op.add_column("webhooks", sa.Column("language", sa.String(length=32), nullable=False, server_default="en"))

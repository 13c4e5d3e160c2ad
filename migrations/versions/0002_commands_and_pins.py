"""All kinds of commands, pins, failures of saves, samples of steps.

Every new column has a default in the database, so that the code of 0001 goes on running beside it while servers are exchanged.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

ACTIVE = "state IN ('queued', 'delivered', 'running')"


def upgrade() -> None:
    _runs()
    _commands()
    _command_keys()
    _checkpoints()
    _step_samples()


def _runs() -> None:
    op.add_column("runs", sa.Column("data_modes", sa.Text(), nullable=False, server_default='["replay", "skip"]'))
    op.add_column("runs", sa.Column("data_modes_because", sa.Text(), nullable=False, server_default=""))
    op.add_column("runs", sa.Column("save_failure", sa.Text(), nullable=True))


def _commands() -> None:
    op.add_column("commands", sa.Column("value", sa.Double(), nullable=True))
    op.add_column("commands", sa.Column("behind", sa.String(length=64), nullable=True))
    op.add_column("commands", sa.Column("issued_from", sa.String(length=256), nullable=False, server_default=""))
    op.add_column("commands", sa.Column("version", sa.Integer(), nullable=False, server_default="1"))
    op.drop_index("uq_commands_one_active", table_name="commands")
    for name, where in (
        ("uq_commands_one_active", f"{ACTIVE} AND behind IS NULL"),
        ("uq_commands_one_waiting", f"{ACTIVE} AND behind IS NOT NULL"),
    ):
        condition = sa.text(where)
        op.create_index(name, "commands", ["run_id"], unique=True, sqlite_where=condition, postgresql_where=condition)


def _command_keys() -> None:
    op.create_table(
        "command_keys",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("idempotency_key", sa.String(length=256), nullable=False),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.Column("command_id", sa.String(length=64), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "idempotency_key", name=op.f("pk_command_keys")),
    )
    op.execute(
        "INSERT INTO command_keys (run_id, idempotency_key, request_digest, command_id, at) "
        "SELECT run_id, idempotency_key, request_digest, command_id, issued_at FROM commands"
    )


def _checkpoints() -> None:
    op.add_column("checkpoints", sa.Column("pinned", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("checkpoints", sa.Column("pinned_by", sa.String(length=256), nullable=False, server_default=""))
    op.add_column("checkpoints", sa.Column("pin_changed_at", sa.BigInteger(), nullable=True))


def _step_samples() -> None:
    op.create_table(
        "step_samples",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "segment", "rank", "first_step", "part", name=op.f("pk_step_samples")),
    )

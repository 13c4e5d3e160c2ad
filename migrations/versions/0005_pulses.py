"""The write that proves that the database takes one, before each ping to the watchdog outside."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "pulses",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("beaten_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_pulses")),
        comment="Written before each ping to the watchdog outside, as the proof that the database takes a write.",
    )

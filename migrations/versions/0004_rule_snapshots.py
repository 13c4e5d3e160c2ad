"""Where rules stood, kept now and then, so that a rewind need not judge a run from its start."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rule_snapshots",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("incarnation", sa.String(length=64), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("top_step", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "rank", "segment", "incarnation", "seq", name=op.f("pk_rule_snapshots")),
        comment="The rule states of a rank after point `seq`, kept now and then. No point before it has a step over `top_step`.",
    )

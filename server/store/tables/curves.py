"""Points, as they come and sealed, and what is said of each series."""

import sqlalchemy as sa

from server.store.columns import Id, UtcTime, metadata

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

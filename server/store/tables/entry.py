"""Who may come in."""

import sqlalchemy as sa

from server.store.columns import Id, Name, UtcTime, Word, metadata

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

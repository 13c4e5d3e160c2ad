"""Tokens, sign-in codes and sessions. Only digests are kept: what lets somebody in is never in the database."""

import hmac
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from server.domain.access import Caller, Role, Session

from .tables import sessions, sign_in_codes, tokens


def add_token(connection: Connection, token_id: str, role: Role, name: str, digest: str, now: datetime) -> None:  # noqa: PLR0917
    """Keep a new token's digest."""
    connection.execute(sa.insert(tokens).values(token_id=token_id, role=role.value, name=name, digest=digest, created_at=now))


def token_holder(connection: Connection, digest: str) -> Caller | None:
    """Who holds the token of this digest; None when it is unknown or revoked."""
    query = sa.select(tokens).where(tokens.c.digest == digest, tokens.c.revoked_at.is_(None))
    row = connection.execute(query).one_or_none()
    if row is None or not hmac.compare_digest(row.digest, digest):
        return None
    return Caller(Role(row.role), row.name, row.token_id)


def has_token(connection: Connection, role: Role) -> bool:
    """Whether a live token of this role was ever made."""
    query = sa.select(tokens.c.token_id).where(tokens.c.role == role.value, tokens.c.revoked_at.is_(None)).limit(1)
    return connection.execute(query).first() is not None


def revoke_tokens(connection: Connection, name: str, now: datetime) -> int:
    """How many live tokens of this name were revoked."""
    query = sa.update(tokens).where(tokens.c.name == name, tokens.c.revoked_at.is_(None)).values(revoked_at=now)
    return connection.execute(query).rowcount


def add_code(connection: Connection, digest: str, expires_at: datetime) -> None:
    """Keep a sign-in code's digest."""
    connection.execute(sa.insert(sign_in_codes).values(digest=digest, expires_at=expires_at))


def use_code(connection: Connection, digest: str, now: datetime) -> bool:
    """Whether the code was good. It is not good a second time, also when two ask at once."""
    codes = sign_in_codes.c
    query = sa.update(sign_in_codes).where(codes.digest == digest, codes.used_at.is_(None), codes.expires_at > now)
    return connection.execute(query.values(used_at=now)).rowcount == 1


def add_session(connection: Connection, digest: str, session: Session) -> None:
    """Keep a new session, and clear away those long over."""
    connection.execute(sa.delete(sessions).where(sessions.c.expires_at < session.created_at))
    connection.execute(
        sa.insert(sessions).values(
            digest=digest,
            role=session.role.value,
            name=session.name,
            created_at=session.created_at,
            seen_at=session.seen_at,
            expires_at=session.expires_at,
        )
    )


def session(connection: Connection, digest: str) -> Session | None:
    """The session of this digest."""
    row: sa.Row[Any] | None = connection.execute(sa.select(sessions).where(sessions.c.digest == digest)).one_or_none()
    if row is None or not hmac.compare_digest(row.digest, digest):
        return None
    return Session(Role(row.role), row.name, row.created_at, row.seen_at, row.expires_at)


def see_session(connection: Connection, digest: str, now: datetime) -> None:
    """Note that the session was used."""
    connection.execute(sa.update(sessions).where(sessions.c.digest == digest).values(seen_at=now))


def end_session(connection: Connection, digest: str) -> None:
    """Forget the session."""
    connection.execute(sa.delete(sessions).where(sessions.c.digest == digest))

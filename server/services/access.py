"""The door: tokens for programs, one-time codes and sessions for browsers.

    code (one use, an hour) -> session (a cookie, 12 h idle, 7 days in all)

Secrets carry 256 random bits and are shown once; the database knows their SHA-256 only.
"""

import hashlib
import secrets
from datetime import datetime

from sqlalchemy import Connection

from server.domain.access import SESSION_LIFE, SESSION_SEEN_EVERY, SIGN_IN_CODE_LIFE, Caller, Role, Session
from server.store import access as store

_SECRET_BYTES = 32
_MAX_SECRET_LENGTH = 200


def digest_of(secret: str) -> str:
    """What the database knows of a secret. A plain hash is enough: there is nothing to guess in 256 random bits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def create_token(connection: Connection, role: Role, name: str, now: datetime) -> str:
    """A fresh token, `lg_agent_...` or `lg_operator_...`. It cannot be read again later."""
    token = f"lg_{role.value}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    store.add_token(connection, f"tok_{secrets.token_hex(8)}", role, name, digest_of(token), now)
    return token


def revoke_tokens(connection: Connection, name: str, now: datetime) -> int:
    """How many tokens of this name were live until now."""
    return store.revoke_tokens(connection, name, now)


def token_caller(connection: Connection, token: str) -> Caller | None:
    """Who holds this token; None for one that is unknown, revoked or not shaped like one."""
    return None if len(token) > _MAX_SECRET_LENGTH else store.token_holder(connection, digest_of(token))


def create_sign_in_code(connection: Connection, now: datetime) -> str:
    """A code that lets one browser in, once, within the hour."""
    code = secrets.token_urlsafe(_SECRET_BYTES)
    store.add_code(connection, digest_of(code), now + SIGN_IN_CODE_LIFE)
    return code


def sign_in(connection: Connection, code: str, now: datetime) -> str | None:
    """The secret of a new operator session, for the cookie; None when the code is unknown, used or too old."""
    if not store.use_code(connection, digest_of(code), now):
        return None
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    session = Session(Role.OPERATOR, "browser", now, now, now + SESSION_LIFE)
    store.add_session(connection, digest_of(secret), session)
    return secret


def open_session(connection: Connection, secret: str, now: datetime) -> Session | None:
    """The session of this cookie, if it still lets anybody in."""
    if len(secret) > _MAX_SECRET_LENGTH:
        return None
    session = store.session(connection, digest_of(secret))
    return session if session is not None and session.is_open(now) else None


def is_unseen(session: Session, now: datetime) -> bool:
    """Whether it is time to write down that the session is in use."""
    return now - session.seen_at >= SESSION_SEEN_EVERY


def see_session(connection: Connection, secret: str, now: datetime) -> None:
    """Keep the session from falling idle."""
    store.see_session(connection, digest_of(secret), now)


def sign_out(connection: Connection, secret: str) -> None:
    """End the session."""
    store.end_session(connection, digest_of(secret))

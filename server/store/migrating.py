"""Brings a database to the version of the code, by the numbered scripts of `migrations/`.

Alembic is imported only when there is something to do: loading it is a good part of a start of the server.
"""

from pathlib import Path

import sqlalchemy as sa

MIGRATIONS = Path(__file__).parents[2] / "migrations"
_ADVISORY_LOCK = 7_056_171_405  # any number of our own: two processes that start together take turns


class DatabaseTooNew(RuntimeError):  # noqa: N818  named for what happened
    """The database was written by a newer version of the server."""


def migrate(connection: sa.Connection) -> None:
    """Run the missing scripts inside the transaction of `connection`; nothing when there are none.

    Raises:
        DatabaseTooNew: the database is at a version that this code does not know.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
    known, found = _known_versions(), _version(connection)
    if found is not None and found not in known:
        raise DatabaseTooNew(
            f"the database is at version {found}, this server knows up to {max(known)}: "
            "start the newer server again, or restore a backup made before the upgrade"
        )
    if found != max(known):
        _upgrade(connection)


def _known_versions() -> frozenset[str]:
    """The numbers that the scripts' names begin with, which are their revisions."""
    return frozenset(script.name.partition("_")[0] for script in (MIGRATIONS / "versions").glob("[0-9]*_*.py"))


def _version(connection: sa.Connection) -> str | None:
    """What the database is at; None for one without tables."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one_or_none()


def _upgrade(connection: sa.Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")

"""Brings a database to the version of the code, by the numbered scripts of `migrations/`."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

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
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    _refuse_newer(connection, ScriptDirectory.from_config(config))
    command.upgrade(config, "head")


def _refuse_newer(connection: sa.Connection, scripts: ScriptDirectory) -> None:
    known = {script.revision for script in scripts.walk_revisions()}
    unknown = set(MigrationContext.configure(connection).get_current_heads()) - known
    if unknown:
        raise DatabaseTooNew(
            f"the database is at version {', '.join(sorted(unknown))}, this server knows up to {max(known)}: "
            "start the newer server again, or restore a backup made before the upgrade"
        )

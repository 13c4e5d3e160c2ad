"""Runs the scripts on the connection it is given, inside that connection's transaction (see server/store/migrating.py)."""

from alembic import context

from server.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()

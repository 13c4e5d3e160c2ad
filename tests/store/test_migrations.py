"""The numbered scripts make what the code's tables say."""

import subprocess
import sys
import threading

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from server.store.database import Database
from server.store.migrating import MIGRATIONS, DatabaseTooNew, _known_versions
from server.store.tables import metadata


def test_the_scripts_make_the_tables_of_the_code(database):
    with database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "target_metadata": metadata})
        assert compare_metadata(context, metadata) == []


def test_partial_index_allows_one_active_command_a_run(database):
    with database.reading() as connection:
        indexes = sa.inspect(connection).get_indexes("commands")
    assert [index["unique"] for index in indexes if index["name"] == "uq_commands_one_active"] in ([True], [1])


def test_the_names_of_the_scripts_begin_with_their_versions():
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()} == _known_versions()


def test_a_database_that_is_up_to_date_is_opened_without_alembic(new_database_url):
    url = new_database_url("sqlite")
    program = (
        "import sys; from server.store.database import Database; database = Database.open(sys.argv[1]); "
        "database.migrate(); database.close(); print('alembic' in sys.modules)"
    )
    said = [subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, check=True) for _ in range(2)]
    assert [each.stdout.strip() for each in said] == ["True", "False"]


def test_migrating_again_changes_nothing(database_url):
    for _ in range(2):
        database = Database.open(database_url)
        database.migrate()
        database.migrate()
        database.close()


def test_a_database_newer_than_the_code_is_refused_by_name(database_url):
    database = Database.open(database_url)
    database.migrate()
    database.writer.submit(lambda c: c.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'") and None)
    with pytest.raises(DatabaseTooNew, match=r"9999.*knows up to 0002.*start the newer server"):
        database.migrate()
    database.close()


def test_two_processes_that_start_together_on_postgresql_take_turns(new_database_url):
    url = new_database_url("postgresql")
    databases = [Database.open(url) for _ in range(2)]
    failures = []

    def start(database):
        try:
            database.migrate()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=start, args=(database,)) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert failures == []
    for database in databases:
        database.close()

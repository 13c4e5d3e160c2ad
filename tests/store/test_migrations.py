"""The numbered scripts make what the code's tables say."""

import json
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
import sqlalchemy as sa
from alembic import command as alembic
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from server.domain.commands import IssuedCommand
from server.store import checkpoints as checkpoints_store
from server.store import commands as commands_store
from server.store import runs as runs_store
from server.store.database import Database
from server.store.migrating import MIGRATIONS, DatabaseTooNew, _known_versions
from server.store.tables import metadata
from trainer_agent.wire.commands import RollbackPayload
from trainer_agent.wire.vocabulary import CommandKind, CommandState, DataMode


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
    with pytest.raises(DatabaseTooNew, match=r"9999.*knows up to 0005.*start the newer server"):
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


def upgrade_to(database, version):
    def unit(connection):
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        alembic.upgrade(config, version)

    database.writer.submit(unit)


def write_as_0001_did(connection):
    """A run in the middle of a rollback, as the code of that version left it."""
    run = {
        "run_id": "run",
        "owner_token_id": "t",
        "project": "p",
        "name": "n",
        "state": "running",
        "state_reason": "",
        "segment": 1,
    }
    run |= {"world_size": 1, "host": "", "integration": "hf", "capabilities": '["stop", "rollback"]', "incapable_because": ""}
    run |= {"automatic_rollback": False, "attributes": "{}", "latest": "{}", "dropped_records": 0, "created_at": 1, "heard_at": 1}
    facts = '{"checkpoint_id": "c", "segment": 1, "step": 8, "time": 0.0, "state": "complete"}'
    checkpoint = {"run_id": "run", "checkpoint_id": "c", "segment": 1, "step": 8, "state": "sound", "reason": "", "facts": facts}
    payload = json.dumps({"checkpoint_id": "c", "target_step": 8, "new_segment": 2, "data": "skip", "skip_from_step": 9})
    given = {"run_id": "run", "command_id": "c_1", "kind": "rollback", "state": "running", "incarnation": "life-1", "segment": 1}
    given |= {
        "reason": "",
        "issued_by": "ann",
        "payload": payload,
        "outcome": "",
        "idempotency_key": "key",
        "request_digest": "d",
    }
    given |= {"issued_at": 1, "updated_at": 1, "deadline_at": 2}
    for table, row in (
        ("runs", run | {"revision": 3}),
        ("checkpoints", checkpoint | {"saved_at": 1, "changed_at": 1}),
        ("commands", given),
    ):
        places = ", ".join(f":{name}" for name in row)
        connection.execute(sa.text(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})"), row)


def test_what_the_first_version_wrote_is_there_after_the_upgrade_and_goes_on(database_url):
    database = Database.open(database_url)
    upgrade_to(database, "0001")
    database.writer.submit(write_as_0001_did)
    database.migrate()
    with database.reading() as connection:
        run = runs_store.get(connection, "run")
        command = commands_store.active_command(connection, "run")
        checkpoint = checkpoints_store.read_checkpoint(connection, "run", "c")
        answered = commands_store.answered(connection, "run", "key")
    assert (run.data_modes, run.data_modes_because, run.save_failure) == ((DataMode.REPLAY, DataMode.SKIP), "", None)
    assert (command.rollback, command.value, command.behind, command.issued_from, command.version) == (
        RollbackPayload("c", 8, 2, DataMode.SKIP, 9),
        None,
        None,
        "",
        1,
    )
    assert (checkpoint.pinned, checkpoint.pinned_by, checkpoint.pin_changed_at) == (False, "", None)
    assert (answered.command_id, answered.request_digest) == ("c_1", "d")
    moved = replace(command, state=CommandState.SUCCEEDED, version=2)
    assert database.writer.submit(lambda c: commands_store.save_command(c, moved)) is True
    assert database.writer.submit(lambda c: commands_store.save_command(c, moved)) is False
    database.close()


def test_the_code_of_the_first_version_goes_on_writing_into_the_upgraded_tables(database_url):
    database = Database.open(database_url)
    database.migrate()
    database.writer.submit(write_as_0001_did)
    with database.reading() as connection:
        assert commands_store.active_command(connection, "run").version == 1
        assert runs_store.get(connection, "run").data_modes == (DataMode.REPLAY, DataMode.SKIP)
    database.close()


def test_one_command_is_active_and_one_waits_behind_it_and_no_more(database):
    database.writer.submit(write_as_0001_did)
    with database.reading() as connection:
        active = commands_store.active_command(connection, "run")
    stop = replace(active, kind=CommandKind.STOP, rollback=None, state=CommandState.QUEUED, deadline_at=None)

    def add(name: str, behind: str | None) -> bool:
        made: IssuedCommand = replace(stop, command_id=name, idempotency_key=name, behind=behind)
        return database.writer.submit(lambda connection: commands_store.add_command(connection, made))

    assert [add("a", None), add("b", "c_1"), add("c", "c_1")] == [False, True, False]

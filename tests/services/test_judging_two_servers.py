"""Two server processes over one PostgreSQL: what is due is done once, whoever comes first."""

import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from judging_kit import LOSS_HIGH, Trainer, use_rules

from server.domain.default_absence import ABSENCE_RULES
from server.domain.rules import Action, ActionKind
from server.services import runs
from server.store import alerts as alerts_store
from server.store import commands as commands_store
from server.store import events as events_store
from server.store.database import Database

RUNS = 12
STOP = replace(
    LOSS_HIGH,
    action=Action(ActionKind.STOP, countdown_seconds=0),
)
PROGRAM = """
import sys
from datetime import datetime
from server.services import countdowns, runs
from server.store.database import Database
url, now = sys.argv[1], datetime.fromisoformat(sys.argv[2])
database = Database.open(url)
print("open", flush=True)
sys.stdin.readline()
for _ in range(20):
    database.writer.submit(lambda connection: countdowns.run_due(connection, now))
    database.writer.submit(lambda connection: runs.mark_overdue(connection, now))
database.close()
"""


def test_two_server_processes_carry_out_each_countdown_and_tell_each_silence_once(new_database_url, clock, figure):
    url = new_database_url("postgresql")
    database = Database.open(url)
    database.migrate()

    def prepare(connection):
        use_rules(connection, STOP, *ABSENCE_RULES)
        for number in range(RUNS):
            Trainer(connection, clock, run_id=f"acts-{number}").start().log(1, loss=20.0).send()
            Trainer(connection, clock, run_id=f"silent-{number}").start().log(1, loss=1.0).send()

    database.writer.submit(prepare)
    now = clock() + runs.domain.LOST_AFTER + timedelta(seconds=1)
    both_act(url, now.isoformat())
    with database.reading() as connection:
        given = [commands_store.read_commands(connection, f"acts-{number}") for number in range(RUNS)]
        told = [
            [
                each.event.data["rule_id"]
                for each in events_store.newest(connection, f"silent-{number}")
                if "rule_id" in each.event.data
            ]
            for number in range(RUNS)
        ]
        lost = [alerts_store.open_alerts(connection, f"silent-{number}") for number in range(RUNS)]
    database.close()
    figure("F32", "countdowns carried out more than once by two servers", sum(len(each) > 1 for each in given), at_most=0)
    figure("F32", "countdowns carried out by nobody", sum(not each for each in given), at_most=0)
    assert told == [["run-lost"]] * RUNS
    assert [len(each) for each in lost] == [1] * RUNS


def both_act(url, now):
    command = [sys.executable, "-c", PROGRAM, url, now]
    folder = Path(__file__).parents[2]
    servers = [
        subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for server in servers:
        assert server.stdout.readline() == "open\n"
    for server in servers:
        server.stdin.write("go\n")
        server.stdin.flush()
    said = [server.communicate(timeout=120)[1] for server in servers]
    assert [server.returncode for server in servers] == [0, 0], said

"""Commands under people, kills, restarts and time, in random sequences: one end, one effect, no forbidden arrow."""

import os
from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from issuing_machine import Server, machine

IS_WHOLE = bool(os.environ.get("LOSSGUARD_SOAK"))
SEQUENCES = 2_000 if IS_WHOLE else 200
RARE = {"behind"}
"""What so few sequences as here may pass by."""


def test_commands_have_one_end_and_one_effect_whatever_happens_in_whatever_order(new_database_url, figure):
    server, counts = Server(new_database_url("sqlite")), Counter()
    often = settings(
        max_examples=SEQUENCES,
        stateful_step_count=25,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    try:
        run_state_machine_as_test(machine(server, counts), settings=often)
    finally:
        server.database.close()
    figure("R75", "sequences of people, trainer, server and clock", counts["sequences"], at_least=SEQUENCES)
    for what in ("made", "found", "obeyed", "kills", "too late to cancel", "behind", "Stale", "Refused"):
        figure("R75", f"of them: {what}", counts[what], at_least=None if what in RARE and not IS_WHOLE else 1)

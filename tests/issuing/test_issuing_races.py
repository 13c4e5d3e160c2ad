"""Two at once: two people on one button, and a cancel against the trainer's beginning, on both databases.

On PostgreSQL each side has a server of its own over one database, which is the harder case.
"""

import os
import threading
from collections import Counter
from contextlib import ExitStack
from functools import partial

import pytest
from issuing_http import HttpTrainer, click
from served import Served

from server.settings import Settings
from server.store import commands as store
from trainer_agent.wire.vocabulary import CommandState

S = CommandState
IS_WHOLE = bool(os.environ.get("LOSSGUARD_SOAK"))
CLICKS, CANCELS = 200, 1_000 if IS_WHOLE else 100  # of each database
BUTTONS = ({"kind": "stop"}, {"kind": "rollback"}, {"kind": "save"}, {"kind": "set_max_grad_norm", "value": 1.0})
WITHIN = 60


@pytest.fixture
def pair(new_database_url, tmp_path, backend):
    """Two people's clients and a trainer's, on one server or on two."""
    url, servers = new_database_url(backend), 2 if backend == "postgresql" else 1
    with ExitStack() as stack:
        up = [
            stack.enter_context(Served(Settings(data_dir=tmp_path / str(number), database_url=url, port=0)))
            for number in range(servers)
        ]
        people = [stack.enter_context(server.client("operator")) for server in (up[0], up[-1])]
        yield people, stack.enter_context(up[0].client("agent")), up[0].context.database


class Together:
    """Calls that are made at the same moment, again and again, by threads that stay."""

    def __init__(self, count: int) -> None:
        self._start, self._end = threading.Barrier(count + 1), threading.Barrier(count + 1)
        self._calls: list = [None] * count
        self._results: list = [None] * count
        for place in range(count):
            threading.Thread(target=self._run, args=(place,), daemon=True).start()

    def _run(self, place: int) -> None:
        while True:
            self._start.wait()
            if self._calls[place] is None:
                return
            try:
                self._results[place] = self._calls[place]()
            except Exception as error:
                self._results[place] = error
            self._end.wait(WITHIN)

    def run(self, *calls) -> list:
        self._calls[:] = calls
        self._start.wait(WITHIN)
        self._end.wait(WITHIN)
        return list(self._results)

    def close(self) -> None:
        self._calls[:] = [None] * len(self._calls)
        self._start.wait(WITHIN)


@pytest.fixture
def together():
    together = Together(2)
    yield together
    together.close()


def test_f41_two_people_press_a_button_at_once_and_it_is_done_once(pair, together, backend, figure):
    people, agent, _ = pair
    trainer = HttpTrainer(agent, "run").start()
    effects, odd = Counter(), 0
    for number in range(CLICKS):
        button = BUTTONS[number % len(BUTTONS)]
        answers = together.run(*(partial(click, person, "run", **button) for person in people))
        told = {answer.json()["command_id"] for answer in answers}
        odd += len(told) != 1 or sorted(answer.status_code for answer in answers) != [200, 202]
        for command_id in trainer.fetch():
            effects[command_id] += 1
            trainer.report(command_id, S.DELIVERED, S.RUNNING, S.SUCCEEDED)
    known = people[0].get("/api/runs/run/commands").json()["commands"]
    figure("F41", f"double clicks that two people were told differently of ({backend})", odd, at_most=0)
    figure("F41", f"effects of {CLICKS} double clicks ({backend})", effects.total(), at_most=CLICKS, at_least=CLICKS)
    assert {each["command_id"]: each["state"] for each in known} == dict.fromkeys(effects, "succeeded")


def test_f41_a_stop_and_a_rollback_at_once_are_one_effect_and_the_stop_wins(pair, together, backend, figure):
    people, agent, _ = pair
    trainer = HttpTrainer(agent, "run").start()
    wrong = 0
    for _ in range(CLICKS // 4):
        stop, rollback = together.run(partial(click, people[0], "run", "stop"), partial(click, people[1], "run", "rollback"))
        (command_id,) = trainer.fetch()
        wrong += stop.status_code != 202 or command_id != stop.json()["command_id"] or rollback.status_code not in (202, 409)
        trainer.report(command_id, S.SUCCEEDED)
    figure("F41", f"stops that lost against a rollback ({backend})", wrong, at_most=0)


def test_r94_a_cancel_against_the_beginning_has_one_end_that_both_sides_name(pair, together, backend, figure):
    people, agent, database = pair
    trainer = HttpTrainer(agent, "run").start()
    ends, wrong = Counter(), 0
    for _ in range(CANCELS):
        command_id = click(people[0], "run", "save").json()["command_id"]
        trainer.report(command_id, S.DELIVERED)
        cancel = partial(people[1].post, f"/api/runs/run/commands/{command_id}/cancel", json={})
        cancelled, _ = together.run(cancel, partial(trainer.report, command_id, S.RUNNING))
        trainer.report(command_id, S.SUCCEEDED)
        with database.reading() as connection:
            ended = store.read_command(connection, "run", command_id)
        expected = "cancelled" if cancelled.status_code == 200 else "succeeded"
        wrong += ended.state.value != expected or ("too late" in ended.outcome) == (expected == "succeeded")
        ends[ended.state.value] += 1
    figure("R94", f"of {CANCELS} cancels against the beginning: ends told differently ({backend})", wrong, at_most=0)
    for state in ("cancelled", "succeeded"):
        figure("R94", f"of them: {state} ({backend})", ends[state])

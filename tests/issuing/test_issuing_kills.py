"""F44: the server is killed with a command in each state, and while people click: nothing is lost and nothing is doubled."""

import itertools
import os
import random
import threading
import time

import httpx2
import pytest
from faults_kit import RealServer, wait
from issuing_http import HttpTrainer, click

from trainer_agent.wire.vocabulary import CommandState, EndReason

S = CommandState
KILLS = 20 if os.environ.get("LOSSGUARD_SOAK") else 2
SHORT_WAIT = "import server.domain.commands as c; from datetime import timedelta; c.AFTER_RESTART = timedelta(seconds=0.2)"
"""After a restart of the trainer, a command that was not begun expires at once rather than after 10 s."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = RealServer(tmp_path_factory.mktemp("killed-server"), SHORT_WAIT)
    yield server
    server.close()


@pytest.fixture
def person(server):
    with httpx2.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.operator}"}, timeout=20) as client:
        yield client


@pytest.fixture
def agent(server):
    with httpx2.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.token}"}, timeout=20) as client:
        yield client


def kill_and_start(server: RealServer) -> None:
    server.process.kill()
    server.process.wait()
    server.start()


def commands_of(person, run_id):
    return person.get(f"/api/runs/{run_id}/commands").json()["commands"]


def in_state(person, agent, state: str) -> HttpTrainer:
    """A run of this name with a command that stands in this state."""
    trainer = HttpTrainer(agent, state).start()
    command_id = click(person, state, "rollback").json()["command_id"]
    match state:
        case "delivered" | "running" | "rejected":
            trainer.report(command_id, S(state))
        case "succeeded" | "failed":
            trainer.report(command_id, S.DELIVERED, S.RUNNING, S(state))
        case "cancelled":
            assert person.post(f"/api/runs/{state}/commands/{command_id}/cancel", json={}).status_code == 200
        case "superseded":
            assert click(person, state, "stop").status_code == 202
        case "waiting":
            trainer.report(command_id, S.RUNNING)
            assert click(person, state, "stop").json()["behind"] == command_id
        case "unconfirmed":
            trainer.report(command_id, S.RUNNING).end(EndReason.FAILED)
        case "expired":
            HttpTrainer(agent, state, "life-2").start(segment=2)
            wait(lambda: commands_of(person, state)[0]["state"] == "expired")
    return trainer


STATES = [*(each.value for each in CommandState), "waiting"]


def test_f44_a_command_in_each_state_is_as_it_was_after_the_server_was_killed(server, person, agent, figure):
    trainers = {state: in_state(person, agent, state) for state in STATES}
    before = {state: commands_of(person, state) for state in STATES}
    assert [before[state][-1]["state"] for state in STATES[:-1]] == STATES[:-1]
    kill_and_start(server)
    after = {state: commands_of(person, state) for state in STATES}
    for each in itertools.chain(*before.values(), *after.values()):
        each.pop("deadline_at")  # put off by the time that nobody could be heard
        each.pop("updated_at")
    figure("F44", "commands that are not what they were before the kill", sum(before[s] != after[s] for s in STATES), at_most=0)
    handed = {state: trainers[state].fetch() for state in STATES}
    waiting = {"queued": 1, "superseded": 1}
    wrong = sum(len(handed[state]) != waiting.get(state, 0) for state in STATES)
    figure("F44", "commands handed out that should not be, or not handed out", wrong, at_most=0)
    for state in ("queued", "delivered", "running", "unconfirmed", "waiting"):
        trainers[state].report(after[state][-1]["command_id"], S.SUCCEEDED)
        assert commands_of(person, state)[-1]["state"] == "succeeded", state
    assert trainers["waiting"].fetch() == [after["waiting"][0]["command_id"]], "the stop has its turn"


def test_f44_clicks_while_the_server_is_killed_are_made_once_or_not_at_all(server, person, agent, figure):
    HttpTrainer(agent, "run").start()
    dice = random.Random(44)
    print("seed 44")
    tried, told, stop = [], {}, threading.Event()
    people = [threading.Thread(target=_click_on, args=(server, who, tried, told, stop), daemon=True) for who in range(2)]
    for each in people:
        each.start()
    for _ in range(KILLS):
        reached = len(told)
        wait(lambda reached=reached: len(told) >= reached + 5, 90)
        time.sleep(dice.random() / 20)
        kill_and_start(server)
    stop.set()
    for each in people:
        each.join(60)
    known = {each["command_id"] for each in commands_of(person, "run")}
    figure("F44", "acknowledged clicks whose command is gone", len(set(told.values()) - known), at_most=0)
    again = {key: click(person, "run", kind, key=key) for key, kind in tried}
    differing = sum(key in told and told[key] != answer.json().get("command_id") for key, answer in again.items())
    figure("F44", "clicks sent again that were answered with another command", differing, at_most=0)
    in_line = [each for each in commands_of(person, "run") if each["state"] == "queued"]
    figure("F44", "commands in line in the end", len(in_line), at_most=1)
    figure("F44", f"clicks that were acknowledged, of those tried around {KILLS} kills", len(told), at_least=5 * KILLS)


def _click_on(server, who: int, tried: list, told: dict, stop: threading.Event) -> None:
    """Clicks and cancels until it is told to stop; a click that gets no answer is left at that."""
    headers = {"Authorization": f"Bearer {server.operator}"}
    with httpx2.Client(base_url=server.url, headers=headers, timeout=5) as client:
        for number in itertools.count():
            if stop.is_set():
                return
            key, kind = f"p{who}-{number}", ("save", "stop")[number % 2]
            tried.append((key, kind))
            try:
                answer = click(client, "run", kind, key=key)
                if answer.status_code in (200, 202):
                    told[key] = answer.json()["command_id"]
                    client.post(f"/api/runs/run/commands/{told[key]}/cancel", json={})
            except httpx2.HTTPError:
                time.sleep(0.05)

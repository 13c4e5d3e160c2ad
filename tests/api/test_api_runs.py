"""Runs, countdowns and alerts as people's routes show them, and that docs/api.md says what they hold."""

import json
import re
from pathlib import Path

import pytest
import sqlalchemy as sa
from served import JSON, batch, begin, start

from trainer_agent.wire.codec import encode
from trainer_agent.wire.messages import Batch, CheckpointSaved, Numbered, RunEnded
from trainer_agent.wire.vocabulary import CheckpointState, EndReason

DOCS = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
PARTS = ("model", "optimizer", "scheduler", "rng", "position")


@pytest.fixture
def acting(served):
    """The rule on a loss that is not finite stops the run after a minute; as it was again afterwards."""

    def act(kind):
        with served.client("operator") as person:
            change = {"action": {"kind": kind, "countdown_seconds": 60.0}}
            assert person.put("/api/rules/loss-not-finite", json=change).status_code == 200

    act("stop")
    yield
    act("notify")


def send(served, run_id, seq, record):
    with served.client("agent", **JSON) as agent:
        sent = encode(Batch(run_id, "life-1", 0, seq, seq, 0.0, records=(Numbered(seq, record),)))
        assert agent.post("/api/agent/batches", content=sent).status_code == 200


def in_trouble(served, run_id):
    """A run with a sound checkpoint at step 2 and a loss that is NaN after it: records 1 to 5."""
    begin(served, run_id, {"train/loss": [3.0, 2.0]})
    complete = CheckpointState.COMPLETE
    saved = CheckpointSaved("c-2", 1, 2, 0.0, complete, parts=PARTS, nonfinite_weights=0, nonfinite_optimizer=0)
    send(served, run_id, 4, saved)
    with served.client("agent", **JSON) as agent:
        sent = batch(run_id, {"train/loss": [float("nan")]}, first_seq=5)
        assert agent.post("/api/agent/batches", content=sent).status_code == 200


def detail(served, run_id):
    with served.client("operator") as person:
        return person.get(f"/api/runs/{run_id}").json()


def post(served, path):
    with served.client("operator") as person:
        return person.post(path)


def test_a_countdown_is_shown_with_what_it_will_do_and_can_be_cancelled_once(served, acting):
    in_trouble(served, "counts")
    countdown = detail(served, "counts")["countdown"]
    assert (countdown["kind"], countdown["run_id"], countdown["rule_id"]) == ("stop", "counts", "loss-not-finite")
    assert 0 < countdown["remaining_seconds"] <= countdown["total_seconds"] == 60.0
    answer = post(served, "/api/runs/counts/countdown/cancel")
    assert (answer.status_code, answer.json()) == (200, {"countdown": None, "command": None})
    assert post(served, "/api/runs/counts/countdown/cancel").status_code == 409
    assert detail(served, "counts")["commands"] == []


def test_said_now_a_countdown_becomes_its_command_at_once(served, acting):
    in_trouble(served, "hurries")
    answer = post(served, "/api/runs/hurries/countdown/now").json()
    assert answer["countdown"] is None
    command = answer["command"]
    assert (command["kind"], command["state"], command["issued_by"]) == ("stop", "queued", "operator")
    assert post(served, "/api/runs/hurries/countdown/now").status_code == 409


def test_an_ended_run_says_why_and_its_alerts_say_where(served):
    in_trouble(served, "ends")
    send(served, "ends", 6, RunEnded(EndReason.STOPPED_BY_GUARD, 0.0, 4, "loss is NaN"))
    run = detail(served, "ends")
    assert (run["state"], run["state_reason"]) == ("stopped", "loss is NaN")
    (alert,) = run["alerts"]
    assert (alert["state"], alert["closed_because"], alert["resolved_step"]) == ("resolved", "run_ended", 4)
    with served.client("operator") as person:
        (listed,) = [each for each in person.get("/api/runs").json()["runs"] if each["run_id"] == "ends"]
    assert (listed["alerts"]["firing"], listed["alerts"]["worst"]["alert_id"]) == (0, alert["alert_id"])


def test_the_list_of_runs_takes_as_many_queries_for_many_as_for_one(served):
    def count():
        queries = []

        def run(_connection, _cursor, statement, *_):
            queries.append(statement)

        engine = served.context.database._read_engine
        sa.event.listen(engine, "before_cursor_execute", run)
        try:
            with served.client("operator") as person:
                assert person.get("/api/runs").status_code == 200
        finally:
            sa.event.remove(engine, "before_cursor_execute", run)
        return len([each for each in queries if each.startswith("SELECT")])

    begin(served, "many-0")
    before = count()
    for number in range(1, 6):
        in_trouble(served, f"many-{number}")
    assert count() == before


def fields(name):
    """The fields that docs/api.md gives to a thing, at its top level."""
    text = re.search(rf"\*\*{name}\*\* `{{(.*?)}}`", DOCS).group(1)
    while (thinner := re.sub(r"[\[{(][^\[\]{}()]*[\]})]", "", text)) != text:  # what lies inside is of another thing
        text = thinner
    return set(re.findall(r'"(\w+)"', re.sub(r":[^,]*", "", text)))


def test_the_documentation_names_every_field_and_no_other(served, acting):
    in_trouble(served, "documented")
    assert post(served, "/api/runs/documented/countdown/cancel").status_code == 200
    in_trouble(served, "counting")
    with served.client("operator", **{"Idempotency-Key": "documented"}) as person:
        command = person.post("/api/runs/documented/commands", json={"kind": "stop", "seen_segment": 1}).json()
        summary = next(each for each in person.get("/api/runs").json()["runs"] if each["run_id"] == "documented")
        run, rules = person.get("/api/runs/documented").json(), person.get("/api/rules").json()["rules"]
    shown = {
        "RunSummary": summary,
        "Segment": run["segments"][0],
        "Checkpoint": run["checkpoints"][0],
        "Alert": run["alerts"][0],
        "Command": command,
        "Countdown": detail(served, "counting")["countdown"],
        "SeriesSummary": run["series"][0],
        "Event": run["events"][0],
        "Rule": rules[0],
    }
    assert {name: fields(name) ^ set(each) for name, each in shown.items()} == {name: set() for name in shown}
    own = {"capabilities", "incapable_because", "automatic_rollback", "world_size", "dropped_records", "segments", "checkpoints"}
    own |= {"incarnation", "data_modes", "data_modes_because"}
    assert set(run) == set(summary) | own | {"alerts", "incident", "commands", "series", "proposal", "events"}


def test_an_id_with_a_line_break_starts_no_run(served):
    message = json.loads(start("broken")) | {"run_id": "broken\n"}
    with served.client("agent", **JSON) as agent:
        assert agent.post("/api/agent/runs", content=json.dumps(message).encode()).status_code == 422

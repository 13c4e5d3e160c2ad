"""Commands and pins over HTTP: what is taken, what is refused with which members, and who is written down."""

import contextlib
import json
import uuid

import pytest
from served import JSON, begin, start

from trainer_agent.wire.codec import encode
from trainer_agent.wire.messages import Batch, CheckpointSaved, Heartbeat, Numbered, Report, SegmentStarted
from trainer_agent.wire.vocabulary import CheckpointState, CommandKind, CommandState, DataMode, Phase, SegmentCause

SAVED = CheckpointSaved(
    "step 100",
    1,
    2,
    0.0,
    CheckpointState.COMPLETE,
    size_bytes=7,
    parts=("model", "optimizer"),
    nonfinite_weights=0,
    nonfinite_optimizer=0,
    save_seconds=0.5,
    world_size=2,
    versions={"torch": "2.13.0"},
    signals={"train/loss": float("nan")},
    vocabulary="32000 tokens, 1a2b",
)


def say(served, run_id, *records, first=5, incarnation="life-1"):
    numbered = tuple(Numbered(first + place, record) for place, record in enumerate(records))
    message = Batch(run_id, incarnation, 0, first, first + len(records) - 1, 0.0, records=numbered)
    with served.client("agent", **JSON) as agent:
        answer = agent.post("/api/agent/batches", content=encode(message))
        assert answer.status_code == 200, answer.text
    return answer.json()


def able(served, run_id, checkpoint=SAVED):
    """A run that can do everything, with one checkpoint."""
    able_to = json.loads(start(run_id)) | {"capabilities": list(CommandKind), "data_modes": list(DataMode)}
    with served.client("agent", **JSON) as agent:
        assert agent.post("/api/agent/runs", content=json.dumps(able_to).encode()).status_code == 200
    begin(served, run_id)
    say(served, run_id, checkpoint)


def click(served, run_id, kind, *, key=None, **body):
    with served.client("operator", **{"Idempotency-Key": key or uuid.uuid4().hex}) as person:
        return person.post(f"/api/runs/{run_id}/commands", json={"kind": kind, "seen_segment": 1, **body})


def run_of(served, run_id):
    with served.client("operator") as person:
        return person.get(f"/api/runs/{run_id}").json()


EXCLUDE = {"data": "exclude", "exclude_samples": [3, 1, 3], "exclude_documents": ["b", "a"], "learning_rate_factor": 0.5}
PLAIN = CheckpointSaved("c-2", 1, 2, 0.0, CheckpointState.COMPLETE, parts=SAVED.parts, nonfinite_weights=0, nonfinite_optimizer=0)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("save", {}),
        ("pause", {}),
        ("set_learning_rate_factor", {"value": 0.5}),
        ("set_max_grad_norm", {"value": 1.0}),
        ("rollback", EXCLUDE),
    ],
)
def test_each_kind_reaches_the_trainer_as_it_was_asked_for(served, kind, more):
    run_id = f"kind-{kind}-{uuid.uuid4().hex[:6]}"
    able(served, run_id, PLAIN)
    answer = click(served, run_id, kind, reason="try", **more)
    assert answer.status_code == 202, answer.text
    (carried,) = say(served, run_id, PLAIN)["commands"]  # the same record again
    assert (carried["kind"], carried["value"]) == (kind, more.get("value"))
    if kind == "rollback":
        asked = {name: carried["rollback"][name] for name in EXCLUDE}
        assert asked == {**more, "exclude_samples": [1, 3], "exclude_documents": ["a", "b"]}
        shown = answer.json()["rollback"]
        assert {name: shown[name] for name in asked} == asked


@pytest.mark.parametrize(
    "senseless",
    [
        {"kind": "set_learning_rate_factor"},
        {"kind": "set_learning_rate_factor", "value": 101},
        {"kind": "set_learning_rate_factor", "value": 0},
        {"kind": "set_max_grad_norm", "value": "NaN"},
        {"kind": "stop", "value": 1},
        {"kind": "save", "checkpoint_id": "c-2"},
        {"kind": "rollback", "data": "exclude"},
        {"kind": "rollback", "data": "skip", "exclude_samples": [1]},
        {"kind": "rollback", "exclude_samples": [-1]},
        {"kind": "rollback", "exclude_samples": [1.5]},
        {"kind": "rollback", "exclude_samples": list(range(10_001))},
        {"kind": "rollback", "exclude_documents": ["d"] * 201},
        {"kind": "rollback", "exclude_documents": ["d" * 257]},
        {"kind": "rollback", "learning_rate_factor": 0},
        {"kind": "stop", "seen_incarnation": "no such name!"},
        {"kind": "stop", "seen_step": -1},
    ],
)
def test_what_makes_no_sense_is_422_and_leaves_nothing(served, senseless):
    able(served, "senseless", PLAIN)
    answer = click(served, "senseless", **senseless)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert run_of(served, "senseless")["commands"] == []


def test_a_stale_page_is_told_where_the_run_is_now(served):
    able(served, "stale", PLAIN)
    with served.client("agent", **JSON) as agent:
        restarted = json.loads(start("stale")) | {"incarnation": "life-2", "capabilities": list(CommandKind)}
        assert agent.post("/api/agent/runs", content=json.dumps(restarted).encode()).status_code == 200
    say(served, "stale", SegmentStarted(2, 2, SegmentCause.RESTART, 0.0), first=1, incarnation="life-2")
    active = click(served, "stale", "save", seen_segment=2).json()
    for seen in ({"seen_segment": 1}, {"seen_segment": 2, "seen_incarnation": "life-1", "seen_step": 3}):
        answer = click(served, "stale", "stop", **seen)
        assert answer.status_code == 412
        assert answer.json()["segment"] == 2
        assert answer.json()["run"] == {
            "state": "running",
            "segment": 2,
            "incarnation": "life-2",
            "step": 2,
            "command": {"command_id": active["command_id"], "kind": "save", "state": "queued", "issued_by": "operator"},
        }
    assert run_of(served, "stale")["incarnation"] == "life-2"
    assert click(served, "stale", "stop", seen_segment=2, seen_incarnation="life-2").status_code == 202


def test_a_mode_the_run_cannot_do_is_refused_with_its_reason(served):
    with served.client("agent", **JSON) as agent:
        unable = json.loads(start("replays")) | {"data_modes": ["replay"], "data_modes_because": "it draws by itself"}
        assert agent.post("/api/agent/runs", content=json.dumps(unable).encode()).status_code == 200
    begin(served, "replays")
    say(served, "replays", PLAIN)
    answer = click(served, "replays", "rollback", data="skip")
    assert (answer.status_code, answer.json()["refusal"]) == (409, "cannot_data")
    assert "it draws by itself" in answer.json()["detail"]
    assert run_of(served, "replays")["proposal"]["data"] == "replay"
    assert click(served, "replays", "rollback").json()["rollback"]["data"] == "replay"


def test_a_paused_run_says_so_and_takes_a_resume(served):
    able(served, "paused", PLAIN)
    assert click(served, "paused", "resume").json()["refusal"] == "not_paused"
    with served.client("agent", **JSON) as agent:
        beat = Heartbeat("paused", "life-1", 0, 0.0, Phase.PAUSED, 3)
        assert agent.post("/api/agent/heartbeats", content=encode(beat)).status_code == 200
    assert run_of(served, "paused")["state"] == "paused"
    assert click(served, "paused", "pause").json()["refusal"] == "already_paused"
    assert click(served, "paused", "resume").status_code == 202


def test_the_history_says_who_from_where_and_what_was_before(served):
    able(served, "history", PLAIN)
    first = click(served, "history", "rollback").json()
    say(served, "history", Report(first["command_id"], CommandState.RUNNING, 0.0, 3), first=6)
    stop = click(served, "history", "stop", reason="enough").json()
    assert stop["behind"] == first["command_id"]
    run = run_of(served, "history")
    assert (run["command"]["command_id"], run["waiting_command"]["command_id"]) == (first["command_id"], stop["command_id"])
    with served.client("operator") as person:
        assert person.post(f"/api/runs/history/commands/{stop['command_id']}/cancel", json={}).status_code == 200
        known = {each["command_id"]: each for each in person.get("/api/runs/history/commands").json()["commands"]}
        assert person.get("/api/runs/none/commands").status_code == 404
    lines = [(each["before"], each["state"], each["by"], each["reason"]) for each in known[stop["command_id"]]["history"]]
    assert lines == [(None, "queued", "operator", "enough"), ("queued", "cancelled", "operator", "cancelled by operator")]
    assert {each["place"] for each in known[stop["command_id"]]["history"]} == {"127.0.0.1, by token"}
    assert known[first["command_id"]]["history"][-1]["place"] == "life-1"
    browser = served.browser()
    with contextlib.closing(browser):
        browser.headers["Idempotency-Key"] = "by-the-page"
        say(served, "history", Report(first["command_id"], CommandState.FAILED, 0.0, 3), first=7)
        assert browser.post("/api/runs/history/commands", json={"kind": "save", "seen_segment": 1}).json()["issued_from"] == (
            "127.0.0.1, by the page"
        )


def test_a_checkpoint_tells_what_the_page_needs_and_is_pinned_and_unpinned(served):
    able(served, "pins", SAVED)
    (checkpoint,) = run_of(served, "pins")["checkpoints"]
    assert {name: checkpoint[name] for name in ("parts", "world_size", "versions", "signals", "save_seconds", "size_bytes")} == {
        "parts": ["model", "optimizer"],
        "world_size": 2,
        "versions": {"torch": "2.13.0"},
        "signals": {"train/loss": "NaN"},
        "save_seconds": 0.5,
        "size_bytes": 7,
    }
    assert (checkpoint["why"], checkpoint["pinned"], checkpoint["vocabulary"]) == ("", False, "32000 tokens, 1a2b")
    with served.client("operator") as person:
        pinned = person.post("/api/runs/pins/checkpoints/step 100/pin", json={}).json()
        assert (pinned["pinned"], pinned["pinned_by"]) == (True, "operator")
        assert pinned == run_of(served, "pins")["checkpoints"][0]
        (verdict,) = say(served, "pins", PLAIN, first=6)["verdicts"][-1:]
        assert (verdict["checkpoint_id"], verdict["pinned"]) == ("step 100", True)
        assert person.post("/api/runs/pins/checkpoints/step 100/unpin", json={}).json()["pinned"] is False
        assert person.post("/api/runs/pins/checkpoints/none/pin", json={}).status_code == 404
        assert person.post("/api/runs/none/checkpoints/none/pin", json={}).status_code == 404
    kinds = [each["type"] for each in run_of(served, "pins")["events"]]
    assert kinds.count("checkpoint.pinned") == kinds.count("checkpoint.unpinned") == 1

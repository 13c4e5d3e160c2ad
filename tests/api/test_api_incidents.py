import math

import pytest
from served import begin


@pytest.fixture(scope="module")
def troubled(served):
    """A run whose loss is NaN and stays so."""
    begin(served, "troubled", {"train/loss": [1.0, math.nan, math.nan]})
    return served


def open_incident(person, run_id="troubled"):
    return next(each for each in person.get("/api/incidents?open=true").json()["incidents"] if each["run_id"] == run_id)


def test_an_incident_says_what_happened_what_was_done_and_what_to_do(troubled):
    with troubled.client("operator") as person:
        found = open_incident(person)
        shown = person.get(f"/api/runs/troubled/incidents/{found['incident_id']}").json()
        run = person.get("/api/runs/troubled").json()
    assert (found["number"], found["state"], found["severity"], found["first_step"]) == (1, "triggered", "critical", 2)
    assert found == {name: value for name, value in shown.items() if name != "timeline"} == run["incident"]
    assert {"alert.firing", "incident.firing"} <= {event["type"] for event in shown["timeline"]}
    alert = next(each for each in found["alerts"] if each["rule_id"] == "loss-not-finite")
    assert alert["texts"] == {"en": "train/loss is NaN, since step 2", "zh": "train/loss 为 NaN，自第 2 步起"}
    assert (alert["incident_id"], alert["detector"], alert["trial"]) == (found["incident_id"], "nonfinite", False)
    assert alert["done"]["en"].endswith(".")
    assert alert["next"]["zh"].endswith("。")


def test_an_incident_is_taken_on_once_and_by_whom_is_seen(troubled):
    with troubled.client("operator") as person:
        path = f"/api/runs/troubled/incidents/{open_incident(person)['incident_id']}"
        taken = person.post(f"{path}/acknowledge", json={"note": "looking"})
        assert taken.status_code == 200, taken.text
        assert (taken.json()["state"], taken.json()["note"]) == ("acknowledged", "looking")
        assert taken.json()["acknowledged_by"]
        assert person.post(f"{path}/acknowledge", json={}).json()["note"] == "looking"
        assert "incident.acknowledged" in {event["type"] for event in person.get(path).json()["timeline"]}
        assert person.post(f"{path}/acknowledge", json={"note": 5}).status_code == 422
        assert person.post("/api/runs/troubled/incidents/i_none/acknowledge", json={}).status_code == 404
        assert person.get("/api/runs/troubled/incidents/i_none").status_code == 404
        assert person.get("/api/incidents", params={"run_id": "nobody"}).json() == {"incidents": []}


def test_a_silence_is_made_shown_and_ended(troubled):
    with troubled.client("operator") as person:
        made = person.post("/api/silences", json={"run_id": "troubled", "hours": 1.5, "reason": "maintenance"})
        assert made.status_code == 201, made.text
        silence = made.json()
        assert (silence["run_name"], silence["rule_id"], silence["ended_at"]) == ("name of troubled", None, None)
        assert open_incident(person)["silenced_until"] == silence["ends_at"]
        assert person.get("/api/silences?active=true").json()["silences"] == [silence]
        ended = person.delete(f"/api/silences/{silence['silence_id']}").json()
        assert ended["ended_by"] == silence["author"]
        assert person.delete(f"/api/silences/{silence['silence_id']}").status_code == 409
        assert person.get("/api/silences?active=true").json() == {"silences": []}
        assert open_incident(person)["silenced_until"] is None
        assert [each["silence_id"] for each in person.get("/api/silences").json()["silences"]] == [silence["silence_id"]]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"hours": 1, "reason": "r"}, 422),
        ({"run_id": "troubled", "reason": "r"}, 422),
        ({"run_id": "troubled", "hours": 1}, 422),
        ({"run_id": "troubled", "hours": 0, "reason": "r"}, 422),
        ({"run_id": "troubled", "hours": 721, "reason": "r"}, 422),
        ({"run_id": "troubled", "hours": 1, "reason": " "}, 422),
        ({"run_id": "troubled", "hours": "1", "reason": "r"}, 422),
        ({"run_id": "nobody", "hours": 1, "reason": "r"}, 404),
        ({"rule_id": "nothing", "hours": 1, "reason": "r"}, 404),
    ],
)
def test_a_silence_of_nothing_without_an_end_or_without_a_reason_is_refused(troubled, body, status):
    with troubled.client("operator") as person:
        assert person.post("/api/silences", json=body).status_code == status
        assert person.delete("/api/silences/s_none").status_code == 404


def test_an_endpoint_has_a_language(troubled):
    with troubled.client("operator") as person:
        new = {"name": "zh", "url": "http://127.0.0.1:1/", "language": "zh"}
        made = person.post("/api/webhooks", json=new).json()
        path = f"/api/webhooks/{made['webhook_id']}"
        assert made["language"] == "zh"
        assert person.put(path, json={"language": "en"}).json()["language"] == "en"
        assert person.put(path, json={"language": "de"}).status_code == 422
        assert person.post("/api/webhooks", json=new | {"language": None}).status_code == 422
        person.delete(path)

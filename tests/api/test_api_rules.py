"""Rules by API: made, changed, reset, deleted; every wrong field is named."""

import pytest

RULE = {"name": "Eval loss over 4", "series": "eval/loss", "detector": "threshold", "settings": {"above": 4}}


@pytest.fixture
def person(served):
    with served.client("operator") as person:
        yield person


def make(person, **change):
    answer = person.post("/api/rules", json={**RULE, **change})
    assert answer.status_code == 201, answer.text
    return answer.json()


def listed(person, rule_id):
    return next((rule for rule in person.get("/api/rules").json()["rules"] if rule["rule_id"] == rule_id), None)


def wrong_fields(answer):
    assert answer.status_code == 422, answer.text
    return {each["field"]: each["message"] for each in answer.json()["errors"]}


def test_a_rule_of_ones_own_is_made_listed_last_changed_and_deleted(person):
    made = make(person, scope={"kind": "project", "name": "demo"}, trial=True, for_points=3)
    assert (made["title"], made["version"], made["is_default"], made["edited"]) == ("Eval loss over 4", 1, False, True)
    assert (made["scope"], made["trial"], made["failure"]) == ({"kind": "project", "name": "demo"}, True, None)
    assert person.get("/api/rules").json()["rules"][-1] == made
    changed = person.put(f"/api/rules/{made['rule_id']}", json={"series": "eval/*", "trial": False, "version": 1}).json()
    assert (changed["series"], changed["trial"], changed["version"]) == ("eval/*", False, 2)
    assert person.delete(f"/api/rules/{made['rule_id']}").status_code == 204
    assert listed(person, made["rule_id"]) is None
    assert person.delete(f"/api/rules/{made['rule_id']}").status_code == 404


def test_every_wrong_field_is_named_at_once(person):
    sent = {
        "name": " ",
        "series": "Loss",
        "detector": "threshold",
        "settings": {"above": "ten", "over": 3},
        "for_points": 0,
        "keep_firing_for_points": 1.5,
        "severity": "loud",
        "enabled": "yes",
        "action": {"kind": "panic", "countdown": 3, "countdown_seconds": -1},
        "scope": {"kind": "run"},
        "version": 7,
        "colour": "red",
    }
    wrong = wrong_fields(person.post("/api/rules", json=sent))
    assert wrong.keys() >= {
        "name",
        "series",
        "settings.above",
        "for_points",
        "keep_firing_for_points",
        "severity",
        "enabled",
        "action.kind",
        "action.countdown",
        "scope.name",
        "version",
        "colour",
    }
    assert wrong["severity"] == "must be one of info, warning, critical"


def test_settings_that_never_hold_together_and_samples_that_no_rule_can_name_are_refused(person):
    spike = {"detector": "spike", "settings": {"need": 2, "window": 8}}
    assert wrong_fields(person.post("/api/rules", json={**RULE, **spike})).keys() == {"settings.need", "settings.history"}
    wrong = wrong_fields(person.put("/api/rules/loss-rises-5", json={"action": {"data": "exclude"}}))
    assert wrong == {"action.data": "must be skip or replay: a rule cannot name the samples to leave out"}


@pytest.mark.parametrize("left_out", ["name", "series", "detector"])
def test_what_a_rule_needs_is_asked_for(person, left_out):
    wrong = wrong_fields(person.post("/api/rules", json={name: said for name, said in RULE.items() if name != left_out}))
    assert wrong[left_out] == "is missing: a rule needs it"


@pytest.mark.parametrize("sent", [{"settings": 5}, {"settings": {"above": None}}, {"settings": {"above": "Infinity"}}])
def test_settings_that_are_none_are_refused(person, sent):
    assert any(field.startswith("settings") for field in wrong_fields(person.post("/api/rules", json={**RULE, **sent})))


def test_a_change_made_on_another_version_is_refused_and_changes_nothing(person):
    made = make(person)
    assert person.put(f"/api/rules/{made['rule_id']}", json={"for_points": 2, "version": 1}).status_code == 200
    late = person.put(f"/api/rules/{made['rule_id']}", json={"for_points": 9, "version": 1})
    assert late.status_code == 409
    assert "version 2, not 1" in late.json()["detail"]
    assert listed(person, made["rule_id"])["for_points"] == 2


def test_another_detector_begins_with_its_own_settings_and_null_goes_back_to_the_default(person):
    made = make(person, settings={"above": 4, "below": 1})
    one = person.put(f"/api/rules/{made['rule_id']}", json={"settings": {"below": None}}).json()
    assert one["settings"] == {"above": 4.0}
    two = person.put(f"/api/rules/{made['rule_id']}", json={"detector": "consecutive_rise", "settings": {"rises": 7}}).json()
    assert (two["detector"], two["settings"]) == ("consecutive_rise", {"rises": 7.0})


def test_a_default_rule_is_changed_in_all_fields_reset_and_never_deleted(person):
    before = listed(person, "loss-rises-5")
    assert (before["is_default"], before["edited"]) == (True, False)
    change = {"name": "Mine", "series": "eval/loss", "settings": {"rises": 3}, "severity": "warning"}
    changed = person.put("/api/rules/loss-rises-5", json=change).json()
    assert (changed["name"], changed["series"], changed["edited"]) == ("Mine", "eval/loss", True)
    refused = person.delete("/api/rules/loss-rises-5")
    assert (refused.status_code, refused.json()["fix"]) == (409, "disable it instead")
    reset = person.post("/api/rules/loss-rises-5/reset").json()
    assert {**reset, "version": before["version"]} == before
    assert reset["version"] == changed["version"] + 1
    assert person.post("/api/rules/loss-rises-5/reset").json()["version"] == reset["version"]


def test_there_is_nothing_to_reset_a_rule_of_ones_own_to(person):
    made = make(person)
    assert person.post(f"/api/rules/{made['rule_id']}/reset").status_code == 409


def test_a_rule_for_a_run_that_is_not_there_is_refused(person):
    wrong = wrong_fields(person.post("/api/rules", json={**RULE, "scope": {"kind": "run", "name": "no-such-run"}}))
    assert wrong == {"scope.name": "is no run that the server knows: 'no-such-run'"}


@pytest.mark.parametrize("pattern", ["*", "train/*", "*loss", "train*"])
def test_a_pattern_that_something_can_match_is_taken(person, pattern):
    assert make(person, series=pattern)["series"] == pattern


@pytest.mark.parametrize("pattern", ["Train/*", "train/[a-z]*", "train//*", "/x*", "tr ain/*", ""])
def test_a_pattern_that_nothing_can_match_is_refused(person, pattern):
    assert wrong_fields(person.post("/api/rules", json={**RULE, "series": pattern})).keys() == {"series"}


def test_every_detector_says_what_it_means_and_takes(person):
    detectors = {each["kind"]: each for each in person.get("/api/detectors").json()["detectors"]}
    assert {"threshold", "nonfinite", "consecutive_rise", "spike", "skip_streak"} <= detectors.keys()
    for each in detectors.values():
        assert each["meaning"].endswith(".")
        assert all(setting["meaning"] for setting in each["settings"])
    above = next(setting for setting in detectors["threshold"]["settings"] if setting["name"] == "above")
    assert (above["default"], above["whole"]) == (None, False)

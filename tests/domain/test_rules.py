"""What makes a rule valid, how it is changed, and the pack that is on from the first run."""

import json
import math
from dataclasses import replace

import pytest

from server.domain.default_rules import DEFAULT_RULES
from server.domain.rule_changes import changed, made
from server.domain.rule_flaws import WrongRuleError, problems
from server.domain.rules import (
    Action,
    ActionKind,
    AlertRule,
    DetectorKind,
    rule_from_json,
    rule_to_json,
)
from trainer_agent.wire.vocabulary import DataMode, Severity

RULE = AlertRule("r", "Norm over 10", "Norm high", "train/grad_norm", DetectorKind.THRESHOLD, {"above": 10.0})


@pytest.mark.parametrize("rule", DEFAULT_RULES, ids=lambda rule: rule.rule_id)
def test_a_default_rule_is_valid_says_why_it_exists_and_only_tells(rule):
    assert problems(rule) == ()
    assert len(rule.reason) > 80
    assert rule.enabled
    assert rule.action.kind is ActionKind.NOTIFY
    assert rule_from_json(json.loads(json.dumps(rule_to_json(rule), allow_nan=False))) == rule


def test_the_rules_that_cry_wolf_are_only_information():
    severity = {rule.rule_id: rule.severity for rule in DEFAULT_RULES}
    assert severity["grad-norm-over-10"] is severity["loss-rises-5"] is Severity.INFO
    assert severity["loss-not-finite"] is severity["steps-skipped"] is Severity.CRITICAL


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"settings": {}}, "must give above or below"),
        ({"settings": {"above": 1.0, "over": 1.0}}, "takes above, below"),
        ({"settings": {"above": math.nan}}, "must be a finite number"),
        ({"detector": DetectorKind.SPIKE, "settings": {"history": 500.0}}, "between 2 and 128"),
        ({"detector": DetectorKind.CONSECUTIVE_RISE, "settings": {"rises": 2.5}}, "whole number"),
        ({"settings": {"above": 1.0, "below": 2.0}}, "settings.below is 2, higher than above (1)"),
        ({"detector": DetectorKind.SPIKE, "settings": {"need": 2.0}}, "settings.need is 2, more than the 1 points"),
        ({"detector": DetectorKind.NONFINITE, "settings": {"need": 5.0, "of": 3.0}}, "settings.need is 5, more than the 3"),
        ({"detector": DetectorKind.ZERO, "settings": {"of": 2.0}}, "settings.need is 3, more than the 2"),
        ({"detector": DetectorKind.SPIKE, "settings": {"window": 8.0}}, "settings.history is 32, more than a window of 8"),
        ({"detector": DetectorKind.ENDED, "settings": {"failed": 0.0}}, "1 for at least one kind of end"),
        ({"action": Action(data=DataMode.EXCLUDE)}, "action.data must be skip or replay"),
        ({"for_points": 0}, "for_points must lie between 1"),
        ({"keep_firing_for_points": -1}, "keep_firing_for_points"),
        ({"series": "Loss"}, "group/name in lower case"),
        ({"title": " "}, "title is empty"),
        ({"action": Action(ActionKind.STOP, countdown_seconds=math.nan)}, "countdown_seconds"),
        ({"action": Action(max_grad_norm=0.0)}, "max_grad_norm"),
        ({"action": Action(ActionKind.STOP), "severity": Severity.INFO}, "warning or critical"),
    ],
)
def test_a_wrong_rule_is_told_what_to_write_instead(change, words):
    found = problems(replace(RULE, **change))
    assert len(found) == 1
    assert words in str(found[0])


def test_settings_that_go_together_are_taken():
    """A band that is left on either side; a limit at its other one; a young run, which needs no history."""
    for settings in ({"above": 2.0, "below": 1.0}, {"above": 1.0, "below": 1.0}):
        assert problems(replace(RULE, settings=settings)) == ()
    young = {"window": 8.0, "young_times": 2.0, "need": 3.0, "of": 3.0}
    assert problems(replace(RULE, detector=DetectorKind.SPIKE, settings=young)) == ()


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({"settings": {"above": "abc", "foo": 3}}, ["settings.above", "settings.foo"]),
        ({"settings": {"above": "abc"}}, ["settings.above"]),
        ({"detector": "spike", "settings": {"of": "x", "need": 5}}, ["settings.of"]),
        ({"detector": "spikes", "settings": {"foo": 3}}, ["detector"]),
        ({"name": " "}, ["name"]),
        ({"name": "n" * 201}, ["name"]),
        ({"name": "", "title": ""}, ["name"]),
        ({"name": "", "title": " "}, ["name", "title"]),
    ],
)
def test_each_wrong_field_of_a_new_rule_is_named_and_no_other(given, fields):
    new = {"name": "n", "series": "eval/loss", "detector": "threshold", "settings": {"above": 1}}
    with pytest.raises(WrongRuleError) as told:
        made({**new, **given}, "own")
    assert [flaw.field for flaw in told.value.flaws] == fields


def test_a_change_raises_the_version_and_keeps_what_it_does_not_name():
    after = changed(RULE, {"settings": {"below": 1}, "action": {"kind": "stop"}})
    assert after.version == 2
    assert after.settings == {"above": 10.0, "below": 1.0}
    assert after.action == replace(RULE.action, kind=ActionKind.STOP)


def test_a_change_that_changes_nothing_keeps_the_version():
    assert changed(RULE, {"severity": "warning"}) is RULE


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 3}, "is no field of a rule"),
        ({"severity": "loud"}, "must be one of info, warning, critical"),
        ({"settings": {"above": "ten"}}, "must be a number"),
        ({"settings": {"above": "Infinity"}}, "finite"),
        ({"for_points": 1.5}, "whole number"),
        ({"enabled": "yes"}, "enabled"),
        ({"settings": 5}, "must be an object"),
    ],
)
def test_a_wrong_change_is_refused_in_words(changes, words):
    with pytest.raises(ValueError, match=words):
        changed(RULE, changes)

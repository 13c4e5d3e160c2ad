"""How the demo judges what it was told: made-up stories, each with one fault."""

import pytest
from demo_verdict import Told, checks, dead_step, figures, rollback

RULE = "grad-norm-spike"


def points(values, segment=1, superseded=(), start=1):
    return [
        {
            "segment": segment,
            "rank": 0,
            "seq": i + 1 + 1000 * segment,
            "step": start + i,
            "time": 0.0,
            "value": value,
            "superseded": start + i in superseded,
        }
        for i, value in enumerate(values)
    ]


def story(*, firing=33, to=20, state="finished", last=60, end_loss=2.0, severity="warning", open_state="resolved"):
    """A run that was rolled back from 40 to `to` and went on to `last`."""
    old = set(range(to + 1, 41))
    loss = points([3.0] * 40, superseded=old) + points([end_loss] * (last - to), segment=2, start=to + 1)
    overflow = points([0.0] * 40, superseded=old) + points([0.0] * (last - to), segment=2, start=to + 1)
    alert = {
        "rule_id": RULE,
        "segment": 1,
        "firing_step": firing,
        "severity": severity,
        "state": open_state,
        "title": "Grad norm spikes",
    }
    segments = [
        {"segment": 1, "cause": "start", "from_step": 0, "last_step": 40, "parent": None},
        {"segment": 2, "cause": "rollback", "from_step": to, "last_step": last, "parent": 1},
    ]
    detail = {"run_id": "r", "alerts": [alert], "segments": segments, "state": state, "total_steps": 60, "dropped_records": 0}
    return Told(detail, loss, overflow)


def twin(dead_from=38, last=60):
    loss = [3.0 if step < dead_from else "NaN" for step in range(1, last + 1)]
    overflow = [0.0 if step < dead_from else 1.0 for step in range(1, last + 1)]
    return Told(
        {"run_id": "t", "alerts": [], "segments": [], "state": "finished", "total_steps": last, "dropped_records": 0},
        points(loss),
        points(overflow),
    )


def failing(guarded, other=None, culprit=31):
    other = other or twin()
    result = figures(guarded, other, culprit, (RULE,))
    return result, sorted(check.name for check in checks(result, guarded, other) if not check.ok)


def test_a_run_that_was_saved_passes_and_all_figures_are_read():
    result, failed = failing(story())
    assert failed == []
    assert result["first_alert"] == {"rule": RULE, "step": 33}
    assert (result["rolled_back_from"], result["rolled_back_to"], result["dead_step_without_guard"]) == (40, 20, 38)
    assert (result["steps"], result["final_loss"], result["final_loss_unguarded"]) == (60, 2.0, "NaN")


@pytest.mark.parametrize(
    ("guarded", "fault"),
    [
        (story(firing=30), "first_alert"),
        (story(firing=38), "first_alert"),
        (story(to=31), "rolled_back"),
        (story(state="stopped"), "finished"),
        (story(last=50), "steps"),
        (story(end_loss=3.5), "loss"),
        (story(end_loss="NaN"), "loss"),
        (story(open_state="firing"), "alerts"),
    ],
)
def test_each_fault_is_found(guarded, fault):
    assert fault in failing(guarded)[1]


def test_a_twin_that_lives_is_a_demo_that_showed_nothing():
    assert set(failing(story(), twin(dead_from=100))[1]) == {"twin_died", "first_alert"}


def test_one_skipped_last_step_is_no_death():
    assert dead_step(twin(dead_from=60)) is None
    assert dead_step(twin(dead_from=58)) == 58


def test_a_run_without_a_rollback_says_so():
    assert rollback({"segments": [{"segment": 1, "cause": "start", "from_step": 0, "last_step": 9, "parent": None}]}) is None

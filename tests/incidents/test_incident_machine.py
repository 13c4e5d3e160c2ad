import itertools
import math
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from incidents_kit import NOW, an_alert

from server.domain import grouping, silences
from server.domain.alerts import CloseReason, Told
from server.domain.grouping import Member, Pace, Saying
from server.domain.incidents import TRANSITIONS, Incident, IncidentInput, IncidentState, Talk, step
from server.domain.inhibition import INHIBITS, inhibited, is_loss
from trainer_agent.wire.vocabulary import AlertState, Severity

TRIGGERED, ACKNOWLEDGED, RESOLVED = IncidentState.TRIGGERED, IncidentState.ACKNOWLEDGED, IncidentState.RESOLVED
ALERT, ACK, OVER = IncidentInput.ALERT, IncidentInput.ACKNOWLEDGE, IncidentInput.OVER


@pytest.mark.parametrize(
    ("state", "what", "after"),
    [
        (None, ALERT, TRIGGERED),
        (None, ACK, None),
        (None, OVER, None),
        (TRIGGERED, ALERT, TRIGGERED),
        (TRIGGERED, ACK, ACKNOWLEDGED),
        (TRIGGERED, OVER, RESOLVED),
        (ACKNOWLEDGED, ALERT, ACKNOWLEDGED),
        (ACKNOWLEDGED, ACK, ACKNOWLEDGED),
        (ACKNOWLEDGED, OVER, RESOLVED),
        (RESOLVED, ALERT, RESOLVED),
        (RESOLVED, ACK, RESOLVED),
        (RESOLVED, OVER, RESOLVED),
    ],
)
def test_every_state_and_input_goes_where_the_picture_says(state, what, after):
    assert step(state, what) is after


def test_the_walk_over_states_and_inputs_is_whole_and_every_state_is_reached():
    assert set(TRANSITIONS.values()) == set(IncidentState)
    assert len(list(itertools.product([None, *IncidentState], IncidentInput))) == 12


@given(st.lists(st.sampled_from(IncidentInput), max_size=30))
def test_an_end_is_final_and_nothing_goes_back(inputs):
    order, state = [None, TRIGGERED, ACKNOWLEDGED, RESOLVED], None
    for what in inputs:
        after = step(state, what)
        assert order.index(after) >= order.index(state)
        state = after


def closed(alert, because=CloseReason.RECOVERED):
    return replace(alert, state=AlertState.RESOLVED, closed_because=because)


NAN = an_alert("nan", Severity.CRITICAL, detector="nonfinite", series="train/loss", value=math.nan)
SPIKE = an_alert("spike")
GOLDEN = [
    (NAN, SPIKE, True),
    (NAN, an_alert("ramp", detector="ramp"), True),
    (NAN, an_alert("div", detector="divergence"), True),
    (NAN, an_alert("flat", detector="plateau"), True),
    (NAN, an_alert("over", detector="threshold"), False),
    (NAN, an_alert("skips", detector="skip_streak"), False),
    (NAN, an_alert("other", detector="nonfinite", series="train/grad_norm"), False),
    (replace(NAN, state=AlertState.RECOVERING), SPIKE, True),
    (closed(NAN), SPIKE, False),  # the inhibitor is over first: what still fires is news
    (replace(NAN, series="train/grad_norm"), SPIKE, False),
    (replace(NAN, series="amp/loss_scale"), SPIKE, False),
    (replace(NAN, series="eval/loss"), SPIKE, True),
    (SPIKE, NAN, False),
    (an_alert("lost", detector="lost"), an_alert("stalled", detector="stalled"), True),
    (an_alert("ended", detector="ended"), an_alert("stalled", detector="stalled"), True),
    (an_alert("lost", detector="lost"), SPIKE, False),
    (an_alert("stalled", detector="stalled"), an_alert("lost", detector="lost"), False),
    (replace(NAN, rule_id="same"), replace(SPIKE, rule_id="same"), False),  # no rule inhibits itself
    (an_alert("new", detector="made_up"), an_alert("newer", detector="made_up"), False),
]


@pytest.mark.parametrize(("other", "alert", "is_inhibited"), GOLDEN)
def test_what_only_follows_from_another_alert_is_not_told(other, alert, is_inhibited):
    assert inhibited(alert, [alert, other]) is is_inhibited


def test_no_detector_inhibits_itself_and_there_is_no_cycle():
    quiet = set().union(*INHIBITS.values())
    assert not quiet & set(INHIBITS)


@pytest.mark.parametrize(("series", "loss"), [("train/loss", True), ("eval/books/loss", True), ("train/lm_loss", True),
                                              ("amp/loss_scale", False), ("train/grad_norm", False)])  # fmt: skip
def test_a_loss_is_known_by_its_name(series, loss):
    assert is_loss(series) is loss


def incident(**change):
    base = Incident("run", "i_1", 1, TRIGGERED, Severity.WARNING, "t", 7, 1, NOW, talk=Talk(since=NOW))
    return replace(base, **change)


def seconds(plan):
    return None if plan.at is None else (plan.at - NOW).total_seconds()


WARNING, CRITICAL = Member(an_alert("w")), Member(an_alert("c", Severity.CRITICAL))
NAMED = Member(an_alert("n", told=Told.NAMED))
REPEATING = incident(talk=Talk(messages=1, repeat_from=NOW))
OVER_TOLD = incident(state=RESOLVED, closed_because=CloseReason.RECOVERED, talk=Talk(messages=1, since=NOW))
SOON = timedelta(seconds=2)
REWOUND = Member(closed(NAMED.alert, CloseReason.REWOUND))


@pytest.mark.parametrize(
    ("what", "members", "pace", "saying", "after"),
    [
        (incident(), [WARNING], Pace(), Saying.FIRING, 5),
        (incident(), [CRITICAL], Pace(), Saying.FIRING, 0),
        (incident(), [WARNING, CRITICAL], Pace(NOW, None), Saying.FIRING, 0),
        (incident(), [WARNING], Pace(NOW - SOON, None), Saying.FIRING, 58),
        (incident(), [CRITICAL], Pace(None, NOW - SOON), Saying.FIRING, 3),
        (incident(), [WARNING], Pace(None, NOW - SOON), Saying.FIRING, 5),
        (incident(talk=Talk(since=NOW, not_before=NOW + SOON)), [CRITICAL], Pace(), Saying.FIRING, 2),
        (incident(), [replace(WARNING, is_silenced=True)], Pace(), None, None),
        (incident(), [replace(CRITICAL, is_inhibited=True)], Pace(), None, None),
        (incident(), [Member(closed(an_alert(), CloseReason.REWOUND))], Pace(), None, None),
        (incident(state=ACKNOWLEDGED), [WARNING], Pace(), Saying.FIRING, 5),
        (REPEATING, [NAMED], Pace(), Saying.REPEAT, 4 * 3600),
        (replace(REPEATING, state=ACKNOWLEDGED), [NAMED], Pace(), None, None),
        (replace(REPEATING, talk=Talk(messages=1, repeat_from=NOW, in_flight=True)), [NAMED], Pace(), None, None),
        (REPEATING, [replace(NAMED, is_silenced=True)], Pace(), None, None),
        (REPEATING, [Member(closed(NAMED.alert))], Pace(), None, None),
        (OVER_TOLD, [Member(closed(NAMED.alert))], Pace(), Saying.RESOLVED, 5),
        (OVER_TOLD, [Member(closed(NAMED.alert))], Pace(NOW, None), Saying.RESOLVED, 60),
        (OVER_TOLD, [Member(closed(NAMED.alert), is_silenced=True)], Pace(), None, None),
        (replace(OVER_TOLD, closed_because=CloseReason.REWOUND), [REWOUND], Pace(), None, None),
        (replace(OVER_TOLD, closed_because=CloseReason.RUN_ENDED), [NAMED], Pace(), None, None),
        (replace(OVER_TOLD, talk=Talk(since=NOW)), [Member(closed(an_alert()))], Pace(), Saying.RESOLVED, 5),
        (
            replace(OVER_TOLD, closed_because=CloseReason.RUN_ENDED, talk=Talk(since=NOW)),
            [Member(closed(an_alert("c", Severity.CRITICAL), CloseReason.RUN_ENDED))],
            Pace(),
            Saying.FIRING,
            0,
        ),
        (replace(OVER_TOLD, talk=Talk(messages=1, since=NOW, is_done=True)), [Member(closed(NAMED.alert))], Pace(), None, None),
    ],
)  # fmt: skip
def test_what_is_said_next_and_when(what, members, pace, saying, after):
    found = grouping.plan(what, members, pace, is_alive=True)
    assert (found.saying, seconds(found)) == (saying, after)


def test_nothing_is_repeated_of_a_run_that_is_not_alive():
    assert grouping.plan(REPEATING, [NAMED], Pace(), is_alive=False).saying is None


@pytest.mark.parametrize(
    ("what", "field"),
    [
        ({"run_id": None}, "run_id"),
        ({"hours": 0.0}, "hours"),
        ({"hours": 720.1}, "hours"),
        ({"hours": math.nan}, "hours"),
        ({"hours": math.inf}, "hours"),
        ({"reason": "  "}, "reason"),
        ({"reason": "x" * 2001}, "reason"),
    ],
)
def test_a_silence_needs_something_to_be_silent_about_an_end_and_a_reason(what, field):
    good = {"run_id": "run", "project": None, "rule_id": None, "hours": 720.0, "reason": "maintenance"}
    assert silences.problems(**good) == {}
    assert list(silences.problems(**good | what)) == [field]


@pytest.mark.parametrize(
    ("run_id", "project", "rule_id", "covers"),
    [
        ("run", None, None, True),
        (None, "p", None, True),
        (None, None, "rule-a", True),
        ("run", "p", "rule-a", True),
        ("other", None, None, False),
        ("run", "q", None, False),
        ("run", None, "rule-b", False),
    ],
)
def test_a_silence_covers_the_alerts_for_which_all_that_it_names_holds(run_id, project, rule_id, covers):
    silence = silences.Silence("s", run_id, project, rule_id, "r", "a", NOW, NOW + timedelta(hours=1))
    assert silence.covers(an_alert("a"), "p") is covers
    ends = silences.silenced_until([silence], an_alert("a"), "p", NOW)
    assert ends == (silence.ends_at if covers else None)
    assert silences.silenced_until([silence], an_alert("a"), "p", silence.ends_at) is None

"""Whatever fires, ends, is taken on or silenced, and however time goes: no message too many, none missing."""

import itertools
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from incidents_kit import Scene, an_alert
from judging_kit import use_rules

from server.domain.alerts import CloseReason
from server.domain.grouping import GROUP_WAIT, REPEAT_AFTER, SPACING, URGENT_SPACING
from server.domain.incidents import IncidentState
from server.domain.rules import AlertRule, DetectorKind
from server.store import alerts as alerts_store
from trainer_agent.wire.vocabulary import Severity

MINUTE = timedelta(minutes=1)
ACTS = st.one_of(
    st.tuples(st.just("fire"), st.sampled_from(["warning", "critical"]), st.integers(0, 3)),
    st.tuples(st.just("end"), st.sampled_from(list(CloseReason)), st.integers(0, 5)),
    st.tuples(st.just("ack"), st.none(), st.none()),
    st.tuples(st.just("silence"), st.integers(0, 3), st.integers(1, 40)),
    st.tuples(st.just("wait"), st.sampled_from([1, 4, 6, 20, 61, 600, 14_400]), st.none()),
)


class Story:
    """Plays acts and keeps, beside the server, what must be told of each alert."""

    def __init__(self, scene):
        self.scene, self.count = scene, 0
        self.open, self.fired_at, self.ended = {}, {}, {}
        self.silences = []

    def play(self, act, first, second):
        getattr(self, act)(first, second)

    def fire(self, severity, rule):
        self.count += 1
        alert = an_alert(f"{self.count:03}", Severity(severity), rule_id=f"rule-{rule}", onset_step=self.count)
        self.scene.fire(alert)
        self.open[alert.alert_id] = alert
        self.fired_at[alert.alert_id] = self.scene.clock()

    def end(self, because, which):
        if self.open:
            alert_id = sorted(self.open)[which % len(self.open)]
            del self.open[alert_id]
            self.scene.end(alert_id, because)
            self.ended[alert_id] = (because, self.scene.clock())

    def ack(self, _first, _second):
        incident = self.scene.incident()
        if incident is not None and incident.is_open:
            self.scene.acknowledge()

    def silence(self, rule, minutes):
        begun = self.scene.clock()
        self.scene.silence(hours=minutes / 60, rule_id=f"rule-{rule}")
        self.silences.append((f"rule-{rule}", begun, begun + minutes * MINUTE))

    def wait(self, seconds, _second):
        self.scene.later(seconds=seconds)

    def was_silenced(self, alert_id):
        """Whether a silence of its rule overlapped its life, or the time in which it was to be told."""
        rule = alerts_store.read_alert(self.scene.connection, "run", alert_id).rule_id
        begun = self.fired_at[alert_id]
        until = self.ended.get(alert_id, (None, self.scene.clock()))[1] + 5 * MINUTE
        return any(rule == of and start <= until and stop >= begun for of, start, stop in self.silences)


@pytest.fixture
def scenes(database, clock):
    """Makes a scene that is rolled back."""

    class Scenes:
        def __enter__(self):
            self.connection = database.write_engine.connect().__enter__()
            self.transaction = self.connection.begin()
            self.connection.info.clear()
            self.began = clock.now
            scene = Scene(self.connection, clock)
            for rule in range(4):
                _keep_rule(self.connection, f"rule-{rule}")
            scene.endpoint()
            return scene

        def __exit__(self, *_):
            self.transaction.rollback()
            self.connection.close()
            clock.now = self.began

    return Scenes


def _keep_rule(connection, rule_id):
    use_rules(connection, AlertRule(rule_id, rule_id, rule_id, "train/loss", DetectorKind.NONFINITE))


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(acts=st.lists(ACTS, min_size=3, max_size=25))
def test_no_sequence_makes_a_message_too_many_or_leaves_one_out(scenes, acts):
    with scenes() as scene:
        story = Story(scene)
        for act in acts:
            story.play(*act)
        scene.later(minutes=50)
        check(scene, story)


def check(scene, story):
    events = scene.told()
    spoken = [e for e in events if not _is_urgent(e, story)]
    urgent = [e for e in events if _is_urgent(e, story)]
    assert all(b.at - a.at >= SPACING for a, b in itertools.pairwise(spoken))
    assert all(b.at - a.at >= URGENT_SPACING for a, b in itertools.pairwise(urgent))
    _each_is_told(events, story)
    _over_is_told(events, story)
    _repeats(events)
    assert len({(body["data"]["event_id"]) for _, _, body in scene.sent}) == len(scene.sent) == len(events)


def _is_urgent(event, story):
    """A message that goes out at once: it brings a critical alert that has not recovered."""
    if event.type.value != "incident.firing":
        return False
    new = [a for a in event.data["alerts"] if a["is_new"] and a["severity"] == "critical"]
    return any(a["state"] != "resolved" or story.ended[a["alert_id"]][0] is CloseReason.RUN_ENDED for a in new)


def _each_is_told(events, story):
    """As news exactly once where no silence and no quiet end was in the way, and never more often than silences explain."""
    for alert_id, fired_at in story.fired_at.items():
        times = [e.at for e in events for a in e.data["alerts"] if a["alert_id"] == alert_id and a["is_new"]]
        because, ended_at = story.ended.get(alert_id, (None, None))
        quiet = because in (CloseReason.REWOUND, CloseReason.RULE_CHANGED)
        if story.was_silenced(alert_id):
            assert len(times) <= 1 + len(story.silences)
        elif quiet:
            assert len(times) <= 1
            assert all(at <= ended_at for at in times)
        else:
            assert len(times) == 1, (alert_id, times)
            assert times[0] - fired_at <= GROUP_WAIT + 20 * SPACING


def _over_is_told(events, story):
    """At most once for an incident, after its firing or with it, and only of what has recovered."""
    over = [e for e in events if e.type.value == "incident.resolved"]
    numbers = [n for e in over for n in (e.data["incident"]["number"], *e.data["incident"]["also"])]
    assert len(numbers) == len(set(numbers))
    for event in over:
        assert all(a["state"] == "resolved" for a in event.data["alerts"])
        assert not any(
            a["is_new"] and story.ended[a["alert_id"]][0] in (CloseReason.REWOUND, CloseReason.RULE_CHANGED)
            for a in event.data["alerts"]
        )


def _repeats(events):
    for event in events:
        if event.data["repeat"]:
            before = [e for e in events if e.at < event.at and e.data["incident"]["id"] == event.data["incident"]["id"]]
            assert event.at - before[-1].at >= REPEAT_AFTER
            assert event.data["incident"]["state"] == IncidentState.TRIGGERED

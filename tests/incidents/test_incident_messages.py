import itertools
from dataclasses import replace
from datetime import timedelta

import pytest
from incidents_kit import Scene, an_alert
from judging_kit import OWNER, Trainer, alerts_of, data_of, told, use_default_rules, use_rules

from server.domain.alerts import CloseReason
from server.domain.incidents import IncidentState
from server.domain.rules import Action, ActionKind, AlertRule, DetectorKind
from server.services import incidents, ingest, silences
from server.services.errors import Conflict, Invalid, NotFound
from server.store import alerts as alerts_store
from server.store import incidents as incident_store
from trainer_agent.wire.vocabulary import AlertState, EndReason, Severity

FIRING, OVER = "incident.firing", "incident.resolved"
NAN = float("nan")


@pytest.fixture
def scene(connection, clock):
    return Scene(connection, clock)


def test_forty_rules_on_one_step_are_at_most_two_messages_that_name_or_count_all(connection, clock, figure):
    rules = [
        AlertRule(f"r{n:02}", f"Rule {n}", f"Title {n}", "train/grad_norm", DetectorKind.THRESHOLD, {"above": 10.0 - n / 100},
                  severity=Severity.CRITICAL if n == 3 else Severity.WARNING)
        for n in range(40)
    ]  # fmt: skip
    use_rules(connection, *rules)
    scene = Scene(connection, clock)
    scene.endpoint()
    scene.trainer.log(1, grad_norm=1.0).log(2, grad_norm=50.0).send()
    scene.later(minutes=10)
    events = scene.told()
    figure("F33", "messages of 40 rules on one step", len(events), at_most=2)
    figure("F33", "of them named or counted", sum(e.data["alert_count"] for e in events), at_least=40)
    assert len({a["alert_id"] for e in events for a in e.data["alerts"]}) == 40
    (_, _, body) = scene.sent[0]
    assert (body["data"]["alert_count"], body["data"]["severity"]) == (40, "critical")
    assert 0 < len(body["data"]["alerts"]) <= 40
    assert body["data"]["title"] == body["data"]["alerts"][0]["title"] == "Title 3"


def test_forty_warnings_wait_for_each_other(connection, clock):
    use_rules(connection, *[
        AlertRule(f"r{n}", f"R {n}", f"T {n}", "train/grad_norm", DetectorKind.THRESHOLD, {"above": 10.0}) for n in range(40)
    ])  # fmt: skip
    scene = Scene(connection, clock)
    scene.trainer.log(1, grad_norm=50.0).send()
    assert scene.told() == []
    scene.later(seconds=4.9)
    assert scene.told() == []
    scene.later(seconds=0.1)
    (event,) = scene.told()
    assert event.data["alert_count"] == 40


def test_the_critical_one_is_told_in_the_batch_that_brings_it_with_the_countdown_that_began(connection, clock):
    use_rules(connection, AlertRule("nan", "Loss is not finite", "Loss is NaN", "train/loss", DetectorKind.NONFINITE,
                                    severity=Severity.CRITICAL, action=Action(ActionKind.STOP, 30.0)))  # fmt: skip
    scene = Scene(connection, clock)
    scene.trainer.log(1, loss=1.0).log(2, loss=NAN).send()
    (event,) = scene.told()
    assert (event.type.value, event.step, event.data["value"]) == (FIRING, 2, "NaN")
    assert event.data["done"] == "Stop in 30 s, unless somebody cancels it."
    assert event.data["zh"]["done"] == "30 秒后停止，除非有人取消。"
    assert [kind for kind, _ in told(connection) if "alert" in kind or "incident" in kind] == ["alert.firing", FIRING]


def test_other_messages_of_a_run_keep_a_minute_between_them_and_the_rest_merges(scene):
    for n in range(10):
        scene.fire(an_alert(f"{n}"))
        scene.later(seconds=10)
    scene.later(minutes=5)
    times = [e.at for e in scene.told()]
    assert all(b - a >= timedelta(seconds=60) for a, b in itertools.pairwise(times))
    assert sorted(a for _, new in scene.news() for a in new) == [f"a_{n}" for n in range(10)]
    assert [len(new) for _, new in scene.news()] == [1, 6, 3]


def test_an_alert_that_joins_is_told_as_news_beside_those_that_are_known(scene):
    scene.fire(an_alert("one"))
    scene.later(minutes=2)
    scene.fire(an_alert("two", Severity.CRITICAL))
    first, second = scene.told()
    assert (first.data["incident"]["number"], second.data["incident"]["number"]) == (1, 1)
    assert [(a["alert_id"], a["is_new"]) for a in second.data["alerts"]] == [("a_two", True), ("a_one", False)]
    assert second.data["text"].startswith("More alerts: text of two")
    assert (scene.incident().severity, scene.incident().title) == (Severity.CRITICAL, "Title two")


def test_over_is_told_once_when_the_last_has_recovered_and_the_next_alert_opens_another_incident(scene):
    scene.fire(an_alert("one"))
    scene.fire(an_alert("two"))
    scene.later(minutes=2)
    scene.end("a_one")
    scene.later(minutes=2)
    assert scene.incident().state is IncidentState.TRIGGERED
    scene.end("a_two")
    scene.later(minutes=2)
    assert [kind for kind, _ in scene.news()] == [FIRING, OVER]
    assert scene.told()[1].data["alert_count"] == 2
    assert scene.told()[1].data["text"].startswith("Over: text of")
    scene.fire(an_alert("three"))
    assert (scene.incident().number, scene.incident().state) == (2, IncidentState.TRIGGERED)


def test_what_fires_and_is_over_before_it_is_told_is_one_message_that_tells_both(scene):
    scene.fire(an_alert("short"))
    scene.end("a_short")
    scene.later(minutes=10)
    (event,) = scene.told()
    assert (event.type.value, event.data["alert_count"]) == (OVER, 1)
    assert event.data["text"].startswith("Fired and over again: text of short")


@pytest.mark.parametrize("because", [CloseReason.REWOUND, CloseReason.RULE_CHANGED, CloseReason.RUN_ENDED])
def test_what_is_cut_off_is_not_told_as_over(scene, because, figure):
    scene.fire(an_alert("told"))
    scene.later(minutes=2)
    scene.end("a_told", because)
    scene.later(days=1)
    over = [kind for kind, _ in scene.news() if kind == OVER]
    if because is CloseReason.REWOUND:
        figure("F35", "'resolved' messages of rewound alerts", len(over), at_most=0)
    assert over == []
    assert (scene.incident().state, scene.incident().closed_because) == (IncidentState.RESOLVED, because)


@pytest.mark.parametrize(
    ("because", "kinds"), [(CloseReason.REWOUND, []), (CloseReason.RULE_CHANGED, []), (CloseReason.RUN_ENDED, [FIRING])]
)
def test_what_is_cut_off_untold_is_told_only_where_the_end_of_the_run_did_it(scene, because, kinds):
    scene.fire(an_alert("untold"))
    scene.end("a_untold", because)
    scene.later(days=1)
    assert [kind for kind, _ in scene.news()] == kinds


@pytest.mark.parametrize("change", [{"severity": Severity.INFO}, {"trial": True}])
def test_information_and_trials_open_no_incident_and_go_out_to_nobody(scene, change):
    scene.endpoint(severity=Severity.INFO)
    scene.fire(replace(an_alert("quiet"), **change))
    scene.end("a_quiet")
    scene.later(days=1)
    assert (scene.incident(), scene.told(), scene.sent) == (None, [], [])
    assert [kind for kind, _ in told(scene.connection, prefix="alert")] == ["alert.firing", "alert.resolved"]


def test_what_follows_from_a_nan_loss_is_told_only_if_it_outlives_it(scene):
    nan = an_alert("nan", Severity.CRITICAL, detector="nonfinite", series="train/loss", value=NAN)
    scene.fire(nan)
    scene.fire(an_alert("spike"))
    scene.fire(an_alert("ramp", detector="ramp"))
    scene.later(minutes=5)
    assert scene.news() == [(FIRING, ["a_nan"])]
    scene.end("a_ramp")
    scene.end("a_nan")
    scene.later(minutes=5)
    assert scene.news() == [(FIRING, ["a_nan"]), (FIRING, ["a_spike"])]


def test_acknowledging_stops_repeats_and_is_told(scene):
    scene.endpoint()
    scene.fire(an_alert("one"))
    scene.later(hours=5)
    assert len(scene.told()) == 2
    assert scene.told()[1].data["repeat"] is True
    taken = scene.acknowledge("looking")
    assert (taken.state, taken.acknowledged_by, taken.note) == (IncidentState.ACKNOWLEDGED, "mlops", "looking")
    (said,) = data_of(scene.connection, "incident.acknowledged")
    assert (said["by"], said["note"], said["number"]) == ("mlops", "looking", 1)
    assert scene.acknowledge("looking") == incident_store.read_incident(scene.connection, "run", taken.incident_id)
    scene.later(days=1)
    assert len(scene.told()) == 2
    scene.fire(an_alert("two"))
    scene.later(minutes=5)
    assert scene.news()[-1] == (FIRING, ["a_two"])


def test_what_is_resolved_or_unknown_cannot_be_acknowledged(scene):
    with pytest.raises(NotFound):
        incidents.acknowledge(scene.connection, "run", "i_none", scene.clock(), by="me", note="")
    scene.fire(an_alert("one"))
    found = scene.incident()
    with pytest.raises(Invalid, match="longer"):
        incidents.acknowledge(scene.connection, "run", found.incident_id, scene.clock(), by="me", note="x" * 2001)
    scene.end("a_one")
    with pytest.raises(Conflict, match="resolved"):
        incidents.acknowledge(scene.connection, "run", found.incident_id, scene.clock(), by="me", note="")


def test_repeats_count_from_the_last_send_that_got_through_and_end_with_the_run(scene, figure):
    scene.endpoint()
    start = scene.clock()
    scene.fire(an_alert("one", Severity.CRITICAL))
    scene.until(start + timedelta(hours=9))
    hours = [(at - start).total_seconds() / 3600 for at, _, _ in scene.sent]
    assert hours == [0, 4, 8]
    scene.answers = False
    scene.until(start + timedelta(hours=13))  # the repeat of 12 h is tried at 12:00, :05 s, :35 s, 2, 12, 42 minutes later ...
    scene.answers = True
    scene.until(start + timedelta(hours=47))
    times = [at for at, _, _ in scene.sent[3:]]
    outage_over = times[0]
    assert outage_over - start == timedelta(hours=12, seconds=5 + 30, minutes=2 + 10 + 30) + timedelta(hours=2)
    assert len({body["data"]["event_id"] for _, _, body in scene.sent}) == len(scene.sent)
    off = [abs((b - a).total_seconds() - 4 * 3600) for a, b in itertools.pairwise(times)]
    figure("R21", "repeats after the outage, seconds off", max(off), at_most=1, unit="s")
    before = len(scene.sent)
    scene.end("a_one", CloseReason.RUN_ENDED)
    scene.until(start + timedelta(hours=72))
    figure("R21", "repeats after the end of the run", len(scene.sent) - before, at_most=0)


def test_nothing_is_repeated_while_the_run_is_lost_and_it_goes_on_when_it_is_heard(scene):
    scene.endpoint()
    scene.trainer.end(EndReason.FAILED)
    scene.fire(an_alert("one"))
    scene.later(minutes=1)
    assert len(scene.sent) == 1
    scene.trainer.send()
    scene.later(days=2)
    assert [body["type"] for _, _, body in scene.sent if "incident" in body["type"]] == [FIRING]


def test_a_silence_stops_messages_and_nothing_else_and_what_still_fires_at_its_end_is_told_once(scene):
    scene.endpoint()
    rule = AlertRule("nan", "Loss is not finite", "Loss is NaN", "train/loss", DetectorKind.NONFINITE,
                     severity=Severity.CRITICAL, action=Action(ActionKind.STOP, 0.0), keep_firing_for_points=1000)  # fmt: skip
    use_rules(scene.connection, rule)
    scene.silence(hours=2.0, rule_id="nan")
    scene.trainer.log(1, loss=1.0).log(2, loss=NAN).send()
    scene.later(minutes=5)
    assert (scene.sent, scene.told()) == ([], [])
    assert alerts_of(scene.connection)["nan"].state is AlertState.FIRING
    assert data_of(scene.connection, "countdown.started")
    scene.later(hours=3)
    assert [(kind, len(new)) for kind, new in scene.news()] == [(FIRING, 1)]
    assert len([1 for _, _, body in scene.sent if body["type"] == FIRING]) == 1
    (ended,) = silences.store.read_silences(scene.connection)
    assert (ended.ended_at, ended.ended_by) == (ended.ends_at, "")


def test_what_was_told_before_a_silence_is_told_once_at_its_end_and_not_if_it_is_over_by_then(scene):
    scene.fire(an_alert("stays"))
    scene.fire(an_alert("goes"))
    scene.later(minutes=2)
    scene.silence(hours=1.0, run_id="run")
    scene.later(minutes=2)
    scene.end("a_goes")
    scene.fire(an_alert("short"))
    scene.later(minutes=2)
    scene.end("a_short")
    scene.later(hours=2)
    assert scene.news() == [(FIRING, ["a_goes", "a_stays"]), (FIRING, ["a_stays"])]
    scene.later(days=1)
    assert len(scene.news()) == 2


def test_over_is_not_told_during_a_silence_nor_after_it(scene):
    scene.fire(an_alert("one"))
    scene.later(minutes=2)
    scene.silence(hours=1.0, project="project")
    scene.end("a_one")
    scene.later(days=1)
    assert [kind for kind, _ in scene.news()] == [FIRING]


def test_a_silence_ended_by_hand_is_over_at_once(scene):
    silence = scene.silence(hours=24.0, run_id="run")
    scene.fire(an_alert("one", Severity.CRITICAL))
    scene.later(minutes=1)
    assert scene.told() == []
    ended = silences.end(scene.connection, silence.silence_id, "me", scene.clock())
    assert (ended.ended_by, ended.ended_at) == ("me", scene.clock())
    scene.work()
    assert scene.news() == [(FIRING, ["a_one"])]
    with pytest.raises(Conflict):
        silences.end(scene.connection, silence.silence_id, "me", scene.clock())
    with pytest.raises(NotFound):
        silences.end(scene.connection, "s_none", "me", scene.clock())


def test_where_two_silences_cover_an_alert_the_last_end_counts(scene):
    scene.silence(hours=1.0, run_id="run")
    scene.silence(hours=2.0, rule_id=None, project="project")
    scene.fire(an_alert("one"))
    scene.later(hours=1.5)
    assert scene.told() == []
    scene.later(hours=1)
    assert scene.news() == [(FIRING, ["a_one"])]


def test_each_endpoint_is_told_in_its_language_and_from_its_severity_on(scene):
    scene.endpoint("en")
    scene.endpoint("zh", language="zh")
    scene.endpoint("loud", severity=Severity.CRITICAL)
    scene.fire(an_alert("one"))
    scene.later(minutes=2)
    by_name = {name: body["data"] for _, name, body in scene.sent}
    assert set(by_name) == {"en", "zh"}
    assert by_name["en"]["text"] == "text of one"
    assert by_name["zh"]["text"] == "train/grad_norm 为 12.5，是最近 128 个点中位数的 5.4 倍，上限 3 倍，自第 7 步起"
    assert by_name["zh"]["alerts"][0]["text"] == by_name["zh"]["text"]
    assert by_name["zh"]["done"] == "没有自动采取任何操作。"
    assert not any("zh" in each for each in (*by_name.values(), *by_name["zh"]["alerts"]))
    old_keys = {"title", "text", "step", "series", "value", "limit", "rule", "severity"}
    new_keys = {"incident", "alerts", "alert_count", "done", "next", "repeat"}
    assert old_keys | new_keys <= set(by_name["en"])
    assert by_name["en"]["incident"] == {"id": scene.incident().incident_id, "number": 1, "state": "triggered", "also": []}


def test_incidents_of_the_same_alerts_have_the_same_ids_wherever_they_are_made(connection, clock):
    ids = []
    for _ in range(2):
        with connection.begin_nested() as again:
            scene = Scene(connection, clock)
            scene.endpoint()
            use_default_rules(connection)
            scene.trainer.log(1, loss=1.0).log(2, loss=NAN).send()
            ids.append(scene.incident().incident_id)
            again.rollback()
    assert ids[0] == ids[1]


def test_what_opened_and_closed_while_the_trainer_was_cut_off_is_one_summary(connection, clock, figure):
    """A thousand steps that were spooled: five episodes that are over, one that is not."""
    norm = AlertRule("high", "Norm", "Norm is high", "train/grad_norm", DetectorKind.THRESHOLD, {"above": 10.0},
                     keep_firing_for_points=2)  # fmt: skip
    nan = AlertRule("nan", "Loss is not finite", "Loss is NaN", "train/loss", DetectorKind.NONFINITE, severity=Severity.CRITICAL,
                    action=Action(ActionKind.STOP, 0.0))  # fmt: skip
    use_rules(connection, norm, nan)
    scene = Scene(connection, clock)
    scene.endpoint()
    trainer = scene.trainer
    for step in range(1, 1001):
        trainer.log(step, loss=NAN if step > 990 else 1.0, grad_norm=50.0 if step % 200 == 100 else 1.0)
    last = len(trainer.records)
    for first in range(trainer.sent + 1, last + 1, 100):  # drained batch by batch, each sent 30 s of virtual time later
        batch = trainer.batch(first, min(first + 99, last))
        sent_at = 1.7e9 + last
        incidents_before = len(scene.told())
        scene_take(scene, replace(batch, sent_at=sent_at + 1))
        if first + 99 < last:
            assert len(scene.told()) == incidents_before, "told before the backlog was in"
            clock.advance(3)
            scene.work()
    scene.later(hours=1)
    kinds = [kind for kind, _ in scene.news()]
    closed = [a for a in alerts_store.read_alerts(connection, "run") if a.rule_id == "high"]
    assert [a.closed_because for a in closed] == [CloseReason.RECOVERED] * 5
    figure("F27", "messages of 5 closed episodes and 1 open, after a cut-off", len(kinds), at_most=2)
    assert sorted(kinds) == [FIRING, OVER]
    summary = next(e for e in scene.told() if e.type.value == OVER)
    assert summary.data["alert_count"] == 5
    assert "while the trainer was cut off" in summary.data["text"]


def scene_take(scene, batch):
    return ingest.take_batch(scene.connection, batch, OWNER, scene.clock())


def test_a_second_trainer_is_a_run_of_its_own(scene):
    Trainer(scene.connection, scene.clock, run_id="other").start().send()
    scene.fire(an_alert("one"))
    scene.fire(an_alert("two", run_id="other"))
    assert incident_store.open_incident(scene.connection, "other").number == 1

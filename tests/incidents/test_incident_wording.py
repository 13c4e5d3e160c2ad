import json
import math
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from incidents_kit import NOW, an_alert

from server.domain.alerts import CloseReason
from server.domain.countdowns import Countdown, CountdownState
from server.domain.default_rules import DEFAULT_RULES
from server.domain.detectors.base import DetectorKind, Verdict
from server.domain.events import Event, EventType
from server.domain.grouping import Saying
from server.domain.incidents import Incident, IncidentState
from server.domain.rules import Action, ActionKind
from server.domain.webhooks import body
from server.domain.wording import LANGUAGES, Facts, called, deeds, describe, numbers, sentence, texts
from server.domain.wording.advice import Situation, advice
from server.domain.wording.deeds import Deed, DeedKind, Done, deed_of
from server.domain.wording.facts import facts_of
from server.domain.wording.messages import Said, data_of
from server.domain.wording.words import duration
from trainer_agent.wire.vocabulary import AlertState, RunState, Severity

FINITE = st.floats(allow_nan=True, allow_infinity=True)
FIGURES = [
    "above", "below", "rises", "start", "median", "points", "times", "level", "best", "first", "lowest", "found", "of", "zeros",
    "maximum", "streak", "skips", "window", "share", "expected", "usual", "left", "others", "rank", "failed", "evaluating",
]  # fmt: skip


def test_every_deed_has_a_sentence_in_both_languages():
    for kind in DeedKind:
        for deed in (
            Deed(kind),
            Deed(kind, is_rollback=True, step=4750, seconds=30.0, by="mlops"),
            Deed(kind, is_rollback=True),
            Deed(kind, dry_run=True),
        ):
            for said in deeds.in_words(deed):
                assert said.endswith((".", "。"))
                assert "None" not in said


@given(
    st.sampled_from([kind.value for kind in DetectorKind] + ["gone"]),
    FINITE,
    st.none() | FINITE,
    st.dictionaries(st.sampled_from(FIGURES), FINITE),
    st.sampled_from([-1, 0, 3]),
)
def test_no_figure_breaks_a_sentence(detector, value, limit, evidence, rank):
    facts = Facts("train/loss", value, limit, evidence, 7, rank)
    en, zh = sentence(detector, facts), sentence(detector, facts, "zh")
    assert en.endswith("since step 7")
    assert zh.endswith("自第 7 步起")
    assert "nan" not in en + zh
    assert ("rank 3" in en or detector == "straggler") == (rank == 3 or detector == "straggler")


def of(detector, value, limit=None, series="train/loss", **evidence):
    return Facts(series, value, limit, evidence, 7)


@pytest.mark.parametrize(
    ("detector", "facts", "en", "zh"),
    [
        ("nonfinite", of("", math.nan), "train/loss is NaN", "train/loss 为 NaN"),
        ("nonfinite", of("", -math.inf), "train/loss is -Inf", "train/loss 为 -Inf"),
        (
            "threshold",
            of("", 12.5, 10.0, "train/grad_norm", above=10.0),
            "train/grad_norm is 12.5, above the limit of 10",
            "train/grad_norm 为 12.5，高于上限 10",
        ),
        (
            "threshold",
            of("", 3 * 1024**3, 2 * 1024**3, "system/gpu_memory_bytes", above=1.0),
            "system/gpu_memory_bytes is 3 GiB, above the limit of 2 GiB",
            "system/gpu_memory_bytes 为 3 GiB，高于上限 2 GiB",
        ),
        (
            "spike",
            of("", 12.5, 6.9, "train/grad_norm", median=2.3, points=128.0, times=3.0),
            "train/grad_norm is 12.5 = 5.4x the median of the last 128 points, limit 3x",
            "train/grad_norm 为 12.5，是最近 128 个点中位数的 5.4 倍，上限 3 倍",
        ),
        (
            "ramp",
            of("", 5.4, 4.0, rises=8.0, start=2.1, level=5.2),
            "train/loss is 5.4; its short median rose 8 times in a row, from 2.1 to 5.2, limit 4",
            "train/loss 为 5.4；其短期中位数连续上升 8 次，从 2.1 到 5.2，上限 4",
        ),
        (
            "divergence",
            of("", 7.0, 3.5, level=6.8, best=2.1, points=10.0),
            "train/loss is 7; the median of the last 10 points is 6.8, against 2.1 at its best, limit 3.5",
            "train/loss 为 7；最近 10 个点的中位数为 6.8，最好时为 2.1，上限 3.5",
        ),
        (
            "lost",
            of("", 72.0, 60.0, "run/heartbeat"),
            "no word from the trainer for 1 min 12 s, limit 1 min",
            "已有 1 分 12 秒没有训练进程的消息，上限 1 分钟",
        ),
    ],
)
def test_a_sentence_says_series_value_limit_and_since_when(detector, facts, en, zh):
    assert sentence(detector, facts) == f"{en}, since step 7"
    assert sentence(detector, facts, "zh") == f"{zh}，自第 7 步起"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (math.nan, "NaN"),
        (math.inf, "Inf"),
        (1e-24, "1e-24"),
        (2.45e-5, "2.45e-5"),
        (65536.0, "65536"),
        (123456.7, "123457"),
        (1.5e300, "1.5e300"),
        (0.1 + 0.2, "0.3"),
        (12.0, "12"),
    ],
)
def test_numbers_are_written_for_people(value, text):
    assert numbers.number(value) == text


@pytest.mark.parametrize(
    ("times", "text"),
    [(1.449, "1.4"), (99.6, "100"), (253.4, "250"), (12345.0, "12000"), (949_000.0, "950000"), (2e6, "2e6"), (math.inf, "Inf")],
)
def test_how_many_times_the_median_is_written_without_an_exponent(times, text):
    facts = Facts("train/grad_norm", times, 3.0, {"median": 1.0, "points": 8.0}, 7)
    assert f" = {text}x the median of the last 8 points, limit 3x" in sentence("spike", facts)
    assert f"，是最近 8 个点中位数的 {text} 倍，上限 3 倍" in sentence("spike", facts, "zh")


def test_no_number_below_a_million_has_an_exponent_however_few_its_digits():
    assert (numbers.number(9999.9), numbers.number(999.9, 2), numbers.number(-250.0, 2)) == ("10000", "1000", "-250")
    assert numbers.size(1023.0) == "1020 B"
    slow = Facts("run/step", 3600.0, 1500.0, {"median": 150.0}, 7)
    assert "(a step comes every 150 s)" in sentence("stalled", slow)


@pytest.mark.parametrize(
    ("seconds", "en", "zh"),
    [(0, "0 s", "0 秒"), (40, "40 s", "40 秒"), (120, "2 min", "2 分钟"), (125, "2 min 5 s", "2 分 5 秒"),
     (18720, "5 h 12 min", "5 小时 12 分"), (7200, "2 h", "2 小时"), (math.nan, "0 s", "0 秒"), (-3, "0 s", "0 秒")],
)  # fmt: skip
def test_durations_are_written_for_people(seconds, en, zh):
    assert (duration(seconds), duration(seconds, "zh")) == (en, zh)


def test_the_stored_text_is_of_the_series_that_was_judged_not_of_the_pattern():
    rule = replace(DEFAULT_RULES[0], series="train/*")
    verdict = Verdict(holds=True, value=math.nan)
    assert describe(rule, verdict, 7, series="train/lm_loss").startswith("train/lm_loss is NaN")
    assert LANGUAGES == ("en", "zh")


def test_the_call_for_a_person_says_so_in_chinese_too():
    halted = an_alert("b", rule_id="automatic-actions", detector="", text="No automatic rollback: ...")
    assert texts(halted)["zh"].startswith("自动处置已停止，需要人来处理。train/grad_norm 为 12.5")
    broken = "3 automatic rollbacks have not cured this run, and no more than 3 are made"
    text = f"{called('rollback', broken, 30.0)} text of b"
    assert text == f"No automatic rollback: {broken}. The run is stopped in 30 s unless somebody says no. text of b"
    why = "3 次自动回滚没有解决问题，最多 3 次。30 秒后停止训练，除非有人取消。"
    assert texts(replace(halted, text=text))["zh"].startswith(f"自动处置已停止，需要人来处理。{why}train/grad_norm 为 12.5")


@pytest.mark.parametrize("seconds", [None, 30.0])
def test_a_call_for_a_person_is_said_whole_whatever_full_stops_its_reason_has(seconds):
    alert = an_alert("b", rule_id="automatic-actions", detector="nonfinite", series="train/loss")
    why = "the run cannot roll back (this rank did not meet the others: Timeout. Peer closed.), so it is stopped"
    stored = f"{called('rollback', why, seconds)} {sentence('nonfinite', facts_of(alert))}"
    stops = "" if seconds is None else "30 秒后停止训练，除非有人取消。"
    because = "该训练不能回滚（this rank did not meet the others: Timeout. Peer closed.），因此停止"
    said = sentence("nonfinite", facts_of(alert), "zh")
    assert texts(replace(alert, text=stored))["zh"] == f"自动处置已停止，需要人来处理。{because}。{stops}{said}"


ALERT = an_alert("a", Severity.CRITICAL, detector="nonfinite", series="train/loss", onset_step=4977)
LIVE = Situation(RunState.RUNNING, target_step=4750, can_roll_back=True, has_samples=True)
LOOK = "Look at the samples of steps 4952-4977; "
READ = "Look at what was read in steps 4952-4977; "
NO_WAY = "there is no sound checkpoint older than the first sign: stop the run."
HEALS = "Look at the samples of steps 1-3; if it does not come down by itself, roll back to the sound checkpoint 4750."
NO_START = "Find the cause before you start again: there is no sound checkpoint to go on from."
RECOVERED = replace(ALERT, state=AlertState.RESOLVED, closed_because=CloseReason.RECOVERED)
REWOUND = replace(ALERT, state=AlertState.RESOLVED, closed_because=CloseReason.REWOUND)
LOST = an_alert("a", detector="lost")


@pytest.mark.parametrize(
    ("alert", "situation", "en"),
    [
        (ALERT, LIVE, f"{LOOK}a sound checkpoint is 4750: roll back."),
        (ALERT, replace(LIVE, has_samples=False), f"{READ}a sound checkpoint is 4750: roll back."),
        (
            ALERT,
            replace(LIVE, can_roll_back=False),
            f"{LOOK}a sound checkpoint is 4750: stop the run and start again from it.",
        ),
        (ALERT, replace(LIVE, target_step=None), f"{LOOK}{NO_WAY}"),
        (an_alert("a", onset_step=3), LIVE, HEALS),
        (ALERT, replace(LIVE, is_counting=True), "Let it happen, or cancel it on the run's page."),
        (ALERT, replace(LIVE, is_commanded=True), "Wait for the command that is on its way."),
        (ALERT, replace(LIVE, state=RunState.FAILED), "Start again from the sound checkpoint of step 4750."),
        (ALERT, Situation(RunState.STOPPED), NO_START),
        (ALERT, replace(LIVE, state=RunState.FINISHED), "Check the result before you use it."),
        (RECOVERED, LIVE, "Nothing, as long as it stays away."),
        (REWOUND, LIVE, "Watch whether it comes back."),
        (LOST, replace(LIVE, state=RunState.LOST), "See whether the process and its machine still run."),
    ],
)
def test_what_to_do_next_names_only_what_is_there(alert, situation, en):
    said, chinese_words = advice(alert, situation)
    assert said == en
    assert chinese_words.endswith("。")
    if "4750" in en:
        assert "4750" in chinese_words


def countdown(state, **change):
    action = Action(ActionKind.STOP, 60.0)
    made = Countdown("run", "d_1", state, "rule-a", "Rule a", "a_a", 1, action, None, None, NOW, NOW + timedelta(seconds=60))
    return replace(made, **change)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (CountdownState.COUNTING, DeedKind.COUNTING),
        (CountdownState.CANCELLED, DeedKind.CANCELLED),
        (CountdownState.WITHDRAWN, DeedKind.WITHDRAWN),
        (CountdownState.OVERTAKEN, DeedKind.OVERTAKEN),
        (CountdownState.DUE, DeedKind.REFUSED),
    ],
)
def test_what_was_done_follows_from_the_countdown_of_that_alert(state, kind):
    done = Done(countdowns=(countdown(state), countdown(CountdownState.COUNTING, alert_id="a_other")))
    assert deed_of(an_alert("a"), done, NOW + timedelta(seconds=30)).kind is kind
    assert deed_of(an_alert("none"), done, NOW).kind is DeedKind.NOTHING
    dry = replace(done.countdowns[0], action=replace(done.countdowns[0].action, dry_run=True))
    if state is CountdownState.DUE:
        assert deed_of(an_alert("a"), Done(countdowns=(dry,)), NOW).kind is DeedKind.WOULD


def test_a_countdown_says_the_seconds_that_are_left():
    deed = deed_of(an_alert("a"), Done(countdowns=(countdown(CountdownState.COUNTING),)), NOW + timedelta(seconds=18))
    assert deeds.in_words(deed)[0] == "Stop in 42 s, unless somebody cancels it."


def test_a_rewound_alert_says_to_which_step_and_one_that_the_guard_ended_says_so():
    rewound = an_alert("a", state=AlertState.RESOLVED, closed_because=CloseReason.REWOUND)
    deed = deed_of(rewound, Done(from_steps={1: 0, 2: 4750, 3: 100}), NOW)
    assert deeds.in_words(deed)[0] == "The run went back to step 4750."
    ended = an_alert("a", state=AlertState.RESOLVED, closed_because=CloseReason.RUN_ENDED)
    assert deed_of(ended, Done(stopped_by_guard=True), NOW).kind is DeedKind.GUARD
    assert deed_of(ended, Done(), NOW).kind is DeedKind.NOTHING


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_message_stays_under_twenty_kilobytes_and_counts_what_it_leaves_out(language):
    long = [an_alert(f"{n}", title=f"標題{n}" * 20, text="长" * 600, value=math.nan) for n in range(50)]
    incident = Incident("run", "i_1", 1, IncidentState.TRIGGERED, Severity.WARNING, "t", 7, 1, NOW)
    said = [Said(each, (each.text, each.text), is_new=True) for each in long]
    data = data_of(incident, Saying.FIRING, said, ("d", "做"), ("n", "次"), count=90)
    told = body(1, Event(EventType.INCIDENT_FIRING, NOW, "run", 7, 1, data), "name", "project", language)
    text = json.dumps(told, allow_nan=False)
    assert len(text) < 20_000
    assert told["data"]["alert_count"] == 90
    assert 0 < len(told["data"]["alerts"]) < 50
    assert told["data"]["value"] == "NaN"
    assert told["data"]["done"] == {"en": "d", "zh": "做"}[language]


def test_nobody_is_sent_to_stop_a_run_by_a_rule_on_trial():
    alert = replace(ALERT, trial=True)
    assert advice(alert, Situation(RunState.RUNNING))[0].startswith("Nothing: the rule is on trial")
    assert advice(alert, Situation(RunState.FAILED))[0].startswith("Nothing: the rule is on trial")

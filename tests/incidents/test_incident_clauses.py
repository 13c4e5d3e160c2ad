"""Clauses that are stored in English: said in Chinese where they are known, and left as they are where not."""

import ast
import json
import re
from pathlib import Path

import pytest

from server.domain import admission, checkpoints, commands
from server.domain.checkpoints import Candidate, Judged
from server.domain.commands import CommandState
from server.domain.countdowns import Cause, PastRollback, Rails, decide
from server.domain.events import EventType
from server.domain.rules import Action, ActionKind
from server.domain.webhooks import SENT_AS
from server.domain.wording import LANGUAGES, clauses, event_words
from server.domain.wording.clauses import CLAUSES, clause, in_chinese
from server.domain.wording.words import PLACE, places
from trainer_agent.measuring.guard import GuardState, StepFacts, sick_because, step
from trainer_agent.wire.messages import CheckpointSaved
from trainer_agent.wire.vocabulary import CheckpointState, CommandKind, EndReason

ROOT = Path(__file__).parents[2]
LATIN = re.compile(r"[A-Za-z]{2,}")
NAMES = re.compile(r"UTC|torch|DeepSpeed|FSDP|\w+=True|run\.steps|guarded_train\(trainer\)|trainer\.train\(\)")
"""Of programs: they are the same in every language."""


def said_in_sources():
    """Every text that the agent or the server has in its code, each as a whole, and what stands between its places.

    Of the tables of words only `deeds` says clauses, those of dry runs; `clauses` itself proves nothing.
    """
    files = [*(ROOT / "trainer_agent").rglob("*.py"), *(ROOT / "server").rglob("*.py")]
    speaking = [file for file in files if file.parent.name != "wording" or file.name == "deeds.py"]
    nodes = [node for file in speaking for node in ast.walk(ast.parse(file.read_text()))]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    said = texts | {piece for text in texts for piece in re.split(r"[\[\]]|\{\w+\}", text)}
    return said | {text.replace("_", " ") for text in said}


def is_said(piece, said, texts=4):
    """Whether a piece of a clause is a few whole texts of the code, one after the other."""
    if not piece or piece in said:
        return True
    return texts > 1 and any(piece[:end] in said and is_said(piece[end:], said, texts - 1) for end in range(1, len(piece)))


def test_every_clause_is_still_said_by_somebody():
    said = said_in_sources()
    for english in CLAUSES:
        for piece in PLACE.split(english)[::3]:
            assert is_said(piece, said), f"nobody says {piece!r} of {english!r}"
    assert not is_said("the weights are not fine before the save at step ", said)


@pytest.mark.parametrize("english", CLAUSES)
def test_a_clause_says_in_chinese_all_that_it_says_in_english(english):
    assert places(CLAUSES[english]) == places(english)
    words = NAMES.sub("", PLACE.sub("", CLAUSES[english]))
    assert LATIN.findall(words) == []
    assert re.search(r"[\u4e00-\u9fff]", words) or english == "{because} ({why})"


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("killed", "被强制终止"),
        ("holds no model and no scaler, so a rollback would not be exact", "缺少模型和缩放器，回滚不会精确"),
        (
            "nothing was saved: the loss is not finite at step 5, and no loss scaler protects",
            "没有保存检查点：第 5 步的损失不是有限值，且没有损失缩放器保护",
        ),
        ("replaced by a set_max_grad_norm of ann", "被 ann 的“裁剪”取代"),
        (
            "dry run: it would have stopped the run, nothing was sent (the run's policy does not allow automatic rollbacks)",
            "演练：本会停止，没有发出指令（该训练的策略不允许自动回滚）",
        ),
        ("the run cannot roll back (it is a loop), so it is stopped", "该训练不能回滚（it is a loop），因此停止"),
        (
            "the run cannot roll back (killed; ignore_data_skip=True would start the epoch's data again), so it is stopped",
            "该训练不能回滚（被强制终止；ignore_data_skip=True 会从头读取本轮数据），因此停止",
        ),
        ("killed; no space left: 1 GB", "被强制终止；no space left: 1 GB"),
    ],
)
def test_a_clause_is_known_by_how_it_reads(english, chinese):
    assert clause(english) == (english, chinese)


UNKNOWN = [
    "",
    "RuntimeError",
    "one; two",
    "tea given",
    "I look (a moment)",
    "x" * 600,
    "holds no tea, so a rollback would not be exact",
]


@pytest.mark.parametrize("text", UNKNOWN)
def test_what_is_not_known_stays_as_it_is(text):
    assert in_chinese(text) == text


def facts(**change):
    known = {"parts": ("model", "optimizer", "scaler"), "nonfinite_weights": 0, "nonfinite_optimizer": 0}
    return CheckpointSaved("c", 1, 10, 0.0, CheckpointState.COMPLETE, **known | change)


def sound(step, state=CheckpointState.SOUND):
    return Candidate(f"c{step}", 1, step, Judged(state, "weights or optimizer not checked"))


def of_verdicts():
    for change in ({}, {"parts": ("model", "optimizer")}, {"parts": ()}, {"nonfinite_weights": 3}, {"nonfinite_weights": None}):
        yield checkpoints.judge(facts(**change), None, needs_scaler=bool(change)).reason
    yield checkpoints.judge(facts(), 4, needs_scaler=True).reason
    choice = checkpoints.choose_target([sound(4), sound(12), sound(30)], 20, {})
    yield from (why for _, why in choice.passed_over)
    yield from (checkpoints.why_not(sound(each), choice, {2: 5}) for each in (1, 12))
    state = GuardState()
    for at in range(2_000, 2_003):
        state = step(state, StepFacts(at, loss=float("nan"), skipped=True, has_scaler=True), skipped_steps=50)
        yield sick_because(state)
    yield step(GuardState(), StepFacts(7, loss=float("nan"), skipped=False, has_scaler=False), skipped_steps=50).death.reason


def of_guard_rails():
    all_kinds, rollback, cause = frozenset(CommandKind), Action(ActionKind.ROLLBACK, 30.0), Cause("r", "train/loss", "spike")
    for rails in (
        Rails(all_kinds, "", automatic_rollback=False, has_target=True),
        Rails(frozenset({CommandKind.STOP}), "it is a loop", automatic_rollback=True, has_target=True),
        Rails(all_kinds, "", automatic_rollback=True, has_target=False),
        Rails(all_kinds, "", automatic_rollback=True, has_target=True, past=(PastRollback(cause, 90),)),
        Rails(all_kinds, "", automatic_rollback=True, has_target=True, past=(PastRollback(cause, 1),) * 3),
        Rails(frozenset(), "", automatic_rollback=True, has_target=True, past=(PastRollback(cause, 1),) * 3),
        Rails(frozenset(), "it is a loop", automatic_rollback=False, has_target=True),
    ):
        yield decide(rollback, cause, 100, rails).because


def of_commands():
    yield from (commands.why_overdue(state) for state in (CommandState.QUEUED, CommandState.DELIVERED, CommandState.RUNNING))
    yield f"not done: {admission.Refusal.NO_SOUND_CHECKPOINT} (step 8: 3 weights are not finite)"


@pytest.mark.parametrize("english", sorted({*of_verdicts(), *of_guard_rails(), *of_commands()} - {""}))
def test_what_the_domain_gives_as_a_reason_is_known(english):
    chinese = in_chinese(english)
    assert set(LATIN.findall(chinese.replace("it is a loop", ""))) == set(), chinese


def of_page():
    text = "\n".join(file.read_text() for file in (ROOT / "client/i18n/zh").glob("*.js"))
    return {key: json.loads(f'"{words}"') for key, words in re.findall(r'"([\w.]+)": "((?:[^"\\]|\\.)*)"', text)}


def test_commands_states_and_ends_have_the_words_of_the_page():
    page = of_page()
    for state, words in event_words.STATES.items():
        assert (state.value, page[f"command.state.{state}"]) == words
    for kind, (_, words) in event_words.COMMANDS.items():
        assert page[f"command.{kind}"] == PLACE.sub("", words.split("[")[0])
        assert clauses.WORDS[kind] == page[f"command.{kind}"]
    for end in (EndReason.FINISHED, EndReason.FAILED):
        assert page[f"history.run.{end}"] == event_words.ENDS[end][1]
    for reason, end in (("command", EndReason.STOPPED_BY_COMMAND), ("guard", EndReason.STOPPED_BY_GUARD)):
        assert page[f"reason.{reason}"] == event_words.ENDS[end][1]
    assert (page["reason.killed"], page["reason.left"]) == (in_chinese("killed"), in_chinese("left before its end"))


def test_every_event_that_is_sent_has_title_and_text_in_every_language():
    elsewhere = {EventType.INCIDENT_FIRING, EventType.INCIDENT_RESOLVED}
    elsewhere |= {each for each in SENT_AS if each.value.startswith("command.")}
    for kind in set(SENT_AS) - elsewhere:
        texts = event_words.COUNTDOWN if kind is EventType.COUNTDOWN_STARTED else event_words.TEXTS[kind]
        for words in (event_words.TITLES[kind], texts):
            assert len(words) == len(LANGUAGES)
            assert all(words), kind

"""Every sentence of every detector, to the letter: `data/sentences.json` has one row for each way in which it can be said."""

import json
import re
from pathlib import Path

import pytest

from server.domain.detectors import DETECTORS
from server.domain.detectors.base import DetectorKind
from server.domain.wording import LANGUAGES, Facts, sentence
from server.domain.wording.deeds import TEXTS, DeedKind
from server.domain.wording.sentences import FALLBACK, SENTENCES
from server.domain.wording.words import Both, fill, filled, places
from trainer_agent.wire.codec import number_from_json

ROOT = Path(__file__).parents[2]
GOLDEN = json.loads((Path(__file__).parent / "data/sentences.json").read_text())
BY_KIND = [*SENTENCES.items(), ("any other", FALLBACK)]


def facts(row):
    limit = None if row["limit"] is None else number_from_json(row["limit"])
    return Facts(row["series"], number_from_json(row["value"]), limit, row["evidence"], 4977, row["rank"])


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("row", GOLDEN, ids=[f"{row['detector']}-{at}" for at, row in enumerate(GOLDEN)])
def test_what_is_said_of_an_alert_is_what_was_said_before(row, language):
    assert sentence(row["detector"], facts(row), language) == row[language]


def test_every_detector_has_one_entry_and_a_golden_row():
    kinds = {kind.value for kind in DetectorKind}
    assert kinds == {kind.value for kind in DETECTORS}
    assert set(SENTENCES) == kinds, "one entry for each in server/domain/wording/sentences.py"
    assert {row["detector"] for row in GOLDEN} - {"gone"} == kinds, "one row for each in data/sentences.json"


@pytest.mark.parametrize(("kind", "entry"), BY_KIND, ids=[kind for kind, _ in BY_KIND])
def test_no_language_lacks_a_sentence_or_says_less_than_another(kind, entry):
    texts = [getattr(entry, language) for language in LANGUAGES]
    assert all(text.strip() for text in texts), kind
    said = [places(text.replace("[", "").replace("]", "")) for text in texts]
    own = {"how"} if kind == "ended" else {"series"} if kind in ("lost", "stalled") else set()
    assert all(each | own == said[0] | own for each in said), kind


@pytest.mark.parametrize("kind", DeedKind)
def test_every_deed_has_a_text_in_every_language(kind):
    assert len(TEXTS[kind]) == len(LANGUAGES)
    assert all(TEXTS[kind])


def test_what_stands_in_brackets_is_left_out_where_nothing_fills_it():
    text = "{name} is {value}[, limit {limit}]"
    assert fill(text, {"name": "[x] {y}", "value": 1.5, "limit": 2.0}) == "[x] {y} is 1.5, limit 2"
    assert fill(text, {"name": "a", "value": None}) == "a is none"
    assert (
        fill("{value:unit}, {value:share}, {value:2}, {value:time}", {"value": 0.0}, "zh", "perf/step_seconds")
        == "0 s, 0 %, 0, 0 秒"
    )


def test_a_place_with_a_capital_begins_a_sentence_and_a_step_has_all_its_digits():
    texts: Both = ("{What} at {step}[ by {Who}]", "{What}：第 {step} 步")
    assert filled(texts, what=("stop of A", "停止 A"), step=1234567) == ("Stop of A at 1234567", "停止 A：第 1234567 步")
    assert filled(("{Who}", "{Who}"), who="ann") == ("Ann", "Ann")


def test_the_server_has_words_of_two_languages_in_one_place():
    files = [file for file in (ROOT / "server").rglob("*.py") if file.parent.name != "wording"]
    assert [file.name for file in files if re.search(r"[\u4e00-\u9fff]", file.read_text())] == []


def test_words_fill_a_place_in_their_own_language():
    texts: Both = ("a {what} of {name}", "{name} 的{what}")
    assert filled(texts, what=("stop", "停止"), name="gpt") == ("a stop of gpt", "gpt 的停止")

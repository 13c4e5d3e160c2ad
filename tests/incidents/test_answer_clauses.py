"""What the server answers people: said in Chinese by how it reads, and by nobody but the page."""

import re

import pytest
from test_incident_clauses import LATIN, is_said, said_in_sources

from server.domain.wording.answers import ANSWERS, STATES
from server.domain.wording.clauses import CLAUSES, WORDS
from server.domain.wording.words import PLACE, places

NAMES = re.compile(r"LOSSGUARD_\w+|https?://[\w./]*|group/name|train/\*|log_history|float64|JSON|HTTP|Webhook|\bid\b")
"""Of programs and of what is written in them: they are the same in every language."""


def test_every_answer_is_still_given_by_somebody():
    said = said_in_sources()
    for english in ANSWERS:
        for piece in PLACE.split(english)[::3]:
            assert is_said(piece, said), f"nobody says {piece!r} of {english!r}"


@pytest.mark.parametrize("english", ANSWERS)
def test_an_answer_says_in_chinese_what_it_says_in_english(english):
    assert places(ANSWERS[english]) <= places(english)
    assert LATIN.findall(NAMES.sub("", PLACE.sub("", ANSWERS[english]))) == []
    assert re.search(r"[\u4e00-\u9fff]", ANSWERS[english])


def test_no_answer_takes_the_place_of_a_clause_that_is_stored():
    assert not ANSWERS.keys() & CLAUSES.keys()
    assert not STATES.keys() & WORDS.keys()

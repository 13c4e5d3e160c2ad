"""docs/rules.md says what the registry of detectors says."""

import rules_docs


def test_the_document_has_every_condition_and_setting_as_they_are():
    assert rules_docs.written() == rules_docs.conditions(), "make it anew: python tests/judging/rules_docs.py"

"""The documentation exists and names what there is."""

import re
from pathlib import Path

import pytest

from server.domain.default_rules import DEFAULT_RULES
from server.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
FOR_DEMONSTRATIONS = {"webhook_retry_scale"}


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_the_readme_names_every_setting_of_the_server(name):
    text = (ROOT / name).read_text()
    assert [field for field in Settings.model_fields if f"LOSSGUARD_{field.upper()}" not in text] == sorted(FOR_DEMONSTRATIONS)


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_the_two_commands_stand_on_top_of_the_readme(name):
    head = (ROOT / name).read_text()[:300]
    assert re.search(r"^make demo .*\nmake test ", head, re.MULTILINE)


def test_every_default_rule_is_described_with_its_severity():
    text = (ROOT / "docs/concepts.md").read_text()
    for rule in DEFAULT_RULES:
        (line,) = [line for line in text.splitlines() if line.startswith(f"| `{rule.rule_id}` ")]
        assert line.rstrip(" |").endswith(rule.severity.value)


def test_links_between_the_documents_lead_somewhere():
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} points to {target}"

"""The page has words of its own, in both languages, for every condition and for every rule of the default pack."""

import json
import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import sync_playwright
from test_pure_modules import chromium, node

from server.domain.default_rules import DEFAULT_RULES
from server.domain.detectors import DETECTORS

ROOT = Path(__file__).parents[2]
LANGUAGES = ("en", "zh")


@pytest.fixture(scope="module", params=LANGUAGES)
def words(request):
    """A dictionary of the page, as its own modules make it: by node, or by Chromium where there is none."""
    program = node()
    return by_chromium(request.param) if program is None else by_node(program, request.param)


def by_node(program, language):
    script = "import(process.argv[1]).then((m) => process.stdout.write(JSON.stringify(m.default)))"
    address = (ROOT / f"client/i18n/{language}.js").as_uri()
    done = subprocess.run([program, "-e", script, address], capture_output=True, text=True, check=True, timeout=30)
    return json.loads(done.stdout)


def by_chromium(language):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-background-networking"])
        page = browser.new_page()
        page.route("http://client.test/**", _fulfill)
        page.goto("http://client.test/")
        words = page.evaluate(f"import('/client/i18n/{language}.js').then((m) => m.default)")
        browser.close()
    return words


def _fulfill(route):
    path = urlsplit(route.request.url).path
    if path == "/":
        route.fulfill(body="<!doctype html>", content_type="text/html")
    else:
        route.fulfill(path=ROOT / path.lstrip("/"))


def test_either_way_of_reading_a_dictionary_gives_the_same():
    program = node()
    if program is not None:
        assert by_chromium("zh") == by_node(program, "zh")


def test_every_condition_has_a_name_a_sentence_and_a_label_for_each_setting(words):
    wanted = {f"{what}.{kind}" for kind in DETECTORS for what in ("detector", "condition")}
    wanted |= {f"setting.{kind}.{name}" for kind, detector in DETECTORS.items() for name in detector.settings}
    have = {key for key in words if re.match(r"(detector|condition|setting)\.", key)} - {"condition.any"}
    assert have == wanted


def test_the_sentence_of_a_condition_fits_its_defaults_and_names_only_what_can_be_set(words):
    for kind, detector in DETECTORS.items():
        ways = [set(re.findall(r"\{(\w+)\}", way)) for way in words[f"condition.{kind}"].split("|")]
        assert all(places <= set(detector.settings) for places in ways), kind
        set_by_default = {name for name, setting in detector.settings.items() if setting.default is not None}
        assert kind == "threshold" or any(places <= set_by_default for places in ways), kind


def test_the_default_pack_is_translated_and_a_reason_stands_for_the_one_that_is_in_force(words):
    if words["nav.rules"] == "Rules":
        return
    for rule in DEFAULT_RULES:
        assert rule.name in words["ruleNames"], rule.rule_id
        assert rule.title in words["titles"], rule.rule_id
        assert rule.reason.startswith(words["ruleReasons"][rule.rule_id]["begins"]), rule.rule_id


def test_a_translated_reason_names_the_numbers_of_the_reason_that_is_in_force(words):
    for rule in DEFAULT_RULES if words["ruleReasons"] else ():
        assert numbers(words["ruleReasons"][rule.rule_id]["text"]) == numbers(rule.reason), rule.rule_id


def numbers(text):
    return set(re.findall(r"\d+(?:\.\d+)?", text.replace(",", "")))

"""Incidents, silences and the hold in the page: what fires appears by itself, a person takes it on, all see who and why."""

import re
import uuid
from collections.abc import Callable, Iterator

import pytest
from e2e_harness import poll
from playwright.sync_api import Page, expect
from spoken_agent import SpokenAgent

from trainer_agent.wire.vocabulary import Phase

NAN = float("nan")


@pytest.fixture
def run_id() -> str:
    """Of the run of this test, and of its project."""
    return f"incident-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def agent(site, run_id) -> SpokenAgent:
    """The run, with a sound checkpoint at step 20; it stands at step 30."""
    agent = SpokenAgent(site, run_id, project=run_id)
    agent.walk(20)
    agent.save("c20")
    agent.walk(30)
    return agent


@pytest.fixture
def rule(site, run_id) -> Iterator[Callable[..., dict]]:
    """Makes rules that watch this project alone; they go with the test."""
    made = []

    def make(**more: object) -> dict:
        said = {"name": "Loss over 100", "title": "Loss over 100", "series": "train/loss", "detector": "threshold"}
        said |= {"settings": {"above": 100}, "scope": {"kind": "project", "name": run_id}, "keep_firing_for_points": 1000}
        made.append(site.api.post("/api/rules", json=said | more).raise_for_status().json())
        return made[-1]

    yield make
    for each in made:
        site.api.delete(f"/api/rules/{each['rule_id']}").raise_for_status()


def seen_by(page: Page) -> str:
    """Who the browser is signed in as."""
    return page.request.get("/api/me").json()["name"]


def open_incident(site, agent: SpokenAgent) -> dict:
    return poll("the incident", lambda: site.run(agent.run_id)["incident"])


def test_an_incident_appears_by_itself_is_taken_on_from_the_run_page_and_resolves(site, agent, page):
    page.goto(f"/runs/{agent.run_id}")
    expect(page.locator(".health .say")).to_have_text("Healthy")
    agent.walk(31, NAN)
    expect(page.locator(".health .say")).to_have_text("Loss is NaN")
    expect(page.locator(".health button[data-act=acknowledge]")).to_be_visible()
    page.keyboard.press("a")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Alerts and automatic actions go on.")
    dialog.locator("#note").fill("looking at the batch")
    dialog.locator("button[data-act=send]").click()
    expect(page.locator(".health .sub")).to_contain_text(f"acknowledged by {seen_by(page)}")
    expect(page.locator(".health button[data-act=acknowledge]")).to_have_count(0)
    incident = site.run(agent.run_id)["incident"]
    assert (incident["state"], incident["note"]) == ("acknowledged", "looking at the batch")
    page.locator(".health .sub a").click()
    expect(page).to_have_url(re.compile(f"/runs/{agent.run_id}/incidents/{incident['incident_id']}$"))
    _tells_all(page, site, agent)
    agent.walk(60)
    expect(page.locator(".crumbs")).to_contain_text("resolved")
    expect(page.locator(".timeline")).to_contain_text("Loss is NaN: resolved")
    expect(page.locator("button[data-act=acknowledge]")).to_have_count(0)


def _tells_all(page: Page, site, agent: SpokenAgent) -> None:
    """The incident page in both languages: sentences, what was done and what to do next, curves, checkpoints, timeline."""
    alert = next(a for a in site.run(agent.run_id)["alerts"] if a["rule_id"] == "loss-not-finite")
    item = page.locator(f".alert-item[data-alert='{alert['alert_id']}']")
    for field in ("texts", "done", "next"):
        expect(item).to_contain_text(alert[field]["en"])
    expect(page.locator("[data-key=note]")).to_contain_text("looking at the batch")
    expect(page.locator("tr[data-key=c20]")).to_contain_text("sound")
    expect(page.locator(".timeline")).to_contain_text("acknowledged")
    page.wait_for_selector("figure[data-series='train/loss'] .scatterlayer path.js-line", state="attached")
    page.locator("button[data-act=markdown]").click()
    expect(page.get_by_role("dialog").locator("pre")).to_contain_text("# Incident 1: Loss is NaN")
    page.keyboard.press("Escape")
    page.locator(".topbar > button[data-act=language]").click()
    expect(page.locator("h1")).to_have_text("事件 1：损失为 NaN")
    expect(item).to_contain_text(alert["texts"]["zh"])
    expect(item).to_contain_text(alert["next"]["zh"])
    page.locator(".topbar > button[data-act=language]").click()


def test_a_silence_is_made_with_a_reason_is_seen_at_the_incident_and_is_ended(site, agent, page):
    agent.walk(31, NAN)
    incident = open_incident(site, agent)
    page.goto(f"/runs/{agent.run_id}/incidents/{incident['incident_id']}")
    page.locator("button[data-act=silence]").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("#silence-run")).to_have_value(agent.run_id)
    send = dialog.locator("button[data-act=send]")
    expect(send).to_have_attribute("aria-disabled", "true")
    expect(dialog.locator(".sum")).to_have_text("Say why.")
    dialog.locator("#reason").fill("broken on purpose")
    dialog.locator(".seg label", has_text="12 h").click()
    expect(dialog.locator(".sum")).to_contain_text(f"Run {agent.run_id}. Until")
    send.click()
    expect(page.locator(".crumbs")).to_contain_text("silenced until")
    page.goto("/alerts/silences")
    row = page.locator("tr[data-silence]", has_text=agent.run_id)
    expect(row).to_contain_text("broken on purpose")
    row.locator("button[data-act=end-silence]").click()
    page.locator("details[data-key=past] summary").click()
    ended = page.locator("details[data-key=past] tr", has_text=agent.run_id)
    expect(ended).to_be_visible()
    expect(ended).to_contain_text(f"by {seen_by(page)}")
    past = [s for s in site.get("/api/silences")["silences"] if s["run_id"] == agent.run_id]
    assert [(s["reason"], s["ended_by"]) for s in past] == [("broken on purpose", seen_by(page))]


def test_a_countdown_is_held_every_viewer_sees_who_and_why_and_the_hold_is_lifted(site, agent, rule, page):
    rule(severity="critical", action={"kind": "stop", "countdown_seconds": 600})
    page.goto(f"/runs/{agent.run_id}")
    agent.walk(31, 500.0)
    expect(page.locator(".doing .clock")).to_be_visible()
    page.locator(".actionbar > button[data-act=hold]").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The countdown under way is called off")
    dialog.locator("input[name=reason]").fill("comparing two loaders")
    dialog.locator("button[data-act=send]").click()
    expect(page.locator(".held")).to_contain_text(f"by {seen_by(page)}: “comparing two loaders”")
    expect(page.locator(".doing .clock")).to_have_count(0)
    expect(page.locator(".actionbar > button[data-act=hold]")).to_have_count(0)
    assert site.run(agent.run_id)["hold"]["reason"] == "comparing two loaders"
    page.locator("button[data-act=lift]").click()
    expect(page.locator(".held")).to_have_count(0)
    assert site.run(agent.run_id)["hold"] is None


def test_a_dry_run_says_what_would_be_done_and_offers_no_button(agent, rule, page):
    rule(severity="critical", action={"kind": "stop", "countdown_seconds": 600, "dry_run": True})
    agent.walk(31, 500.0)
    page.goto(f"/runs/{agent.run_id}")
    expect(page.locator(".doing .say")).to_have_text(re.compile(r"^Would stop in \d+:\d\d$"))
    expect(page.locator(".doing .sub")).to_contain_text("Dry run: nothing will be done.")
    expect(page.locator(".doing button")).to_have_count(0)


def test_an_alert_on_trial_is_shown_quietly_and_makes_nobody_ill(site, agent, rule, page):
    made = rule(severity="critical", trial=True)
    agent.walk(31, 500.0)
    poll("the alert", lambda: [a for a in site.run(agent.run_id)["alerts"] if a["rule_id"] == made["rule_id"]])
    page.goto(f"/runs/{agent.run_id}")
    row = page.locator("tr[data-alert]", has_text="Loss over 100")
    expect(row).to_contain_text("trial, log only")
    expect(row.locator(".badge.crit")).to_have_count(0)
    expect(page.locator(".health .say")).not_to_have_text("Loss over 100")
    page.goto("/")
    expect(page.locator(f"tr[data-id={agent.run_id}]")).not_to_contain_text("Loss over 100")
    page.goto("/alerts/all")
    page.locator("select[name=kind]").select_option("trial")
    page.locator("select[name=run]").select_option(agent.run_id)
    expect(page.locator("tr[data-alert]")).to_have_count(1)
    page.locator("select[name=kind]").select_option("paging")
    expect(page.locator("tr[data-alert]", has_text="trial, log only")).to_have_count(0)


def test_a_run_that_takes_no_step_is_stalled_and_says_since_when_and_the_limit(site, run_id, rule, page):
    quick = {"floor_seconds": 1, "times": 1, "startup_seconds": 1}
    rule(name="No step", title="Stalled", series="run/step", detector="stalled", settings=quick, severity="warning")
    agent = SpokenAgent(site, run_id, project=run_id)
    agent.walk(5)
    page.goto(f"/runs/{run_id}")
    expect(page.locator(".state-cell .say")).to_have_text("Stalled")
    expect(page.locator(".state-cell .sub")).to_contain_text(re.compile(r"no step since .*, limit \d"))
    expect(page.locator(".health .say")).to_have_text("Stalled")
    agent.phase = Phase.PAUSED  # waits by order: that is no stall
    agent.beat()
    expect(page.locator(".state-cell .say")).to_have_text("Paused")


def test_an_endpoint_has_its_language(site, page):
    page.goto("/webhooks")
    name = f"shift {uuid.uuid4().hex[:6]}"
    page.locator("#hook-name").fill(name)
    page.locator("#hook-url").fill("http://127.0.0.1:9/in")
    page.locator("#hook-language").select_option("zh")
    page.locator("form[data-key=add] button[type=submit]").click()
    page.get_by_role("dialog").locator("[data-act=close]").click()
    kept = lambda: next(w for w in site.get("/api/webhooks")["webhooks"] if w["name"] == name)  # noqa: E731
    hook = kept()
    assert hook["language"] == "zh"
    try:
        page.locator(f"select[name=language][data-hook='{hook['webhook_id']}']").select_option("en")
        poll("the change", lambda: kept()["language"] == "en")
    finally:
        site.api.delete(f"/api/webhooks/{hook['webhook_id']}").raise_for_status()


def test_the_new_pages_fit_a_phone(site, agent, page):
    agent.walk(31, NAN)
    incident = open_incident(site, agent)
    page.set_viewport_size({"width": 390, "height": 844})
    for address in ("/alerts", "/alerts/all", "/alerts/silences", f"/runs/{agent.run_id}/incidents/{incident['incident_id']}"):
        page.goto(address)
        expect(page.locator("main h1").first).to_be_attached()
        expect(page.locator("main .card").first).to_be_attached()
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), address

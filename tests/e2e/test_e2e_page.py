"""The rest of the page: the door, webhooks, a countdown that is cancelled, and a tour that touches everything."""

import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import pytest
from e2e_harness import poll
from playwright.sync_api import expect
from spoken_agent import SpokenAgent
from standardwebhooks.webhooks import Webhook

from trainer_agent.wire import codec
from trainer_agent.wire.messages import RunStart


@pytest.fixture
def receiver():
    """A program that takes webhooks and keeps them."""
    taken = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            taken.append((body, {name.lower(): value for name, value in self.headers.items()}))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.taken = taken
    yield server
    server.shutdown()
    server.server_close()


def test_without_a_session_the_page_shows_how_to_sign_in_and_nothing_else(site, browser):
    with browser.new_context(base_url=site.url) as context:
        page = context.new_page()
        page.goto("/")
        expect(page.locator("body")).to_contain_text("python -m server signin")
        assert page.request.get("/api/runs").status == 401


def test_a_sign_in_link_is_good_for_one_browser_once(site, browser):
    link = site.command_line("signin")
    for expected in (True, False):
        with browser.new_context(base_url=site.url) as context:
            page = context.new_page()
            page.goto(link)
            if expected:
                page.wait_for_url(f"{site.url}/")
                assert page.request.get("/api/me").json()["role"] == "operator"
            else:
                expect(page.locator(".signin")).to_be_visible()
                assert "#" not in page.url


def test_an_endpoint_is_added_tested_and_its_delivery_is_shown(site, page, receiver):
    page.goto("/webhooks")
    page.locator("#hook-name").fill("night shift")
    page.locator("#hook-url").fill(f"http://127.0.0.1:{receiver.server_port}/in")
    page.locator("form[data-key=add] button[type=submit]").click()
    secret = page.get_by_role("dialog").locator("pre.secret").inner_text()
    page.get_by_role("dialog").locator("[data-act=close]").click()
    hook = next(w for w in site.get("/api/webhooks")["webhooks"] if w["name"] == "night shift")
    page.locator(f"button[data-act=test][data-id='{hook['webhook_id']}']").click()
    body, headers = poll("the message", lambda: receiver.taken and receiver.taken[0])
    assert Webhook(secret).verify(body, headers)["type"] == "webhook.test"
    assert json.loads(body)["type"] == "webhook.test"
    log = page.locator("section[data-key=log]")
    expect(log).to_contain_text("Test message")
    expect(log).to_contain_text("webhook.test")
    expect(log).to_contain_text("204")
    expect(log).to_contain_text(headers["webhook-id"])


def test_a_countdown_is_seen_and_cancelled_in_the_page_and_nothing_happens(site, train, page):
    # kept firing: the loss is NaN once, and an alert that recovers before the click would withdraw the countdown
    rule = {"action": {"kind": "rollback", "countdown_seconds": 600}, "keep_firing_for_points": 10_000}
    default = {"action": {"kind": "notify"}, "keep_firing_for_points": 10}
    site.api.put("/api/rules/loss-not-finite", json=rule).raise_for_status()
    try:
        training = train("counted", step_seconds=0.1, save_steps=10, nan_at=35)
        countdown = poll("the countdown", lambda: _countdown(site, training), 180)
        assert countdown["kind"] == "rollback"
        page.goto(f"/runs/{training.run_id}")
        expect(page.locator(".doing .clock")).to_be_visible()
        page.locator(".doing button[data-act=cancel-countdown]").click()
        poll("its end", lambda: site.run(training.run_id)["countdown"] is None)
        expect(page.locator(".doing .clock")).to_have_count(0)
        assert site.run(training.run_id)["commands"] == []
        training.check_alive()
    finally:
        site.api.put("/api/rules/loss-not-finite", json=default).raise_for_status()


def _countdown(site, training):
    training.check_alive()
    runs = {run["run_id"]: run for run in site.get("/api/runs")["runs"]}
    return runs.get(training.run_id, {}).get("countdown")


@pytest.mark.parametrize("width", [1280, 390])
def test_a_tour_of_the_page_breaks_nothing_and_asks_nobody_else(nan_training, page, width):
    page.set_viewport_size({"width": width, "height": 844})
    for address in ("/", f"/runs/{nan_training.run_id}", "/alerts", "/webhooks"):
        page.goto(address)
        expect(page.locator("main h1").first).to_be_attached()
        page.wait_for_load_state("load")
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), address
    page.goto(f"/runs/{nan_training.run_id}")
    page.wait_for_selector("figure[data-series='train/loss'] .scatterlayer path.js-line", state="attached")
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.keyboard.press("l")


def test_a_project_with_a_hostile_long_name_is_text_and_pushes_no_column_out_of_the_list(site, page):
    project = '<img src=x onerror="document.title=1">' + "x" * 200
    start = RunStart("hostile-name", "life", project, "hostile")
    answer = httpx2.post(
        f"{site.url}/api/agent/runs",
        content=codec.encode(start),
        headers={"Authorization": f"Bearer {site.agent_token}", "Content-Type": "application/json"},
        trust_env=False,
    )
    assert answer.status_code == 200, answer.text
    page.goto("/")
    expect(page.locator("tr[data-id=hostile-name] .tag").first).to_have_text(project)
    fits = "row => { const frame = row.closest('.scroll'); return frame.scrollWidth <= frame.clientWidth }"
    assert page.locator("tr[data-id=hostile-name]").evaluate(fits)
    assert page.locator("img[src=x]").count() == 0


@pytest.mark.parametrize("address", ["/nowhere", "/runs/no-such-run", "/runs/no-such-run/incidents/none"])
def test_a_wrong_address_says_so_and_leads_back(page, watched, address):
    watched.refusals = {404}
    page.goto(address)
    expect(page.locator("main [data-key=missing] h1")).to_contain_text("No such")
    page.locator("main [data-key=missing] a").click()
    expect(page.locator("main .filters")).to_be_visible()


def test_what_the_server_stores_in_english_is_said_in_chinese(site, page):
    agent = SpokenAgent(site, f"said-{uuid.uuid4().hex[:8]}")
    agent.walk(20)
    agent.save("c20")
    page.goto(f"/runs/{agent.run_id}")
    row = page.locator("tr[data-id=c20]")
    expect(row).to_contain_text("weights and optimizer finite, scaler present")
    page.locator(".topbar > button[data-act=language]").click()
    expect(row).to_contain_text("权重和优化器为有限值，含缩放器")
    page.reload()  # also where the page begins in Chinese
    expect(row).to_contain_text("权重和优化器为有限值，含缩放器")
    page.locator(".topbar > button[data-act=language]").click()
    expect(row).to_contain_text("weights and optimizer finite, scaler present")

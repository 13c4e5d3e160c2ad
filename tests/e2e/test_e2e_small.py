"""The page under a thumb, and in Chinese where the server answers in English: nothing lies out of sight, nothing is lost."""

import uuid

import pytest
from playwright.sync_api import Page, expect
from spoken_agent import SpokenAgent

PHONE = {"width": 390, "height": 844}
FINGER = 40
"""Pixels; what is touched is not lower."""
BESIDE = """frames => [...document.querySelectorAll(frames)]
    .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.className)"""
LOW = """most => [...document.querySelectorAll("main :is(button, select, summary, .input), .topbar :is(button, summary)")]
    .filter(e => e.offsetParent && e.getBoundingClientRect().height < most).map(e => e.outerHTML.slice(0, 90))"""
FITS = "box => box.scrollWidth <= box.clientWidth && box.querySelector('.seg').getBoundingClientRect().right <= innerWidth"


@pytest.fixture
def hook(site):
    """An endpoint that nobody listens at; gone after the test."""
    said = {"name": "a receiver with a long name of its own", "url": f"http://127.0.0.1:9/{'path/' * 20}", "language": "zh"}
    made = site.api.post("/api/webhooks", json={**said, "minimum_severity": "warning"}).raise_for_status().json()
    yield made
    site.api.delete(f"/api/webhooks/{made['webhook_id']}")


@pytest.fixture
def agent(site) -> SpokenAgent:
    agent = SpokenAgent(site, f"small-{uuid.uuid4().hex[:8]}")
    agent.walk(20)
    agent.save("c20")
    agent.walk(30)
    return agent


def in_chinese(page: Page) -> None:
    """The page begins in Chinese."""
    page.add_init_script("localStorage.setItem('lossguard', JSON.stringify({language: 'zh'}))")


@pytest.mark.parametrize("width", [820, 390])
def test_no_button_of_an_endpoint_lies_out_of_sight(hook, page, width):
    page.set_viewport_size({**PHONE, "width": width})
    page.goto("/webhooks")
    row = page.locator(f"table.hooks tr[data-key='{hook['webhook_id']}']")
    row.locator("button[data-act=test]").click()
    expect(page.locator("table.deliveries tbody tr").first).to_be_visible()
    assert page.evaluate(BESIDE, ".scroll") == []
    box = row.locator("button[data-act=delete]").bounding_box()
    assert box["x"] + box["width"] <= width


@pytest.mark.parametrize("address", ["/", "/alerts", "/rules", "/webhooks"])
def test_what_is_touched_is_as_high_as_a_finger(hook, agent, page, address):
    page.set_viewport_size(PHONE)
    page.goto(address)
    expect(page.locator("main .card:visible").first).to_be_visible()
    assert page.evaluate(LOW, FINGER) == []


def test_what_a_delivery_met_is_said_in_chinese(hook, page):
    in_chinese(page)
    page.goto("/webhooks")
    row = page.locator(f"table.hooks tr[data-key='{hook['webhook_id']}']")
    row.locator("button[data-act=test]").click()
    expect(row.locator(".badge")).to_contain_text("连接被拒绝或不安全")


def test_what_the_server_refuses_is_said_in_chinese(site, page, agent, watched):
    watched.refusals = {409, 422}
    in_chinese(page)
    page.goto("/webhooks")
    page.locator("#hook-name").fill("inside")
    page.locator("#hook-url").fill("http://10.0.0.1/in")
    page.locator("form[data-key=add] button[type=submit]").click()
    expect(page.locator("#hook-bad")).to_have_text(
        "这个地址在内网，LOSSGUARD_ALLOW_PRIVATE_WEBHOOKS 未列出它。请换一个地址，或请服务器管理员放行。"
    )
    page.goto(f"/runs/{agent.run_id}")
    page.locator(".actionbar > button[data-act=rollback]:not([aria-disabled=true])").click()
    order = {"kind": "stop", "seen_segment": 1}
    page.route("**/commands", lambda route: _after(route, lambda: _ordered(site, agent, order)))
    page.get_by_role("dialog").locator("button[data-act=send]").click()
    expect(page.get_by_role("dialog").locator(".notice[role=alert]")).to_contain_text("这个训练上的“停止”已排队；请等它结束")


def _ordered(site, agent, order):
    address = f"/api/runs/{agent.run_id}/commands"
    site.api.post(address, json=order, headers={"Idempotency-Key": uuid.uuid4().hex}).raise_for_status()


def _after(route, first):
    """Lets the page's order go on its way once somebody else has given one."""
    first()
    route.continue_()


def test_a_wrong_field_of_a_rule_is_said_in_chinese(site, page, watched):
    watched.refusals = {422}
    in_chinese(page)
    page.goto("/rules/grad-norm-over-10")
    page.locator("[data-field='settings.above']").fill("50")
    spoilt = lambda route: route.continue_(post_data={**route.request.post_data_json, "for_points": 0})  # noqa: E731
    page.route("**/api/rules/*", lambda route: spoilt(route) if route.request.method == "PUT" else route.continue_())
    page.locator("[data-act=save]").click()
    expect(page.locator(".field[data-key=for_points] > .hint")).to_contain_text("须在 1 与 100000 之间")


def test_a_dialog_fits_a_phone_in_chinese_and_has_its_buttons_under_the_thumb(hook, agent, page):
    in_chinese(page)
    page.set_viewport_size(PHONE)
    page.goto(f"/runs/{agent.run_id}")
    page.locator(".menu.up > summary").click()
    page.locator(".menu.up button[data-act=hold]").click()
    dialog = page.get_by_role("dialog")
    assert dialog.evaluate(FITS)
    page.keyboard.press("Escape")
    page.goto("/webhooks")
    page.locator(f"button[data-act=delete][data-id='{hook['webhook_id']}']").click()
    box = dialog.locator("[data-act=yes]").bounding_box()
    assert box["y"] + box["height"] > PHONE["height"] - 30


def test_a_menu_shuts_at_escape_outside_and_when_something_is_chosen_and_gets_the_focus_back(page):
    page.set_viewport_size(PHONE)
    page.goto("/")
    menu = page.locator(".topbar .menu.only-phone")
    button = menu.locator("summary")
    button.click()
    expect(menu).to_have_attribute("open", "")
    page.keyboard.press("Escape")
    expect(menu).not_to_have_attribute("open", "")
    button.click()
    page.locator("main").click(position={"x": 5, "y": 400})
    expect(menu).not_to_have_attribute("open", "")
    button.click()
    menu.locator("button[data-act=keys]").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(button).to_be_focused()
    button.click()
    menu.locator("a[href='/rules']").click()
    expect(page.locator(".rule-form")).to_be_visible()
    expect(menu).not_to_have_attribute("open", "")


def test_where_the_clipboard_is_refused_the_secret_stays_selected(page, watched):
    watched.refusals = {404}  # the log may be read just as its endpoint goes
    page.goto("/webhooks")
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')) }")
    page.locator("#hook-name").fill("selected")
    page.locator("#hook-url").fill("http://127.0.0.1:9/in")
    page.locator("form[data-key=add] button[type=submit]").click()
    dialog = page.get_by_role("dialog")
    secret = dialog.locator("pre.secret").inner_text()
    dialog.locator("[data-act=copy]").click()
    expect(dialog.locator(".sum")).not_to_have_text("")
    assert page.evaluate("getSelection().toString()").strip() == secret
    dialog.locator("[data-act=close]").click()
    row = page.locator("table.hooks tr", has_text="selected")
    row.locator("button[data-act=delete]").click()
    dialog.locator("[data-act=yes]").click()
    expect(row).to_have_count(0)
    expect(page.locator("#main")).to_be_focused()

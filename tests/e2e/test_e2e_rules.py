"""The rules page in a real browser: a rule is written, tried on a dead run, saved, disputed, put on trial and taken away."""

import re

import pytest
from e2e_harness import poll
from playwright.sync_api import expect
from stored_runs import dying, healthy, store_run

from trainer_agent.wire.vocabulary import EndReason

ONSET, DEAD, STEPS = 300, 340, 360
TESTED_MS = 60_000
"""The first backtest starts its worker processes, which takes seconds of a busy machine."""
OWN = {"name": "Norm over 40", "title": "Norm over 40", "series": "train/grad_norm", "detector": "threshold"}


@pytest.fixture(scope="module")
def runs(site):
    """A run that died and one that did not."""
    died = store_run(site, "rules-died", dying(STEPS, ONSET, DEAD), EndReason.FAILED)
    return died, store_run(site, "rules-well", healthy(STEPS))


@pytest.fixture
def own(site):
    """A rule of one's own; gone after the test."""
    rule = site.api.post("/api/rules", json={**OWN, "settings": {"above": 40.0}}).raise_for_status().json()
    yield rule
    site.api.delete(f"/api/rules/{rule['rule_id']}")


def stored(site, rule_id):
    return next((rule for rule in site.get("/api/rules")["rules"] if rule["rule_id"] == rule_id), None)


def field(page, name):
    return page.locator(f"[data-field='{name}']")


def hint(page, name):
    return page.locator(f".field[data-key='{name}'] > .hint")


def test_a_rule_is_written_with_its_mistakes_shown_saved_changed_and_deleted(site, page):
    page.goto("/")
    page.locator("h1").first.wait_for()
    page.keyboard.press("g")
    page.keyboard.press("u")
    expect(page.locator(".topbar .nav [aria-current=page]")).to_have_text("Rules")
    page.locator("[data-act=new]").click()
    expect(page).to_have_url(re.compile("/rules/new$"))
    field(page, "detector").select_option("threshold")
    field(page, "series").fill("Loss")
    field(page, "settings.above").fill("40")
    field(page, "for_points").fill("0")
    expect(hint(page, "for_points")).to_have_text("At least 1.")
    expect(hint(page, "series")).to_contain_text("group/name in lower case")
    expect(page.locator(".savebar .said")).to_contain_text("Not saved: \u201cSeries\u201d.")
    expect(page.locator("[data-act=save]")).to_have_attribute("aria-disabled", "true")
    field(page, "series").fill("train/grad_norm")
    field(page, "for_points").fill("2")
    field(page, "name").fill("Norm over forty")
    field(page, "title").fill("Norm over 40")
    expect(page.locator(".sentence")).to_have_text("When train/grad_norm is over 40, for 2 points, say it is warning and notify.")
    page.locator("[data-act=save]").click()
    page.wait_for_url(lambda address: not address.endswith("/new"))
    rule_id = page.url.rpartition("/")[2]
    saved = stored(site, rule_id)
    assert (saved["series"], saved["settings"], saved["for_points"]) == ("train/grad_norm", {"above": 40.0}, 2)
    field(page, "action.kind").select_option("rollback")
    field(page, "action.countdown_seconds").fill("90")
    page.locator("[data-act=save]").click()
    expect(page.locator(".savebar .said")).to_have_text("Saved as version 2.")
    assert stored(site, rule_id)["action"]["countdown_seconds"] == 90
    page.locator("[data-act=delete]").click()
    page.get_by_role("dialog").locator("[data-act=yes]").click()
    expect(page.locator(f"[data-rule='{rule_id}']")).to_have_count(0)
    assert stored(site, rule_id) is None


def test_what_the_server_refuses_stands_beside_its_field(page, own, watched):
    watched.refusals.add(422)
    page.goto(f"/rules/{own['rule_id']}")
    field(page, "settings.above").fill("1e400")
    expect(hint(page, "settings.above")).to_have_text("A number.")
    field(page, "settings.above").fill("50")
    page.route("**/api/rules/*", lambda route: _spoil(route) if route.request.method == "PUT" else route.continue_())
    page.locator("[data-act=save]").click()
    expect(hint(page, "for_points")).to_contain_text("must lie between 1 and")
    expect(hint(page, "for_points")).to_have_class(re.compile("bad"))


def _spoil(route):
    """The page's own change, with a count that the page would not have let pass."""
    route.continue_(post_data={**route.request.post_data_json, "for_points": 0})


def saved(site) -> list[dict]:
    """What has been saved of all rules, without what the runs of other tests make of them meanwhile."""
    of_runs = {"open_alerts", "never_seen", "too_many_series", "failure"}
    return [{name: part for name, part in rule.items() if name not in of_runs} for rule in site.get("/api/rules")["rules"]]


def test_a_rule_is_tried_on_a_dead_run_before_it_is_saved_and_the_bands_are_seen(site, page, runs):
    died, well = runs
    before = saved(site)
    page.goto("/rules/new")
    field(page, "detector").select_option("threshold")
    field(page, "series").fill("train/grad_norm")
    field(page, "settings.above").fill("40")
    page.locator("[data-act=choice][data-id=picked]").click()
    for run_id in (died, well):
        page.locator(f"input[data-run='{run_id}']").check()
    page.locator("[data-act=backtest]").click()
    row = page.locator(f"tr[data-id='{died}']")
    fires = next(step for step in range(ONSET, STEPS) if 2.0 * 1.15 ** (step - ONSET) > 40)
    expect(row).to_contain_text(f"dead at {DEAD}", timeout=TESTED_MS)
    expect(row).to_contain_text(str(fires))
    expect(row).to_contain_text(f"{DEAD - fires} steps early")
    expect(page.locator(f"tr[data-id='{well}']")).to_contain_text("quiet")
    expect(page.locator("[data-figure=caught] dd")).to_have_text("1 of 1")
    expect(page.locator("[data-figure=alarms] dd")).to_have_text("0 in 1 healthy")
    plot = page.locator(".tested-plot .plot")
    expect(plot).to_have_attribute("aria-label", re.compile(f"fires at {fires}"))
    expect(plot.locator(".annotation-text", has_text=f"fires at {fires}")).to_be_visible()
    assert plot.locator(".shapelayer path[fill-rule]").count() >= 2  # the tint of the band and its bar
    row_of_well = page.locator(f"tr[data-id='{well}'] button")
    row_of_well.click()
    expect(row_of_well).to_have_attribute("aria-pressed", "true")
    expect(plot).to_have_attribute("aria-label", re.compile("rules-well.*does not fire"))
    field(page, "settings.above").fill("50")
    expect(page.locator(".backtest .said")).to_have_text("Of the rule before your last edit")
    assert saved(site) == before


def test_a_log_file_is_tried_and_a_backtest_can_be_cancelled(site, page, own):
    page.goto(f"/rules/{own['rule_id']}")
    page.locator("[data-act=choice][data-id=logs]").click()
    expect(page.locator(".backtest .said")).to_contain_text("Choose a file")
    curves = dying(STEPS, ONSET, DEAD)
    lines = [f"{step},{loss},{norm}" for step, (loss, norm) in enumerate(zip(*curves.values(), strict=True), 1)]
    csv = "step,loss,grad_norm\n" + "\n".join(lines)
    files = page.locator("input[data-files]")
    files.set_input_files({"name": "story.csv", "mimeType": "text/csv", "buffer": csv.encode()})
    page.locator("[data-act=backtest]").click()
    expect(page.locator("tr[data-id='log:1']")).to_contain_text(f"dead at {DEAD}", timeout=TESTED_MS)
    expect(page.locator(".tested-plot .js-line")).to_have_count(1)
    long = "step,loss,grad_norm\n" + "\n".join(f"{step},2.0,2.{step % 97}" for step in range(1, 300_000))
    files.set_input_files({"name": "long.csv", "mimeType": "text/csv", "buffer": long.encode()})
    expect(page.locator(".files .tag")).to_have_text("long.csv")
    with page.expect_response(lambda r: r.request.method == "POST" and r.url.endswith("/api/backtests")) as begun:
        page.locator("[data-act=backtest]").click()
    page.locator("[data-act=cancel-backtest]").click()
    expect(page.locator(".backtest .said")).to_have_text("Cancelled. Nothing came of it.")
    job = f"/api/backtests/{begun.value.json()['backtest_id']}"
    poll("its end", lambda: site.get(job)["state"] == "cancelled")


def test_trial_switch_and_reset_are_saved_and_other_pages_see_them(site, page):
    rule_id = "grad-norm-over-10"
    other = page.context.new_page()
    try:
        other.goto(f"/rules/{rule_id}")
        row = other.locator(f"[data-rule='{rule_id}']")
        expect(row).to_be_visible()
        page.goto(f"/rules/{rule_id}")
        page.locator("[data-act=try]").click()
        expect(row.locator(".badge", has_text="trial")).to_be_visible()
        expect(row.locator("small")).to_contain_text("log only")
        page.locator(f".rule-row input[data-switch='{rule_id}']").uncheck()
        expect(row.locator("input")).not_to_be_checked()
        saved = stored(site, rule_id)
        assert (saved["trial"], saved["enabled"]) == (True, False)
        page.locator("[data-act=reset]").click()
        page.get_by_role("dialog").locator("[data-act=yes]").click()
        expect(row.locator("input")).to_be_checked()
        saved = stored(site, rule_id)
        assert (saved["trial"], saved["enabled"], saved["edited"]) == (False, True, False)
    finally:
        site.api.post(f"/api/rules/{rule_id}/reset", json={})


def test_two_pages_that_change_one_rule_are_told_and_nothing_is_overwritten_unseen(site, page, own, watched):
    rule_id = own["rule_id"]
    page.goto(f"/rules/{rule_id}")
    field(page, "for_points").fill("5")
    site.api.put(f"/api/rules/{rule_id}", json={"severity": "critical"}).raise_for_status()
    notice = page.locator(".savebar .notice")
    expect(notice).to_contain_text("Version 2 was saved elsewhere meanwhile and changes Severity. Yours is not saved.")
    expect(field(page, "for_points")).to_have_value("5")
    notice.locator("[data-act=discard]").click()
    expect(field(page, "severity")).to_have_value("critical")
    expect(field(page, "for_points")).to_have_value("1")
    # Once more, by a page that has not heard of the change when it saves.
    field(page, "for_points").fill("7")
    stale = page.request.get("/api/rules").json()
    page.route("**/api/rules", lambda route: route.fulfill(json=stale))
    site.api.put(f"/api/rules/{rule_id}", json={"keep_firing_for_points": 20}).raise_for_status()
    watched.refusals.add(409)
    with page.expect_response(lambda r: r.request.method == "PUT") as answer:
        page.locator("[data-act=save]").click()
    assert answer.value.status == 409
    page.unroute("**/api/rules")
    expect(page.locator(".savebar .notice")).to_be_visible()
    assert stored(site, rule_id)["for_points"] == 1
    page.reload()  # hears of it now


def test_a_notice_that_goes_while_somebody_types_takes_neither_the_field_nor_its_focus(site, page, own):
    """A rule on a series that never came says so, until it is another version: as when it is saved elsewhere."""
    rule_id = own["rule_id"]
    site.api.put(f"/api/rules/{rule_id}", json={"series": "train/nobody_logs_this"}).raise_for_status()
    store_run(site, f"rules-unseen-{rule_id}", healthy(260))
    page.goto(f"/rules/{rule_id}")
    expect(page.locator(".rule-form .notice")).to_contain_text("Never seen in")
    field(page, "for_points").focus()
    page.keyboard.press("End")
    page.keyboard.type("2")
    site.api.put(f"/api/rules/{rule_id}", json={"severity": "critical"}).raise_for_status()
    expect(page.locator(".savebar .notice")).to_contain_text("was saved elsewhere")
    expect(page.locator(".rule-form .notice")).to_have_count(0)
    expect(field(page, "for_points")).to_be_focused()
    page.keyboard.type("3")
    expect(field(page, "for_points")).to_have_value("123")
    expect(page.locator(".rule-form [data-field]")).to_have_count(12)


def test_whoever_may_not_change_rules_reads_them_and_is_told_why(page):
    """No sign-in gives this role yet, so the real answer is read with another role in it."""
    page.route("**/api/me", lambda route: route.fulfill(json={**route.fetch().json(), "role": "viewer"}))
    page.goto("/rules/grad-norm-spike")
    expect(page.locator(".savebar .said")).to_have_text("You are signed in as viewer: rules can be read, not changed.")
    expect(field(page, "for_points")).to_be_disabled()
    expect(page.locator(".rule-row input[data-switch]").first).to_be_disabled()
    for act in ("new", "save", "try", "backtest"):
        expect(page.locator(f"[data-act={act}]")).to_have_attribute("aria-disabled", "true")


def test_leaving_with_something_unsaved_asks_first_also_in_chinese(page, own):
    page.goto(f"/rules/{own['rule_id']}")
    page.locator("button[data-act=language]").first.click()
    expect(page.locator("h1")).to_have_text("规则")
    expect(page.locator(".sentence")).to_have_text("当 train/grad_norm 高于 40，即判为警告并通知。")
    field(page, "for_points").fill("3")
    expect(page.locator(".rule-form .badge.busy")).to_have_text("已修改，未保存")
    page.locator("[data-rule=grad-norm-spike] > a").click()
    expect(page).to_have_url(re.compile("/rules/grad-norm-spike$"))  # another rule: nothing is lost by that
    page.locator(".topbar a[href='/webhooks']").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("不保存就离开？")
    dialog.locator("[data-act=close]").click()
    page.locator(f"[data-rule='{own['rule_id']}'] > a").click()
    expect(field(page, "for_points")).to_have_value("3")
    page.go_back()
    expect(page).to_have_url(re.compile("/rules/"))
    page.locator(".topbar a[href='/webhooks']").first.click()
    dialog.locator("[data-act=yes]").click()
    expect(page).to_have_url(re.compile("/webhooks$"))
    page.locator("button[data-act=language]").first.click()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_of_rules_fits_and_a_phone_has_its_buttons_under_the_thumb(page, width):
    page.set_viewport_size({"width": width, "height": 844})
    page.goto("/rules")
    expect(page.locator(".rule-form")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    expect(page.locator(".rules-list")).to_be_visible(visible=width > 640)
    if width == 390:
        page.locator("select[data-pick]").select_option("grad-norm-spike")
        expect(page.locator(".rule-form h2")).to_have_text("Gradient norm far above its recent past")
        box = page.locator(".savebar [data-act=save]").bounding_box()
        assert box["y"] + box["height"] <= 844
        assert box["height"] >= 44

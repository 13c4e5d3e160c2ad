"""What the page orders arrives at the agent as it was given; the page says what came of it, and who was quicker."""

import re
import time

import pytest
from e2e_harness import poll
from playwright.sync_api import Page, expect
from spoken_agent import SpokenAgent

from trainer_agent.wire.commands import RollbackPayload
from trainer_agent.wire.messages import CheckpointSaved, ResumeChecked, SaveFailed
from trainer_agent.wire.vocabulary import CheckpointState, CommandKind, CommandState, DataMode, Phase, SegmentCause


@pytest.fixture
def agent(site, request) -> SpokenAgent:
    """A run with a sound checkpoint at step 20, which stands at step 30."""
    name = re.sub(r"\W+", "-", request.node.name)[:40]
    agent = SpokenAgent(site, f"spoken-{name}-{id(request) % 10_000}", attributes={"max_grad_norm": 0.0})
    agent.walk(20)
    agent.save("c20")
    agent.walk(30)
    return agent


def opened(page: Page, agent: SpokenAgent, act: str):
    """The dialog behind a button."""
    page.goto(f"/runs/{agent.run_id}")
    page.locator(f".actionbar > button[data-act={act}]:not([aria-disabled=true])").click()
    return page.get_by_role("dialog")


def post(site, agent: SpokenAgent, kind: str, **more: object) -> dict:
    """An order of somebody else."""
    body = {"kind": kind, "seen_segment": agent.segment, **more}
    key = f"{agent.run_id}-{kind}-{agent.seq}"
    return (
        site.api.post(f"/api/runs/{agent.run_id}/commands", json=body, headers={"Idempotency-Key": key}).raise_for_status().json()
    )


CULPRIT, OTHER = "bizdocs/83112", "bizdocs/7"
TAKEN = {step: ((step, 2 * step), (CULPRIT if step % 3 else OTHER, CULPRIT)) for step in range(18, 31)}


def test_an_order_to_exclude_arrives_at_the_agent_as_it_was_given(agent, page):
    agent.sampled(TAKEN)
    dialog = opened(page, agent, "rollback")
    expect(dialog.locator("input[name=clip]")).to_have_value("1.0")  # clipping is known to be off
    dialog.locator("input[name=data][value=exclude]").check()
    send = dialog.locator("button[data-act=send]")
    expect(send).to_have_attribute("aria-disabled", "true")
    expect(dialog.locator(".sum")).to_contain_text("Name a document or a sample")
    documents = dialog.locator("input[name=document]")
    expect(documents.first).to_have_value(CULPRIT)  # the most frequent in the steps that are given up
    expect(documents).to_have_count(2)
    expect(dialog.locator(".documents label").nth(1)).to_contain_text("4 samples · steps 21–30")
    documents.first.check()
    dialog.locator("#samples").fill("17, 40-42, x")
    expect(dialog.locator("#samples-hint")).to_contain_text("x")
    dialog.locator("#samples").fill("17, 40-42")
    dialog.locator(".seg label", has_text="×0.5").click()
    dialog.locator("#clip").fill("0.5")
    dialog.locator("#reason").fill("the bad batch")
    expect(dialog.locator(".sum")).to_have_text(
        re.compile(r"^Back to 20, 10 steps lost.*\. Without 1 document and 4 samples, clipped at 0\.5, learning rate ×0\.5\.$")
    )
    send.click()
    command = agent.await_command(CommandKind.ROLLBACK)
    assert command.reason == "the bad batch"
    assert command.rollback == RollbackPayload(
        checkpoint_id="c20",
        target_step=20,
        new_segment=2,
        data=DataMode.EXCLUDE,
        exclude_samples=(17, 40, 41, 42),
        exclude_documents=(CULPRIT,),
        max_grad_norm=0.5,
        learning_rate_factor=0.5,
    )
    expect(page.locator(".doing .say")).to_have_text("Rolling back")
    agent.report(command, CommandState.DELIVERED, CommandState.RUNNING)
    expect(page.locator(".doing li[aria-current=step]")).to_have_text("loading")
    attributes = {"data": "exclude", "excluded_samples": 26, "excluded_documents": CULPRIT}
    attributes |= {"max_grad_norm": 0.5, "learning_rate_factor": 0.5}
    agent.begin_segment(2, 20, SegmentCause.ROLLBACK, parent=1, command_id=command.command_id, attributes=attributes)
    agent.report(command, CommandState.SUCCEEDED)
    expect(page.locator("tr[data-segment='2']")).to_contain_text("Without 1 document, clipped at 0.5, learning rate ×0.5")
    expect(page.locator(".command[data-kind=rollback]")).to_contain_text("succeeded")


def test_the_dialog_of_a_run_that_trains_on_tells_of_the_same_steps_everywhere_and_keeps_what_is_ticked(agent, page):
    agent.sampled(TAKEN)
    dialog = opened(page, agent, "rollback")
    dialog.locator("input[name=data][value=exclude]").check()
    dialog.locator(f"input[name=document][value='{CULPRIT}']").check()
    agent.sampled({step: ((step,), ("late/1",)) for step in range(31, 37)})
    agent.walk(36)
    expect(dialog.locator("[data-key=data] legend")).to_contain_text("between 20 and 36")
    expect(dialog.locator("[data-key=documents] legend")).to_contain_text("steps 21 to 36")
    expect(dialog.locator(".sum")).to_contain_text("16 steps lost")
    expect(dialog.locator(".pick-plot")).to_contain_text("16 steps are lost")
    expect(dialog.locator("input[name=document][value='late/1']")).to_be_visible()
    expect(dialog.locator(f"input[name=document][value='{CULPRIT}']")).to_be_checked()
    expect(dialog.locator(".sum")).to_contain_text("Without 1 document")


def test_a_mode_that_the_run_cannot_do_is_grey_with_its_reason(site, page):
    because = "the loop draws its own batches"
    agent = SpokenAgent(site, "spoken-replays", data_modes=(DataMode.REPLAY,), data_modes_because=because)
    agent.walk(20)
    agent.save("c20")
    dialog = opened(page, agent, "rollback")
    for mode in ("skip", "exclude"):
        expect(dialog.locator(f"input[value={mode}]")).to_be_disabled()
        expect(dialog.locator(f".opt[data-key={mode}]")).to_contain_text(because)
    expect(dialog.locator("input[name=clip]")).to_have_value("")  # whether the script clips is not known, so nothing is proposed
    expect(dialog.locator(".unit-in")).not_to_contain_text("off")
    dialog.locator("footer button[data-act=close]").click()
    dialog = opened(page, agent, "set_max_grad_norm")
    expect(dialog.locator("#clip")).to_have_value("")
    expect(dialog.locator("button[data-act=send]")).to_have_attribute("aria-disabled", "true")


def test_a_stale_tab_is_refused_shows_the_run_as_it_is_and_lets_its_reader_decide_anew(site, agent, page, watched):
    watched.refusals = {412}
    old = page.request.get(f"/api/runs/{agent.run_id}").body()
    page.route(f"**/api/runs/{agent.run_id}", lambda route: route.fulfill(body=old, content_type="application/json"))
    dialog = opened(page, agent, "rollback")
    agent.begin_segment(2, 20, SegmentCause.RESTART, parent=1, checkpoint_id="c20")
    agent.walk(25)
    refusals = []
    page.on("response", lambda response: refusals.append(response.status) if response.status >= 400 else None)
    dialog.locator("button[data-act=send]").click()
    expect(dialog.locator("[data-key=moved]")).to_contain_text("segment 2, step 25")
    assert refusals == [412]
    assert site.run(agent.run_id)["commands"] == []
    expect(dialog.locator("button[data-act=send]")).to_have_attribute("aria-disabled", "true")
    page.unroute(f"**/api/runs/{agent.run_id}")
    agent.walk(26)
    dialog.locator("button[data-act=anew]:not([aria-disabled=true])").click()
    expect(dialog.locator(".sum")).to_contain_text("6 steps lost")
    dialog.locator("button[data-act=send]").click()
    assert agent.await_command(CommandKind.ROLLBACK).rollback.new_segment == 3
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_second_click_elsewhere_is_one_effect_and_says_who_was_quicker(site, agent, page, watched):
    watched.refusals = {409}
    before = page.request.get(f"/api/runs/{agent.run_id}").body()
    page.route(f"**/api/runs/{agent.run_id}", lambda route: route.fulfill(body=before, content_type="application/json"))
    page.goto(f"/runs/{agent.run_id}")
    expect(page.locator(".actionbar > button[data-act=save]")).to_be_visible()
    post(site, agent, "stop")
    page.locator(".actionbar > button[data-act=save]").click()
    expect(page.locator(".actionbar .said")).to_contain_text("Save now: a stop is queued")
    page.locator(".actionbar > button[data-act=stop]").click()
    dialog = page.get_by_role("dialog")
    dialog.locator("button[data-act=send]").click()
    expect(dialog.locator("[data-key=quicker]")).to_contain_text("tests was quicker: Stop,")
    expect(dialog.locator("button[data-act=send]")).to_have_count(0)
    assert [command["kind"] for command in site.run(agent.run_id)["commands"]] == ["stop"]


def test_setters_arrive_with_their_value_and_the_buttons_say_what_holds(agent, page):
    dialog = opened(page, agent, "set_learning_rate_factor")
    dialog.locator(".seg label", has_text="Other").click()
    dialog.locator("input[name=other]").fill("0.1")
    dialog.locator("button[data-act=send]").click()
    assert agent.obey(CommandKind.SET_LEARNING_RATE_FACTOR).value == 0.1
    button = page.locator(".actionbar > button[data-act=set_learning_rate_factor]")
    expect(button).to_have_text("Learning rate ×0.1")
    dialog = opened(page, agent, "set_max_grad_norm")
    expect(dialog.locator(".unit-in")).to_contain_text("now off")
    dialog.locator("#clip").fill("0")
    expect(dialog.locator("button[data-act=send]")).to_have_attribute("aria-disabled", "true")
    dialog.locator("#clip").fill("2")
    dialog.locator("button[data-act=send]").click()
    assert agent.obey(CommandKind.SET_MAX_GRAD_NORM).value == 2.0
    expect(page.locator(".actionbar > button[data-act=set_max_grad_norm]")).to_have_text("Clipping 2.0")


def test_a_pin_reaches_the_agent_and_can_be_taken_off(agent, page):
    def is_pinned():
        return next((v.pinned for v in agent.beat().verdicts if v.checkpoint_id == "c20"), None)

    page.goto(f"/runs/{agent.run_id}")
    row = page.locator("tr[data-id=c20]")
    row.locator("button[data-act=pin]").click()
    expect(row).to_contain_text("pinned")
    poll("the pin", is_pinned)
    row.locator("button[data-act=pin][aria-pressed=true]").click()
    expect(row).not_to_contain_text("pinned")
    poll("the end of the pin", lambda: not is_pinned())


def test_checkpoints_that_are_deleted_fold_away_behind_their_count(agent, page):
    agent.walk(40)
    agent.save("c40")
    agent.tell(CheckpointSaved("c20", agent.segment, 20, time.time(), CheckpointState.DELETED))
    page.goto(f"/runs/{agent.run_id}")
    expect(page.locator("tr[data-id=c40]")).to_be_visible()
    folded = page.locator("#checkpoints details.folded")
    expect(folded.locator("summary").first).to_have_text("1 deleted")
    expect(page.locator("tr[data-id=c20]")).to_be_hidden()
    folded.locator("summary").first.click()
    expect(page.locator("tr[data-id=c20]")).to_be_visible()
    agent.save("c41")
    expect(page.locator("tr[data-id=c41]")).to_be_visible()
    expect(page.locator("tr[data-id=c20]")).to_be_visible()  # opened, it stays open while the run goes on


def test_a_paused_run_says_since_when_and_by_whom_and_still_takes_orders(agent, page):
    page.goto(f"/runs/{agent.run_id}")
    page.locator(".actionbar > button[data-act=pause]").click()
    agent.obey(CommandKind.PAUSE)
    agent.phase = Phase.PAUSED
    agent.beat()
    expect(page.locator(".state-cell .say")).to_have_text("Paused")
    expect(page.locator(".state-cell .sub")).to_contain_text(re.compile(r"since \d\d:\d\d, by browser"))
    expect(page.locator(".actionbar > button[data-act=rollback]")).not_to_have_attribute("aria-disabled", "true")
    page.locator(".actionbar > button[data-act=resume]").click()
    agent.obey(CommandKind.RESUME)
    agent.phase = Phase.TRAINING
    agent.walk(31)
    expect(page.locator(".state-cell .say")).to_have_text("Running")
    expect(page.locator(".actionbar > button[data-act=pause]")).to_be_visible()


def test_what_went_into_a_step_and_where_a_document_was_seen_are_found(agent, page):
    agent.sampled(TAKEN)
    page.goto(f"/runs/{agent.run_id}")
    page.locator("#ledger-step").fill("24")
    page.locator("form[data-form=show] button").click()
    found = page.locator("#ledger .found")
    expect(found).to_contain_text("24, 48")
    expect(found).to_contain_text(f"{OTHER}, {CULPRIT}")
    page.locator("#ledger-what").fill(OTHER)
    page.locator("form[data-form=find] button").click()
    expect(found).to_contain_text("went into 5 steps")
    found.locator("button[data-id='27']").click()
    expect(found).to_contain_text("27, 54")
    page.locator("#ledger-what").fill("no such document")
    page.keyboard.press("Enter")
    expect(found).to_contain_text("went into no recorded step")


def test_a_resume_that_does_not_go_on_as_before_is_told_in_the_band_and_at_its_segment(agent, page):
    agent.begin_segment(2, 20, SegmentCause.RESTART, parent=1, checkpoint_id="c20")
    agent.walk(40)
    page.goto(f"/runs/{agent.run_id}")
    expect(page.locator(".health .say")).to_have_text("Healthy")
    agent.tell(ResumeChecked(2, 20, 20, time.time(), ("scaler not restored",)))
    expect(page.locator(".health .say")).to_have_text("Resumed otherwise")
    expect(page.locator(".health .sub")).to_contain_text("scaler not restored")
    expect(page.locator("tr[data-segment='2']")).to_contain_text("scaler not restored")


def test_a_failed_save_stands_until_a_later_one_succeeds(agent, page):
    page.goto(f"/runs/{agent.run_id}")
    agent.tell(SaveFailed(30, time.time(), "no space left: 1.1 GB free"))
    expect(page.locator(".save-failed")).to_contain_text("no space left: 1.1 GB free")
    agent.walk(35)
    agent.save("c35")
    expect(page.locator(".save-failed")).to_have_count(0)

"""A training, watched and steered from the page: real server, real browser, real HF Trainer."""

import math
import re
from datetime import datetime
from pathlib import Path

import pytest
import torch
from e2e_harness import poll
from playwright.sync_api import Page, expect
from safetensors.torch import load_file
from tiny_training import digest

from trainer_agent.checkpoints.inspection import stored_weights, weights_digest

LINE = "figure[data-series='{}'] .scatterlayer path.js-line"
DATA = """(series) => document.querySelector(`figure[data-series='${series}'] .plot-area`).data
    .map((trace) => ({ x: [...trace.x], y: [...trace.y], mode: trace.mode, axis: trace.yaxis ?? "y" }))"""


def seen(page: Page, series: str) -> list[dict]:
    """The traces that Plotly has drawn of a series."""
    page.wait_for_selector(LINE.format(series), state="attached")
    return page.evaluate(DATA, series)


def drawn_value(page: Page, series: str, step: int) -> float | None:
    for trace in page.evaluate(DATA, series):
        if "lines" in trace["mode"] and step in trace["x"]:
            return trace["y"][trace["x"].index(step)]
    return None


def stated(command: dict, state: str) -> float:
    """When the server says that the command came into this state."""
    return next(datetime.fromisoformat(change["at"]).timestamp() for change in command["history"] if change["state"] == state)


def command_of(site, run_id: str, kind: str) -> dict | None:
    return next((command for command in site.run(run_id)["commands"] if command["kind"] == kind), None)


def ended(site, run_id: str, kind: str) -> dict | None:
    command = command_of(site, run_id, kind)
    return command if command and command["state"] in {"succeeded", "failed", "rejected", "expired"} else None


def wait_for_sound(site, training, step: int) -> dict:
    def look():
        training.check_alive()
        return next((c for c in site.run(training.run_id)["checkpoints"] if c["step"] >= step and c["state"] == "sound"), None)

    poll("the run", lambda: [run for run in site.get("/api/runs")["runs"] if run["run_id"] == training.run_id], 120)
    return poll(f"a sound checkpoint of step {step}", look, 60)


def test_a_point_of_a_real_training_step_is_seen_on_the_chart(site, train, page):
    training = train("seen", steps=60, step_seconds=0.05)
    poll("the run", lambda: [run for run in site.get("/api/runs")["runs"] if run["run_id"] == training.run_id], 120)
    page.goto("/")
    page.get_by_role("link", name="seen", exact=True).first.click()
    expect(page).to_have_url(re.compile(f"/runs/{training.run_id}$"))
    assert training.wait() == 0, training.log.read_text()
    poll("the end", lambda: site.run(training.run_id)["state"] == "finished")
    stored = {point["step"]: point["value"] for point in site.points(training.run_id, "train/loss")}
    assert sorted(stored) == list(range(1, 61))
    seen(page, "train/loss")
    poll("the last step on the chart", lambda: drawn_value(page, "train/loss", 60) is not None, 15)
    assert drawn_value(page, "train/loss", 60) == pytest.approx(stored[60])
    assert page.locator(LINE.format("train/loss")).first.get_attribute("d").startswith("M")


def test_stop_clicked_in_the_page_stops_at_the_next_step_with_a_checkpoint(site, train, page):
    training = train("stopped", step_seconds=0.15, save_steps=1000)
    poll("the run", lambda: [run for run in site.get("/api/runs")["runs"] if run["run_id"] == training.run_id], 120)
    page.goto(f"/runs/{training.run_id}")
    poll("some steps", lambda: training.check_alive() or len(training.book("steps.jsonl")) > 5, 60)
    page.locator("button[data-act=stop]:not([aria-disabled=true])").click()
    expect(page.get_by_role("dialog")).to_contain_text("It can be resumed from that checkpoint.")
    page.get_by_role("dialog").locator("button[data-act=send]").click()
    command = poll("the stop", lambda: ended(site, training.run_id, "stop"))
    assert training.wait() == 0, training.log.read_text()
    assert [change["state"] for change in command["history"]] == ["queued", "delivered", "running", "succeeded"]
    steps = training.book("steps.jsonl")
    first_boundary = next((entry["step"] for entry in steps if entry["time"] >= stated(command, "delivered")), steps[-1]["step"])
    assert command["step"] <= first_boundary
    assert command["step"] == steps[-1]["step"]
    assert (training.folder / f"checkpoint-{command['step']}" / "model.safetensors").exists()
    expect(page.locator(".state-cell .say")).to_contain_text("Stopped")
    assert site.run(training.run_id)["state"] == "stopped"


def test_save_pause_and_resume_clicked_in_the_page_are_obeyed_by_a_real_training(site, train, page):
    training = train("steered", step_seconds=0.1, save_steps=1000)
    poll("the run", lambda: [run for run in site.get("/api/runs")["runs"] if run["run_id"] == training.run_id], 120)
    page.goto(f"/runs/{training.run_id}")
    poll("some steps", lambda: training.check_alive() or len(training.book("steps.jsonl")) > 5, 90)
    page.locator(".actionbar > button[data-act=save]:not([aria-disabled=true])").click()
    saved = poll("the save", lambda: ended(site, training.run_id, "save"), 60)
    assert saved["state"] == "succeeded", saved["outcome"] + training.log.read_text()
    assert (training.folder / f"checkpoint-{saved['step']}" / "model.safetensors").exists()
    wait_for_sound(site, training, saved["step"])
    expect(page.locator("section[data-key=checkpoints]")).to_contain_text("saved by hand")
    page.locator(".actionbar > button[data-act=pause]:not([aria-disabled=true])").click()
    paused = poll("the pause", lambda: ended(site, training.run_id, "pause"), 60)
    assert paused["state"] == "succeeded", paused["outcome"] + training.log.read_text()
    expect(page.locator(".state-cell .say")).to_contain_text("Paused")
    last, heard = training.book("steps.jsonl")[-1]["step"], site.run(training.run_id)["heard_at"]
    poll("a word of the paused run", lambda: training.check_alive() or site.run(training.run_id)["heard_at"] > heard)
    assert training.book("steps.jsonl")[-1]["step"] == last
    page.locator(".actionbar > button[data-act=resume]:not([aria-disabled=true])").click()
    poll("the next steps", lambda: training.check_alive() or training.book("steps.jsonl")[-1]["step"] > last + 3, 60)
    expect(page.locator(".state-cell .say")).to_contain_text("Running")


def test_rollback_clicked_in_the_page_brings_everything_back_and_training_goes_on(site, train, page):
    training = train("back", step_seconds=0.1, save_steps=20)
    page.goto("/")
    target = wait_for_sound(site, training, 20)
    poll("steps beyond it", lambda: training.check_alive() or training.book("steps.jsonl")[-1]["step"] > target["step"] + 5)
    page.goto(f"/runs/{training.run_id}")
    page.locator("button[data-act=rollback]:not([aria-disabled=true])").click()
    dialog = page.get_by_role("dialog")
    dialog.locator(f"input[name=checkpoint][value='{target['checkpoint_id']}']").check()
    dialog.locator("input[name=data][value=replay]").check()
    dialog.locator("button[data-act=send]").click()
    command = poll("the rollback", lambda: ended(site, training.run_id, "rollback"))
    assert command["state"] == "succeeded", command["outcome"] + training.log.read_text()
    folder = training.folder / f"checkpoint-{target['step']}"
    _check_states(training, folder, target["step"])
    _check_digest(site, training, folder, command)
    poll("new steps", lambda: training.check_alive() or site.run(training.run_id)["step"] > target["step"])
    detail = site.run(training.run_id)
    assert [(s["segment"], s["cause"], s["from_step"]) for s in detail["segments"]][-1] == (2, "rollback", target["step"])
    assert any(point["superseded"] for point in site.points(training.run_id, "train/loss"))
    expect(page.locator(".run-lists")).to_contain_text("Succeeded", ignore_case=True)
    poll("the superseded stretch on the chart", lambda: len(seen(page, "train/loss")) > 1)


def _check_states(training, folder: Path, step: int) -> None:
    """What the Trainer held when it went on, against the files of the checkpoint."""
    state = training.book("states.jsonl")[-1]
    files = {"optimizer": "optimizer.pt", "scheduler": "scheduler.pt", "scaler": "scaler.pt"}
    assert state["step"] == step
    weights = load_file(folder / "model.safetensors")
    weights.setdefault("lm_head.weight", weights.get("transformer.wte.weight"))  # tied: stored once
    assert state["model"] == digest(weights)
    for part, name in files.items():
        assert state[part] == digest(torch.load(folder / name, weights_only=True)), f"{part} did not come back"
    rng = torch.load(folder / "rng_state.pth", weights_only=False)
    assert state["rng"] == digest(rng["cpu"])


def _check_digest(site, training, folder: Path, command: dict) -> None:
    """The digest that the agent reported of the weights in the model, against the checkpoint's file."""
    events = [event for event in site.run(training.run_id)["events"] if event["type"] == "command.succeeded"]
    reported = [
        event["data"].get("weights_sha256") for event in events if event["data"].get("command_id") == command["command_id"]
    ]
    assert reported == [weights_digest(stored_weights(folder))]


def test_one_nan_loss_is_nan_in_the_api_a_mark_on_the_chart_and_an_alert_at_that_step(site, nan_training, page):
    training = nan_training
    points = site.points(training.run_id, "train/loss")
    assert [point["step"] for point in points if point["value"] == "NaN"] == [17]
    assert all(math.isfinite(point["value"]) for point in points if point["step"] != 17)
    (alert,) = [a for a in site.run(training.run_id)["alerts"] if a["rule_id"] == "loss-not-finite"]
    assert (alert["firing_step"], alert["severity"]) == (17, "critical")
    page.goto(f"/runs/{training.run_id}")
    traces = seen(page, "train/loss")
    marks = [trace for trace in traces if trace["mode"] == "markers" and trace["axis"] == "y2"]
    assert [mark["x"] for mark in marks] == [[17]]
    line = next(trace for trace in traces if "lines" in trace["mode"])
    assert line["y"][line["x"].index(17)] is None or math.isnan(line["y"][line["x"].index(17)])
    expect(page.locator("figure[data-series='train/loss']")).to_contain_text("NaN")

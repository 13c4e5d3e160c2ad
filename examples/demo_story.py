"""Tells in words what happens to the demo's runs, from what the server says about them."""

import time
from collections.abc import Iterator
from typing import Any

from demo_server import Api, DemoError
from rich.console import Console
from rich.markup import escape

PROGRESS_SECONDS = 5.0
ENDED = frozenset({"finished", "failed", "stopped"})
SERIES = (("loss", "train/loss"), ("grad norm", "train/grad_norm"), ("loss scale", "amp/loss_scale"))

Json = dict[str, Any]


class Narrator:
    """Prints each thing once. `runs` maps the word for a run to its id."""

    def __init__(self, api: Api, runs: dict[str, str], console: Console) -> None:
        self._api = api
        self._runs = runs
        self._console = console
        self._told: set[tuple[str, ...]] = set()
        self._began = time.monotonic()
        self._progress_at = 0.0

    def look(self) -> bool:
        """Prints what is new; true once every run has ended."""
        try:
            summaries = {run["run_id"]: run for run in self._api.get("/api/runs")["runs"]}
        except DemoError as error:
            self._once(("error", str(error)), f"the server did not answer: {escape(str(error))}")
            return False
        for name, run_id in self._runs.items():
            if run_id in summaries:
                detail = self._api.get(f"/api/runs/{run_id}")
                for key, words in (*_state(detail), *_alerts(detail), *_countdown(detail), *_commands(detail), *_rest(detail)):
                    self._once((name, *key), f"[bold]{name:7}[/] {words}")
        self._progress(summaries)
        return all(run_id in summaries and summaries[run_id]["state"] in ENDED for run_id in self._runs.values())

    def _once(self, key: tuple[str, ...], words: str) -> None:
        if key not in self._told:
            self._told.add(key)
            self._console.print(f"[dim]{time.monotonic() - self._began:4.0f} s[/] {words}", highlight=False)

    def _progress(self, summaries: dict[str, Json]) -> None:
        if time.monotonic() - self._progress_at < PROGRESS_SECONDS:
            return
        self._progress_at = time.monotonic()
        running = [(name, summaries.get(run_id)) for name, run_id in self._runs.items()]
        if all(run is None for _, run in running):
            self._once(("starting",), "both trainings load their libraries")
            return
        words = "; ".join(f"{name} {_where(run)}" for name, run in running)
        self._console.print(f"[dim]{time.monotonic() - self._began:4.0f} s {words}[/]", highlight=False)


def _where(run: Json | None) -> str:
    if run is None:
        return "is starting"
    if run["state"] in ENDED:
        return str(run["state"])
    latest = run["latest"]
    numbers = [f"{word} {_short(latest[series]['value'])}" for word, series in SERIES if series in latest]
    return f"at step {run['step'] or 0} of {run['total_steps']}, {', '.join(numbers)}" + (
        " (holding)" if run["phase"] == "holding" else ""
    )


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _state(detail: Json) -> Iterator[tuple[tuple[str, ...], str]]:
    reason = f" ({escape(detail['state_reason'])})" if detail["state_reason"] not in {"", detail["state"]} else ""
    yield ("state", detail["state"]), f"{detail['state']}{reason}"
    if detail["phase"] == "holding" and detail["state"] not in ENDED:
        yield ("holding", str(detail["segment"])), f"dead at step {detail['step']}: it waits at the step boundary for a command"


def _alerts(detail: Json) -> Iterator[tuple[tuple[str, ...], str]]:
    for alert in reversed(detail["alerts"]):
        if alert["firing_step"] is not None:
            colour = {"critical": "red", "warning": "yellow"}.get(alert["severity"], "dim")
            words = (
                f"[{colour}]{alert['severity']} alert[/] {alert['title']} at step {alert['firing_step']}: {escape(alert['text'])}"
            )
            yield ("alert", alert["alert_id"]), words
        if alert["closed_because"] == "rewound":
            yield ("rewound", alert["alert_id"]), f"alert {alert['title']} closed: the rollback left its steps behind"


def _countdown(detail: Json) -> Iterator[tuple[tuple[str, ...], str]]:
    if countdown := detail["countdown"]:
        seconds = f"{countdown['remaining_seconds']:.0f} s"
        words = f"{countdown['kind']} to step {countdown['target_step']} in {seconds}; the page can cancel it"
        yield ("countdown", countdown["countdown_id"]), f"[blue]countdown[/] by {countdown['rule_name']}: {words}"


def _commands(detail: Json) -> Iterator[tuple[tuple[str, ...], str]]:
    for command in reversed(detail["commands"]):
        for change in sorted(command["history"], key=lambda change: change["at"]):
            reason = f" ({escape(change['reason'])})" if change["reason"] else ""
            yield ("command", command["command_id"], change["state"]), f"[blue]{command['kind']}[/] {change['state']}{reason}"


def _rest(detail: Json) -> Iterator[tuple[tuple[str, ...], str]]:
    for checkpoint in sorted(detail["checkpoints"], key=lambda checkpoint: checkpoint["saved_at"]):
        if checkpoint["state"] not in {"writing", "complete"}:
            words = f"checkpoint of step {checkpoint['step']} is {checkpoint['state']}: {escape(checkpoint['reason'])}"
            yield ("checkpoint", checkpoint["checkpoint_id"], checkpoint["state"]), words
    for segment in detail["segments"]:
        if segment["cause"] != "start":
            yield ("segment", str(segment["segment"])), f"[blue]{segment['cause']}[/]: goes on from step {segment['from_step']}"

"""How the demo ended, read from what the server stored: nothing here knows a step number beforehand.

Pure: takes the API's answers as they are, gives the figures and the checks that make them a success.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from trainer_agent.wire.codec import number_from_json, number_to_json

LAST_STEPS = 20
"""The end of a run, and the time just before the culprit, are judged over so many steps."""
DEAD_STEPS = 3
"""So many last steps without an update are a death; fewer are what fp16 does now and then."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """What the server knows of one run: its detail, and every point of two series as the API gives them."""

    detail: Json
    loss: Sequence[Json]
    overflow: Sequence[Json]

    def losses(self, *, segment: int | None = None) -> dict[int, float]:
        """Step to loss: of one segment, or of the curve that counts, without what a rollback left behind."""
        return _by_step(self.loss, segment)

    def updates(self) -> dict[int, bool]:
        """Step to whether it changed the weights, on the curve that counts."""
        skipped = _by_step(self.overflow, None)
        return {step: math.isfinite(loss) and skipped.get(step, 0.0) == 0.0 for step, loss in self.losses().items()}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold, in words that are true either way."""

    name: str
    ok: bool
    words: str


def _by_step(points: Iterable[Mapping[str, Any]], segment: int | None) -> dict[int, float]:
    kept = (p for p in points if (not p["superseded"] if segment is None else p["segment"] == segment))
    return {p["step"]: number_from_json(p["value"]) for p in sorted(kept, key=lambda p: (p["step"], p["seq"]))}


def dead_step(told: Told) -> int | None:
    """The first step after which nothing more was learnt; None for a run that was learning at its end."""
    updates = told.updates()
    if not updates:
        return None
    last = max(updates)
    alive = max((step for step, updated in updates.items() if updated), default=min(updates) - 1)
    return alive + 1 if last - alive >= DEAD_STEPS else None


def first_alert(detail: Json, acting_rules: Iterable[str]) -> Json | None:
    """The first alert to fire of a rule that acts (of any rule that pages people, when none acts)."""
    acting = set(acting_rules)
    fired = [alert for alert in detail["alerts"] if alert["firing_step"] is not None]
    chosen = [alert for alert in fired if alert["rule_id"] in acting] if acting else [a for a in fired if a["severity"] != "info"]
    return min(chosen, key=lambda alert: (alert["segment"], alert["firing_step"]), default=None)


def rollback(detail: Json) -> tuple[int, int] | None:
    """(step the run was at, step it went back to) of the first rollback."""
    segments = {segment["segment"]: segment for segment in detail["segments"]}
    after = next((s for _, s in sorted(segments.items()) if s["cause"] == "rollback"), None)
    left = None if after is None else segments.get(after["parent"])
    if after is None or left is None or left["last_step"] is None:
        return None
    return left["last_step"], after["from_step"]


def mean_of_last(losses: Mapping[int, float], until: int | None = None) -> float:
    """Mean loss of the last steps, or of those up to `until`. NaN when one of them is, or when there are none."""
    steps = sorted(step for step in losses if until is None or step <= until)[-LAST_STEPS:]
    return fmean(losses[step] for step in steps) if steps else math.nan


def figures(guarded: Told, twin: Told, culprit_first_step: int, acting_rules: Iterable[str]) -> Json:
    """The demo's one line of JSON, but for the wall seconds and the webhook's ids."""
    alert = first_alert(guarded.detail, acting_rules)
    went = rollback(guarded.detail)
    return {
        "run_id": guarded.detail["run_id"],
        "steps": max(guarded.losses(), default=0),
        "first_alert": None if alert is None else {"rule": alert["rule_id"], "step": alert["firing_step"]},
        "dead_step_without_guard": dead_step(twin),
        "rolled_back_from": None if went is None else went[0],
        "rolled_back_to": None if went is None else went[1],
        "culprit_rank": None,  # nobody has looked for the culprit yet, and no constant stands in for it
        "culprit_first_step": culprit_first_step,
        "final_loss": _rounded(mean_of_last(guarded.losses())),
        "final_loss_unguarded": _rounded(mean_of_last(twin.losses())),
    }


def _rounded(value: float) -> float | str:
    return number_to_json(round(value, 4) if math.isfinite(value) else value)


def checks(result: Json, guarded: Told, twin: Told) -> list[Check]:
    """What must hold of the two runs for the demo to have shown what it says."""
    story = [_paged_in_time(result), _twin_died(result, twin), _rolled_back_early_enough(result)]
    return [*story, *_healthy(guarded, result), _nothing_lost(guarded, twin)]


def _nothing_lost(*told: Told) -> Check:
    lost = sum(each.detail["dropped_records"] for each in told)
    return Check("records", ok=lost == 0, words=f"{lost} records were lost on their way")


def _paged_in_time(result: Json) -> Check:
    alert, culprit, dead = result["first_alert"], result["culprit_first_step"], result["dead_step_without_guard"]
    if alert is None:
        return Check("first_alert", ok=False, words="no rule that acts fired")
    words = f"{alert['rule']} fired at step {alert['step']}; the bad document began at {culprit}, the twin was dead at {dead}"
    return Check("first_alert", ok=dead is not None and culprit <= alert["step"] < dead, words=words)


def _twin_died(result: Json, twin: Told) -> Check:
    dead = result["dead_step_without_guard"]
    last = max(twin.losses(), default=0)
    words = f"the twin was dead at step {dead} of {last}" if dead is not None else f"the twin still learns at step {last}"
    return Check("twin_died", ok=dead is not None, words=words)


def _rolled_back_early_enough(result: Json) -> Check:
    back, culprit = result["rolled_back_to"], result["culprit_first_step"]
    if back is None:
        return Check("rolled_back", ok=False, words="the run was not rolled back")
    words = f"back from step {result['rolled_back_from']} to {back}; the bad document began at {culprit}"
    return Check("rolled_back", ok=back < culprit, words=words)


def _healthy(guarded: Told, result: Json) -> list[Check]:
    detail, losses, updates = guarded.detail, guarded.losses(), guarded.updates()
    before = mean_of_last(losses, result["culprit_first_step"] - 1)
    end = mean_of_last(losses)
    skipped = sum(not updates[step] for step in sorted(updates)[-LAST_STEPS:])
    open_alerts = [a["title"] for a in detail["alerts"] if a["state"] == "firing" and a["severity"] != "info"]
    return [
        Check("finished", ok=detail["state"] == "finished", words=f"the guarded run's state is {detail['state']}"),
        Check("steps", ok=max(losses, default=0) == detail["total_steps"], words=f"it ended at step {max(losses, default=0)}"),
        Check("updates", ok=skipped < DEAD_STEPS, words=f"{skipped} of its last {LAST_STEPS} steps were skipped"),
        Check("loss", ok=end < before, words=f"mean loss {before:.2f} before the document, {end:.2f} at the end"),
        Check("alerts", ok=not open_alerts, words=f"firing at the end: {', '.join(open_alerts) or 'nothing'}"),
    ]

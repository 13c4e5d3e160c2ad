"""One condition a file, each a pure reducer over the points of one series; here is the list of them.

threshold           a finite value past a fixed limit
nonfinite           NaN or infinite
consecutive_rise    rises several logged points in a row
spike               far above the recent past, by median and MAD
skip_streak         optimizer steps skipped in a row
"""

from collections.abc import Callable, Mapping
from typing import Any

from trainer_agent.wire.codec import from_json

from . import absence, consecutive_rise, nonfinite, skip_streak, spike, threshold
from .base import Detector, DetectorKind, Setting, Settings, State, Verdict

__all__ = ["DETECTORS", "Detector", "DetectorKind", "Setting", "Settings", "State", "Verdict", "with_defaults"]


def _whole(kind: type) -> Callable[[Mapping[str, Any]], State]:
    return lambda parsed: from_json(kind, parsed)


DETECTORS: Mapping[DetectorKind, Detector] = {
    DetectorKind.THRESHOLD: Detector(
        threshold.ThresholdState, threshold.step, threshold.SETTINGS, _whole(threshold.ThresholdState)
    ),
    DetectorKind.NONFINITE: Detector(
        nonfinite.NonfiniteState, nonfinite.step, nonfinite.SETTINGS, _whole(nonfinite.NonfiniteState)
    ),
    DetectorKind.CONSECUTIVE_RISE: Detector(
        consecutive_rise.RiseState, consecutive_rise.step, consecutive_rise.SETTINGS, _whole(consecutive_rise.RiseState)
    ),
    DetectorKind.SPIKE: Detector(
        spike.SpikeState,
        spike.step,
        spike.SETTINGS,
        lambda parsed: spike.restore(tuple(map(float, parsed["values"]))),
        lambda state: {"values": list(state.values)},
    ),
    DetectorKind.SKIP_STREAK: Detector(
        skip_streak.StreakState, skip_streak.step, skip_streak.SETTINGS, _whole(skip_streak.StreakState)
    ),
    **{
        kind: Detector(absence.AbsenceState, absence.step, settings, _whole(absence.AbsenceState), meaning=meaning)
        for kind, settings, meaning in (
            (DetectorKind.LOST, absence.LOST_SETTINGS, "Nothing is heard of the run."),
            (DetectorKind.STALLED, absence.STALLED_SETTINGS, "The run is heard of and makes no new step."),
            (DetectorKind.ENDED, absence.ENDED_SETTINGS, "The training says that it is over."),
        )
    },
}


def with_defaults(kind: DetectorKind, settings: Settings) -> dict[str, float]:
    """The settings a rule gives, filled up with the detector's own."""
    defaults = {name: setting.default for name, setting in DETECTORS[kind].settings.items()}
    return {name: value for name, value in defaults.items() if value is not None} | dict(settings)

"""One condition a file, each a pure reducer over the points of one series; here is the list of them.

threshold           a finite value past a fixed limit
nonfinite           NaN or infinite
consecutive_rise    rises several logged points in a row
spike               far above the recent past, by median and MAD
ramp                climbs stretch by stretch
divergence          a level that has left its best and does not come back
plateau             no learning since the start
frozen              stands still where much of what was learnt is lost
zero                a loss of exactly zero that cannot be real
skip_streak         optimizer steps skipped in a row
skip_share          optimizer steps skipped too often
loss_scale          a loss scale far under its running maximum, or at 1
discontinuity       after a resume the curve is not where it was
slowdown            steps slower, or throughput lower, than their own past for a while
creep               memory that grows and grows
straggler           one rank slower than the others
lost                no word by the deadline: see `absence`, of which no point is judged
stalled             heard of, and no new step
ended               the training said that it is over
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from trainer_agent.wire.codec import from_json, to_json

from . import (
    absence,
    consecutive_rise,
    creep,
    discontinuity,
    divergence,
    frozen,
    loss_scale,
    nonfinite,
    plateau,
    ramp,
    skip_share,
    skip_streak,
    slowdown,
    spike,
    straggler,
    threshold,
    zero,
)
from .base import Detector, DetectorKind, Setting, Settings, State, Verdict

__all__ = ["DETECTORS", "Detector", "DetectorKind", "Setting", "Settings", "State", "Verdict", "with_defaults"]


def _whole(kind: type) -> Callable[[Mapping[str, Any]], State]:
    return lambda parsed: from_json(kind, parsed)


def _with_windows(detector: Detector, kind: type, **ranked: str) -> Detector:
    """The detector whose windows are stored once: `ranked` names the fields in rising order, each with the one it comes of."""

    def stored(state: State) -> dict[str, Any]:
        return {name: value for name, value in to_json(state).items() if name not in ranked}

    def restore(parsed: Mapping[str, Any]) -> State:
        return from_json(kind, {**parsed, **{name: sorted(parsed[source]) for name, source in ranked.items()}})

    return replace(detector, restore=restore, stored=stored)


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
    DetectorKind.SPIKE: _with_windows(
        Detector(spike.SpikeState, spike.step, spike.SETTINGS, _whole(spike.SpikeState)), spike.SpikeState, ranked="values"
    ),
    DetectorKind.RAMP: Detector(ramp.RampState, ramp.step, ramp.SETTINGS, _whole(ramp.RampState)),
    DetectorKind.DIVERGENCE: _with_windows(
        Detector(divergence.DivergenceState, divergence.step, divergence.SETTINGS, _whole(divergence.DivergenceState)),
        divergence.DivergenceState,
        ranked_moves="moves",
    ),
    DetectorKind.PLATEAU: _with_windows(
        Detector(
            plateau.PlateauState,
            plateau.step,
            plateau.SETTINGS,
            _whole(plateau.PlateauState),
            companions=plateau.COMPANIONS,
            observe=plateau.observe,
        ),
        plateau.PlateauState,
        ranked_norms="norms",
    ),
    DetectorKind.FROZEN: Detector(frozen.FrozenState, frozen.step, frozen.SETTINGS, _whole(frozen.FrozenState)),
    DetectorKind.ZERO: Detector(
        zero.ZeroState, zero.step, zero.SETTINGS, _whole(zero.ZeroState), companions=zero.COMPANIONS, observe=zero.observe
    ),
    DetectorKind.SKIP_STREAK: Detector(
        skip_streak.StreakState,
        skip_streak.step,
        skip_streak.SETTINGS,
        _whole(skip_streak.StreakState),
        begins=skip_streak.begins,
    ),
    DetectorKind.SKIP_SHARE: Detector(
        skip_share.ShareState,
        skip_share.step,
        skip_share.SETTINGS,
        _whole(skip_share.ShareState),
        begins=skip_share.begins,
    ),
    DetectorKind.LOSS_SCALE: Detector(
        loss_scale.ScaleState,
        loss_scale.step,
        loss_scale.SETTINGS,
        _whole(loss_scale.ScaleState),
        begins=loss_scale.begins,
    ),
    DetectorKind.DISCONTINUITY: Detector(
        discontinuity.BreakState,
        discontinuity.step,
        discontinuity.SETTINGS,
        discontinuity.restore,
        discontinuity.stored,
        begins=discontinuity.begins,
    ),
    DetectorKind.SLOWDOWN: Detector(slowdown.SlowState, slowdown.step, slowdown.SETTINGS, _whole(slowdown.SlowState)),
    DetectorKind.CREEP: Detector(creep.CreepState, creep.step, creep.SETTINGS, _whole(creep.CreepState)),
    DetectorKind.STRAGGLER: Detector(
        straggler.StragglerState,
        straggler.step,
        straggler.SETTINGS,
        straggler.restore,
        straggler.stored,
        across_ranks=True,
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

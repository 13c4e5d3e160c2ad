"""The default rules about what stands beside the loss: the loss scaler, resumes, and how the training runs.

What says that a machine is slow is information: nobody has measured how often healthy runs are slowed, and it speaks against no
checkpoint (`OF_THE_MACHINE`). None of these fires on the healthy runs of the corpus that logged a loss scale or a learning rate.
"""

from typing import Final

from trainer_agent.wire import series
from trainer_agent.wire.vocabulary import Severity

from .detectors.base import DetectorKind
from .rules import AlertRule

SCALER_RULES: Final = (
    AlertRule(
        rule_id="steps-skipped",
        name="Optimizer steps skipped in a row",
        title="Steps are skipped",
        series=series.OVERFLOW,
        detector=DetectorKind.SKIP_STREAK,
        settings={"streak": 4},
        severity=Severity.CRITICAL,
        reason=(
            "A run dead in fp16 may keep finite weights and even a finite loss: every step is skipped and the loss scale "
            "slides to 0. One skip in about 2,000 steps is normal and must stay quiet; four in a row came within 3 steps "
            "of death in 4 of 4 measured runs and never in healthy ones. In the first 100 steps the scaler searches, and "
            "16 in a row are allowed; so they are at the very start of a resumed segment, whose scaler was not restored."
        ),
    ),
    AlertRule(
        rule_id="steps-skipped-often",
        name="Optimizer steps skipped too often",
        title="Many steps are skipped",
        series=series.OVERFLOW,
        detector=DetectorKind.SKIP_SHARE,
        severity=Severity.WARNING,
        reason=(
            "A healthy scaler skips about one step in 2,000, since it doubles its scale that seldom. Three in 50 points, or 8 "
            "in 200, say that gradients overflow at a scale that was fit before: in the recorded death it came 13 steps before "
            "the first NaN, four in a row 3 steps after it. Fewer than 3 in 50 is normal work, and a scaler that grows every "
            "100 steps skips one in 100 and stays quiet. The first 100 steps do not count."
        ),
    ),
    AlertRule(
        rule_id="loss-scale-collapse",
        name="Loss scale collapses",
        title="Loss scale collapses",
        series=series.LOSS_SCALE,
        detector=DetectorKind.LOSS_SCALE,
        severity=Severity.WARNING,
        reason=(
            "Under 2^-8 of its running maximum eight overflows have halved it with no calm between, and at 1 it lifts nothing "
            "out of fp16's underflow any more: published runs whose scale came to 1 trained on without an update for hours, "
            "and the place to go back to was where the scale was still high. The search of the first 100 steps does not "
            "count (one public run searched from 128 down to 8), nor a scale that somebody has fixed, however small."
        ),
    ),
)
"""The loss scaler, the gravest first."""

RESUME_RULES: Final = (
    AlertRule(
        rule_id="loss-breaks-after-resume",
        name="Loss is not where it was after a restart",
        title="Loss broke at a restart",
        series=series.LOSS,
        detector=DetectorKind.DISCONTINUITY,
        for_points=3,
        severity=Severity.INFO,
        reason=(
            "Optimizer state, data order or accumulation lost in a restart show as a level over 20 % or 4 robust deviations off "
            "in the first 20 steps; at 875 places of healthy public runs, taken for a restart, it fired at 4. It is information "
            "because the agent's own check of a resume, which is sharper, tells people already. Raise it where runs are "
            "watched without a ledger."
        ),
    ),
    AlertRule(
        rule_id="rate-breaks-after-resume",
        name="Learning rate is not where it was after a restart",
        title="Learning rate broke at a restart",
        series=series.LEARNING_RATE,
        detector=DetectorKind.DISCONTINUITY,
        settings={"points": 5, "least": 0.1},
        severity=Severity.INFO,
        reason=(
            "A schedule that begins again, or is held back by steps that a fresh scaler skips, is the commonest fault of a "
            "resume. Looked at for 5 points only, because a schedule may step down by itself later, and from 10 % on: so it "
            "fired at 4 of 419 places of healthy public schedules taken for a restart. Information: many people lower the "
            "rate on purpose when they restart."
        ),
    ),
)
"""What a restart has not brought back."""

MACHINE_RULES: Final = (
    AlertRule(
        rule_id="gpu-memory-creeps",
        name="GPU memory grows on and on",
        title="GPU memory creeps",
        series=series.GPU_MEMORY_BYTES,
        detector=DetectorKind.CREEP,
        severity=Severity.WARNING,
        reason=(
            "A leak ends a run by out of memory, often after hours. Over about 1,500 points, after the first 500, each sixth "
            "lies above the one before and the growth is over 20 %: an allocator that warms up, comes and goes, or jumps now "
            "and then does not do that. Set the capacity of the GPU to be told of slower leaks too."
        ),
    ),
    AlertRule(
        rule_id="host-memory-creeps",
        name="Host memory grows on and on",
        title="Host memory creeps",
        series=series.HOST_MEMORY_BYTES,
        detector=DetectorKind.CREEP,
        settings={"growth": 0.5},
        severity=Severity.INFO,
        reason=(
            "As for the GPU, with half as much again as the limit. Information, because data mapped from files counts as memory "
            "of the process while it is read for the first time: the first epoch of many healthy runs looks like a leak."
        ),
    ),
    AlertRule(
        rule_id="throughput-falls",
        name="Throughput under two thirds of its past",
        title="Throughput fell",
        series=series.TOKENS_PER_SECOND,
        detector=DetectorKind.SLOWDOWN,
        severity=Severity.INFO,
        reason=(
            "A GPU that throttles, a data loader that starves, a neighbour on the machine: 50 points in a row, by the medians "
            "of tens, under two thirds of the median of the last 320. Evaluations and checkpoints are single points and "
            "change no median. The factor is ours."
        ),
    ),
    AlertRule(
        rule_id="steps-slow-down",
        name="Steps take twice as long as before",
        title="Steps slowed down",
        series=series.STEP_SECONDS,
        detector=DetectorKind.SLOWDOWN,
        settings={"times": 2.0},
        severity=Severity.INFO,
        reason=(
            "For runs without tokens to count. Twice, because longer sequences make longer steps in healthy runs. Otherwise as "
            "for the throughput."
        ),
    ),
    AlertRule(
        rule_id="rank-straggles",
        name="One rank slower than the others",
        title="A rank straggles",
        series=series.OWN_SECONDS,
        detector=DetectorKind.STRAGGLER,
        keep_firing_for_points=3,
        severity=Severity.INFO,
        reason=(
            "All ranks wait for the slowest, so a step's duration does not show it: this compares what each rank does by itself "
            "(its data and forward passes). Half as long again as the median of the others, in three rounds of 20 steps in a "
            "row. The factor is ours; saves and logs of rank 0 are single steps and change no median."
        ),
    ),
)
"""How the training runs."""

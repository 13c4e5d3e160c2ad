"""What the alerts of signals say, in both languages: series, value, limit, and what it was measured against."""

import math

import pytest

from server.domain.detectors import DetectorKind
from server.domain.wording import Facts, sentence
from trainer_agent.wire import series

K, GIB = DetectorKind, 2.0**30
LEFT = "used up in 900 points, since step 7"
CASES = [
    (
        K.LOSS_SCALE,
        Facts(series.LOSS_SCALE, 128.0, 256.0, {"maximum": 65536.0}, 110),
        "amp/loss_scale has fallen from 65536 to 128, limit 256, since step 110",
        "amp/loss_scale 已从 65536 降到 128，下限 256，自第 110 步起",
    ),
    (
        K.SKIP_SHARE,
        Facts(series.OVERFLOW, 1.0, 3.0, {"skips": 3.0, "window": 50.0, "share": 0.015}, 5006),
        "3 of the last 50 optimizer steps were skipped by the loss scaler (amp/overflow), 1.5 % in the long run, since step 5006",
        "最近 50 个优化步中有 3 个被损失缩放器跳过（amp/overflow），较长时间内占 1.5 %，自第 5006 步起",
    ),
    (
        K.DISCONTINUITY,
        Facts(series.LOSS, 3.1, 2.1, {"expected": 2.0, "level": 3.0, "points": 5.0, "deviation": 0.02}, 63),
        "train/loss is about 3 after the run was taken up again, where 2 was expected, limit 2.1, since step 63",
        "恢复训练后 train/loss 约为 3，按之前的走势应为 2，限值 2.1，自第 63 步起",
    ),
    (
        K.SLOWDOWN,
        Facts(series.STEP_SECONDS, 0.5, 0.3, {"level": 0.5, "usual": 0.2, "points": 60.0}, 350),
        "perf/step_seconds has been about 0.5 s for 60 points, against 0.2 s before, limit 0.3 s, since step 350",
        "perf/step_seconds 已连续 60 个点约为 0.5 s，之前为 0.2 s，限值 0.3 s，自第 350 步起",
    ),
    (
        K.CREEP,
        Facts(series.HOST_MEMORY_BYTES, 9e9, 1e10, {"start": 8 * GIB, "level": 10 * GIB, "points": 1536.0, "left": 900.0}, 7),
        f"{series.HOST_MEMORY_BYTES} keeps growing: from 8 GiB to 10 GiB within 1536 points; at this pace it is {LEFT}",
        "system/host_memory_bytes 持续增长：在 1536 个点内从 8 GiB 增至 10 GiB；照此速度再过 900 个点就会用尽，自第 7 步起",
    ),
    (
        K.STRAGGLER,
        Facts(series.OWN_SECONDS, 0.25, 0.15, {"rank": 2.0, "others": 0.1, "ranks": 4.0, "step": 259.0}, 259, -1),
        "rank 2 takes 0.25 s by itself (perf/own_seconds), against 0.1 s on the other ranks, limit 0.15 s, since step 259",
        "进程 2 自身用时 0.25 s（perf/own_seconds），其他进程为 0.1 s，上限 0.15 s，自第 259 步起",
    ),
]


@pytest.mark.parametrize(("kind", "facts", "english", "chinese"), CASES, ids=[case[0] for case in CASES])
def test_a_signal_says_what_it_was_measured_against(kind, facts, english, chinese):
    assert (sentence(kind, facts, "en"), sentence(kind, facts, "zh")) == (english, chinese)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0])
@pytest.mark.parametrize("kind", [case[0] for case in CASES])
def test_a_signal_can_be_said_of_any_number_and_without_its_figures(kind, value):
    for language in ("en", "zh"):
        assert sentence(kind, Facts("train/loss", value, value, dict.fromkeys(("start", "level", "left"), value), 1), language)
        assert sentence(kind, Facts("train/loss", value, None, {}, 1), language)

"""Two ranks under torchrun, several trainings one after the other in the same processes; the last one is killed."""

import json
import statistics
import time
import uuid
from collections.abc import Iterator

import pytest
from ranks_kit import Site, Torchrun, poll, start

from trainer_agent.wire.vocabulary import CommandKind

RUN = uuid.uuid4().hex[:8]
SLEEPY = {"steps": 3000, "step_seconds": 0.03, "save_steps": 5}
TRAININGS = (
    {"name": f"nan-{RUN}", "steps": 40, "save_steps": 3, "nan": [1, 8]},
    {"name": f"bare-{RUN}", "bare": True, "policy": {"agree_every": 4}, **SLEEPY, "save_strategy": "epoch", "rows": 24},
    {"name": f"skip-{RUN}", **SLEEPY},
    {"name": f"folders-{RUN}", "apart": True, **SLEEPY},
    {"name": f"slow-{RUN}", "steps": 130, "slow": [1, 0.05], "save_strategy": "no"},
    {"name": f"late-{RUN}", **SLEEPY, "steps": 60, "limit_seconds": 1.0, "late": [1, 6, 3.0]},
    {"name": f"kill-{RUN}", **SLEEPY, "kill": [1, 12]},
)


@pytest.fixture(scope="module")
def pair(ranks_site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Torchrun]:
    running = start(ranks_site, tmp_path_factory.mktemp("pair"), 2, *TRAININGS, fork=False)
    yield running
    running.end()


def check_same_steps(pair: Torchrun, name: str) -> list[int]:
    """The steps of all ranks, which are the same."""
    poll(f"{name} is over on both ranks", lambda: all(pair.books(name, "done")))
    steps = pair.steps(name)
    assert steps[0] == steps[1]
    return steps[0]


def sound(site: Site, name: str, step: int) -> dict:
    return poll(
        "a sound checkpoint",
        lambda: [each for each in site.run(name)["checkpoints"] if each["state"] == "sound" and each["step"] >= step],
    )[-1]


def test_a_nan_on_one_rank_stops_all_ranks_at_that_step_and_names_it(ranks_site: Site, pair: Torchrun):
    name = f"nan-{RUN}"
    assert check_same_steps(pair, name) == list(range(1, 9))
    run = ranks_site.ended(name)
    assert run["state"] == "stopped"
    assert "on rank 1: the loss is not finite at step 8" in run["state_reason"]
    assert [each["rank"] for each in ranks_site.points(name, "train/loss") if each["value"] == "NaN"] == [1]
    assert set(run["capabilities"]) == set(CommandKind)


def test_the_bare_callback_stops_on_all_ranks_at_one_step_that_is_agreed_on(ranks_site: Site, pair: Torchrun):
    name = f"bare-{RUN}"
    pair.reach(name, 14)
    assert sound(ranks_site, name, 6)["step"] % 6 == 0, "saved at the end of an epoch, where all ranks are asked too"
    assert set(ranks_site.run(name)["capabilities"]) == set(CommandKind) - {CommandKind.ROLLBACK}
    done = ranks_site.outcome(name, ranks_site.command(name, "stop"))
    assert done["state"] == "succeeded", done
    assert check_same_steps(pair, name)[-1] == done["step"]
    assert done["step"] % 4 == 0, "they agree at every fourth step"


def test_a_rollback_that_skips_passes_over_the_same_rows_on_every_rank(ranks_site: Site, pair: Torchrun):
    name = f"skip-{RUN}"
    pair.reach(name, 12)
    target = sound(ranks_site, name, 5)
    done = ranks_site.outcome(name, ranks_site.command(name, "rollback", checkpoint_id=target["checkpoint_id"], data="skip"))
    assert done["state"] == "succeeded", done
    pair.reach(name, target["step"] + 4, times=2)
    ranks_site.command(name, "stop")
    steps = check_same_steps(pair, name)
    turn = next(i for i in range(1, len(steps)) if steps[i] <= steps[i - 1])
    books = pair.books(name)
    left = {row for book in books for each in book[:turn] if each["step"] > target["step"] for row in each["rows"]}
    after = {row for book in books for each in book[turn:] for row in each["rows"]}
    assert left
    assert after
    assert not left & after, "rows of the window were trained on again"


def test_a_rollback_is_refused_where_a_rank_does_not_see_the_checkpoint(ranks_site: Site, pair: Torchrun):
    name = f"folders-{RUN}"
    pair.reach(name, 12)
    checkpoint = sound(ranks_site, name, 10)
    first = next(each for each in ranks_site.run(name)["checkpoints"] if each["step"] == 5)
    assert (first["state"], first["reason"]) == ("corrupt", "rng_state_1.pth is missing")
    done = ranks_site.outcome(
        name, ranks_site.command(name, "rollback", checkpoint_id=checkpoint["checkpoint_id"], data="replay")
    )
    assert done["state"] == "failed", done
    assert "rank 1: " in done["outcome"], done
    assert "all ranks must share the output directory" in done["outcome"]
    stopped = ranks_site.outcome(name, ranks_site.command(name, "stop"))
    assert stopped["state"] == "succeeded"
    steps = check_same_steps(pair, name)
    assert steps == list(range(1, stopped["step"] + 1)), "the refused rollback left the training as it was"


def test_a_slow_rank_is_named_though_all_ranks_take_as_long_over_a_step(ranks_site: Site, pair: Torchrun):
    name = f"slow-{RUN}"
    check_same_steps(pair, name)
    ranks_site.ended(name)
    alerts = ranks_site.api.get("/api/alerts").raise_for_status().json()["alerts"]
    (found,) = [each for each in alerts if (each["run_id"], each["rule_id"]) == (name, "rank-straggles")]
    assert (found["evidence"]["rank"], found["evidence"]["ranks"], found["severity"]) == (1, 2, "info")
    assert found["value"] >= 0.05
    steps = [statistics.median(p["value"] for p in ranks_site.points(name, "perf/step_seconds", rank=rank)) for rank in (0, 1)]
    assert max(steps) < 1.3 * min(steps), "the whole step tells nothing of it"


def test_a_rank_that_comes_too_late_leaves_the_training_watched_and_no_longer_told(ranks_site: Site, pair: Torchrun):
    name = f"late-{RUN}"
    pair.reach(name, 9)
    run = poll("the page is told", lambda: (run := ranks_site.run(name))["capabilities"] == [] and run)
    assert "cannot agree any more" in run["incapable_because"]
    assert check_same_steps(pair, name) == list(range(1, 61)), "the training goes on to its end"
    assert ranks_site.ended(name)["state"] == "finished"
    waited = [book[6]["time"] - book[5]["time"] for book in pair.books(name)]
    assert max(waited) < 3.0 + 1.0 + 10.0, "nobody waits for longer than the late rank and the limit"


def test_a_killed_rank_ends_the_training_as_without_us_and_is_named(ranks_site: Site, pair: Torchrun, figure):
    name = f"kill-{RUN}"
    pair.reach(name, 11)
    assert pair.wait() != 0, "torchrun tells the failure as it does without us"
    (killed,) = poll("the kill", lambda: pair.book(name, "killed", 1))
    figure("F47", "seconds from the kill of a rank to torchrun's end", time.time() - killed["time"], at_most=60, unit="s")
    assert pair.steps(name) == [list(range(1, 12))] * 2
    run = ranks_site.run(name)
    ends = [each for each in run["events"] if each["type"] in {"run.failed", "run.unable"}]
    for each in ends:
        assert "rank 1 is gone" in json.dumps(each["data"]), each
    assert ends or run["state"] == "running", (
        "no word before torchrun's SIGTERM, so it is called lost a minute after the last one"
    )

"""Four ranks: rolled back and stopped together."""

import math
import uuid
from pathlib import Path

from ranks_kit import Site


def test_four_ranks_roll_back_and_stop_at_one_step_and_stay_equal(ranks_site: Site, torchrun):
    name = f"four-{uuid.uuid4().hex[:8]}"
    running = torchrun(4, {"name": name, "steps": 2000, "save_steps": 5, "step_seconds": 0.05})
    running.reach(name, 12)
    sound = [each for each in ranks_site.run(name)["checkpoints"] if each["state"] == "sound"]
    assert sound, ranks_site.run(name)["checkpoints"]
    target = sound[-1]
    back = ranks_site.command(name, "rollback", checkpoint_id=target["checkpoint_id"], data="replay")
    done = ranks_site.outcome(name, back)
    assert done["state"] == "succeeded", done
    left = done["history"]
    stop = ranks_site.command(name, "stop")
    stopped = ranks_site.outcome(name, stop)
    assert stopped["state"] == "succeeded", stopped
    assert running.wait() == 0, running.log.read_text()[-4000:]

    steps = running.steps(name)
    assert steps[1:] == steps[:1] * 3, "ranks made different steps"
    (turn,) = [i for i in range(1, len(steps[0])) if steps[0][i] <= steps[0][i - 1]]
    assert steps[0][turn] == target["step"] + 1
    assert steps[0][-1] == stopped["step"]
    weights = [[(each["step"], each["digest"]) for each in book] for book in running.books(name, "weights")]
    assert weights[1:] == weights[:1] * 3, "ranks hold different weights"
    for book in running.books(name):
        first = {each["step"]: each["loss"] for each in book[:turn]}
        again = {each["step"]: each["loss"] for each in book[turn:] if each["step"] in first}
        assert again == {step: first[step] for step in again}, "a replayed loss differs"
        assert len(again) >= 1
    _check_points(ranks_site, name, running)
    saved = Path(running.folder / name / "out" / f"checkpoint-{stopped['step']}")
    assert {f"rng_state_{rank}.pth" for rank in range(4)} <= {path.name for path in saved.iterdir()}
    run = ranks_site.ended(name)
    assert (run["state"], run["world_size"]) == ("stopped", 4)
    assert run["segment"] == 2, left
    last = next(each for each in run["checkpoints"] if each["step"] == stopped["step"])
    assert last["state"] == "sound", last


def _check_points(site: Site, name: str, running) -> None:
    """Every rank's own losses are there, under its own number."""
    points = site.points(name, "train/loss", limit=100_000)
    for rank, book in enumerate(running.books(name)):
        told = {(each["segment"], each["step"]): float(each["value"]) for each in points if each["rank"] == rank}
        newest = {each["step"]: each["loss"] for each in book}
        assert set(newest) == {step for _, step in told}
        for step, loss in newest.items():
            value = told[max(key for key in told if key[1] == step)]
            assert math.isclose(value, loss, rel_tol=1e-6), (rank, step)

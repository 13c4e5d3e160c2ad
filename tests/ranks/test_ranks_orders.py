"""F47: ranks that are told at random moments do everything at one common step, and nobody hangs."""

import json
import os
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import forked
import pytest
from ranks_kit import environment

LONG = bool(os.environ.get("LOSSGUARD_SOAK"))
SEED = os.environ.get("LOSSGUARD_SEED") or str(random.SystemRandom().randrange(10**6))
HUNG_SECONDS = 30.0
KINDS = ({"kind": "trainer"}, {"kind": "loop"}, {"kind": "loop", "accelerate": True})


@dataclass
class Told:
    """One training that was told: each order with its end, and each rank's own book of its updates."""

    name: str
    orders: list[dict]
    books: list[list[dict]]

    @property
    def replayed(self) -> int:
        """Updates made again after a rollback."""
        steps = [each["step"] for each in self.books[0]]
        return len(steps) - len(set(steps))


def tell(folder: Path, ranks: int, trainings: list[dict], seconds: float) -> list[Told]:
    """Does the trainings one after the other in the same processes."""
    script = str(Path(__file__).with_name("rank_orders.py"))
    command = [sys.executable, script, str(folder), str(ranks), SEED, json.dumps(trainings)]
    variables = environment(XDG_CONFIG_HOME=str(folder / "no-config"))
    done = forked.run(command, env=variables, seconds=seconds)
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"seed {SEED}: {said[-4000:]}"
    assert "an error of LossGuard" not in said, f"seed {SEED}: {said[-4000:]}"
    return [Told(each["name"], *_books(folder / each["name"], ranks)) for each in trainings]


def _books(folder: Path, ranks: int) -> tuple[list[dict], list[list[dict]]]:
    orders, *books = (
        [*map(json.loads, (folder / f"{name}.jsonl").read_text().splitlines())] for name in ("orders", *range(ranks))
    )
    return orders, books


def differing(told: Told) -> int:
    """Updates that not all ranks made alike: another step, or other weights after it."""
    made = [[(each["step"], each["digest"]) for each in book] for book in told.books]
    unlike = sum(len(set(each)) > 1 for each in zip(*made, strict=False))
    return unlike + max(map(len, made)) - min(map(len, made))


def not_exact(told: Told) -> int:
    """Updates that were made again after a rollback and came out otherwise."""
    first: dict[int, str] = {}
    return sum(first.setdefault(each["step"], each["digest"]) != each["digest"] for each in told.books[0])


def at_random(made: random.Random, orders: int) -> list[dict]:
    """Trainings of all kinds (ten orders are enough for each), each told to go back some times and then to stop."""
    trainings: list[dict] = []
    while orders > 0:
        rollbacks = min(made.randrange(2, 4), orders - 1) if orders > 1 else 0
        told = ["rollback"] * rollbacks + ["stop"]
        trainings.append({"name": f"random-{len(trainings)}", "orders": told, **KINDS[len(trainings) % len(KINDS)]})
        orders -= len(told)
    return trainings


SIZES = [(2, 100), (4, 100)] if LONG else [(2, 10)]


@pytest.fixture(scope="module")
def once(tmp_path_factory) -> tuple[Path, dict[str, Told]]:
    """All trainings of two ranks, in one pair of processes, because importing torch twice costs more than they do."""
    folder = tmp_path_factory.mktemp("orders")
    settings = [{"name": f"set-{number}", "orders": [*SET, "stop"], **KINDS[number]} for number in (0, 1)]
    trainings = [*at_random(random.Random(SEED), SIZES[0][1]), *settings]
    told = tell(folder, 2, trainings, seconds=300.0 + SIZES[0][1] * HUNG_SECONDS)
    return folder, {each.name: each for each in told}


@pytest.mark.parametrize(("ranks", "orders"), SIZES)
def test_random_stops_and_rollbacks_are_done_by_all_ranks_at_one_step(once, tmp_path, figure, ranks, orders):
    """The Trainer and hand-written loops mixed; random delays on every rank; checkpoints picked at random."""
    print(f"seed {SEED}: LOSSGUARD_SEED={SEED} does the same again")
    trainings = at_random(random.Random(SEED), orders)
    told = (
        [once[1][each["name"]] for each in trainings]
        if ranks == 2
        else tell(tmp_path, ranks, trainings, seconds=300.0 + orders * HUNG_SECONDS)
    )
    answers = [order for each in told for order in each.orders]
    assert [order["order"] for order in answers] == [order for each in trainings for order in each["orders"]]
    assert all(order["state"] == "succeeded" for order in answers), f"seed {SEED}: {answers}"
    assert sum(each.replayed for each in told), "no update was made again"
    what = f"{orders} orders to {ranks} ranks: "
    unlike, again = sum(map(differing, told)), sum(map(not_exact, told))
    figure("F47", f"{what}updates that the ranks made at different steps or with other weights", unlike, at_most=0)
    figure("F47", f"{what}replayed updates that came out otherwise", again, at_most=0)
    longest = max(order["seconds"] for order in answers)
    figure("F47", f"{what}longest from order to answer", longest, at_most=HUNG_SECONDS, unit="s")


SET = [
    "set_learning_rate_factor:0.5",
    "set_max_grad_norm:0.01",
    "save",
    "pause",
    "save",
    "set_learning_rate_factor:0.25",
    "resume",
]


@pytest.mark.parametrize("kind", [0, 1], ids=["trainer", "loop"])
def test_whatever_else_a_run_is_told_two_ranks_do_it_at_the_same_step(once, kind):
    folder, told = once[0], once[1][f"set-{kind}"]
    assert [order["state"] for order in told.orders] == ["succeeded"] * len(told.orders), told.orders
    assert differing(told) == 0
    one, two = ([(each["step"], each["rate"], each["norm"]) for each in book] for book in told.books)
    assert one == two, "an update was made with another rate or norm on one rank"
    slower, clipped, _, paused, _, slowest, resumed, stopped = (order["step"] for order in told.orders)
    rates, norms = ({step: each[at] for step, *each in one} for at in (0, 1))
    assert rates[slower] == pytest.approx(2 * rates[slower + 1])
    assert rates[resumed + 1] == pytest.approx(rates[slower] / 4)
    assert norms[clipped] > 0.011
    assert max(norms[step] for step in norms if step > clipped) <= 0.0101
    assert paused == slowest == resumed, "no step is made in a pause"
    assert stopped > resumed
    assert {f"checkpoint-{paused}", f"checkpoint-{stopped}"} <= {path.name for path in (folder / told.name / "out").iterdir()}

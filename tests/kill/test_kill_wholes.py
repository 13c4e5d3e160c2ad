"""SIGKILL at every label of save, manifest, rotate, journal, rollback and stop, under a real server, Trainer and loop.

After it: a sound checkpoint is left where there was one, all that can be seen can be trusted, the command had its effect once or
not at all and is said to have had it, and the run ends as an undisturbed one does, to the last bit of its weights. `make soak`
kills at each label under both integrations and at several turns.
"""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import forked
import pytest
from kill_kit import ROOT, Forks, Server
from kill_wholes import SWEPT, Outcome, Site, Trainings, Whole, judge

SCRIPT = Path(__file__).with_name("kill_trainings.py")
INTEGRATIONS = ("trainer", "by hand")
TYPES = [Whole(integration, command) for integration in INTEGRATIONS for command in ("", "rollback", "stop")]
FULL_DISK = [Whole(integration, "rollback", fault="full disk once") for integration in INTEGRATIONS]
ROUNDS = int(os.environ.get("KILL_ROUNDS", "1"))
AT_ONCE = 2
BY_THE_CLOCK = ("batch.", "request.", "ack.")


@pytest.fixture(scope="module")
def trainings(servers: Forks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainings]:
    folder = tmp_path_factory.mktemp("wholes")
    server = Server(servers, folder / "server")
    server.start()
    variables = os.environ | {"LOSSGUARD_DATA_DIR": str(folder / "server" / "data")}
    variables |= {"LOSSGUARD_PORT": str(urlsplit(server.url).port), "PYTHONPATH": str(ROOT)}
    make = [sys.executable, "-m", "server", "token", "create", "--role", "operator", "--name", "tests"]
    operator = forked.output(make, env=variables)
    forks = Forks(script=SCRIPT)
    yield Trainings(forks, Site(server.url, server.token, operator), folder)
    forks.close()
    server.kill()


@pytest.fixture(scope="module")
def undisturbed(trainings: Trainings) -> dict[Whole, Outcome]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wholes = [*TYPES, *FULL_DISK]
        return dict(zip(wholes, pool.map(trainings.undisturbed, wholes), strict=True))


def cases(undisturbed: dict[Whole, Outcome]) -> list[Whole]:
    """A victim for each label; each under both integrations, and at the first and a later turn, in the soak."""
    found = []
    for place, label in enumerate(SWEPT):
        possible = [whole for whole, outcome in undisturbed.items() if whole.command and label in outcome.reached]
        possible.sort(key=lambda whole: (bool(whole.fault), whole.integration != INTEGRATIONS[place % 2]))
        for turn, whole in enumerate(possible[:1] if ROUNDS == 1 else possible):
            most = undisturbed[whole].reached[label]
            if label.startswith(BY_THE_CLOCK):
                most = min(most, 2)  # how often it comes depends on how long the rest takes
            counts = {1 + (most - 1) * (place + turn) // 3 % most} if ROUNDS == 1 else {1, most, (most + 1) // 2}
            found += [Whole(whole.integration, whole.command, f"{label}:{count}", whole.fault) for count in sorted(counts)]
    return found


def test_each_label_is_reached_by_an_undisturbed_training(undisturbed, capsys):
    hit = {label for outcome in undisturbed.values() for label in outcome.reached}
    with capsys.disabled():
        print(f"\n{len(SWEPT)} crash labels of save, rotate, stop and rollback: {', '.join(SWEPT)}")
    assert set(SWEPT) <= hit, f"never reached: {sorted(set(SWEPT) - hit)}"


def test_an_undisturbed_training_does_what_it_is_told(undisturbed):
    ends = {whole: (outcome.run["state"], (outcome.command or {}).get("state")) for whole, outcome in undisturbed.items()}
    for whole, end in ends.items():
        assert (
            end
            == {"": ("finished", None), "rollback": ("finished", "succeeded"), "stop": ("stopped", "succeeded")}[whole.command]
        )
    for integration in INTEGRATIONS:
        straight, back = (undisturbed[Whole(integration, command)] for command in ("", "rollback"))
        assert straight.digest != back.digest, "the effect of the rollback cannot be told"


def test_killed_at_every_label_a_training_goes_on_as_if_it_had_not_been(trainings, undisturbed, figure):
    victims = cases(undisturbed)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(trainings.killed, victims))
    problems = {}
    for whole, found in zip(victims, outcomes, strict=True):
        straight = undisturbed[Whole(whole.integration, "")]
        commanded = undisturbed[Whole(whole.integration, whole.command, fault=whole.fault)]
        problem = judge(whole, found, straight, commanded)
        if problem:
            problems[f"{whole.integration}, {whole.command}, {whole.at}"] = problem
    assert {whole.at.partition(":")[0] for whole in victims} == set(SWEPT)
    assert not problems, "\n".join(f"{what}: {problem}" for what, problem in problems.items())
    figure("F50", "labels killed at", len({whole.at for whole in victims}), at_least=len(SWEPT))
    figure("F43", "seconds to the right end state, at most", max(found.seconds for found in outcomes), at_most=30.0)


PLANTED = [
    Whole("trainer", "rollback", "save.began:1", "manifest first"),
    Whole("by hand", "rollback", "rollback.opened:1", "no journal"),
    Whole("trainer", "rollback", "save.written:4", "rotation unguarded"),
]


@pytest.mark.parametrize("whole", PLANTED, ids=lambda whole: whole.fault)
def test_a_planted_fault_is_caught(trainings, undisturbed, whole):
    straight, commanded = undisturbed[Whole(whole.integration, "")], undisturbed[Whole(whole.integration, whole.command)]
    try:
        problem = judge(whole, trainings.killed(whole), straight, commanded)
    except AssertionError as caught:
        problem = str(caught)
    assert problem, f"{whole.fault} went unnoticed"
    assert "was not reached" not in problem
    print(f"{whole.fault}: {problem[:300]}")


def test_without_a_planted_fault_the_same_lives_are_in_order(trainings, undisturbed):
    for whole in PLANTED:
        if whole.fault == "no journal":
            continue  # its label is a part of the sweep as it is
        same = Whole(whole.integration, whole.command, whole.at)
        straight, commanded = undisturbed[Whole(same.integration, "")], undisturbed[Whole(same.integration, same.command)]
        assert judge(same, trainings.killed(same), straight, commanded) == ""


@pytest.mark.parametrize(("fault", "effects"), [("", 1), ("no fence", 2)])
def test_a_command_of_an_earlier_process_has_no_second_effect_and_without_the_fence_it_has(trainings, fault, effects, figure):
    """An answer held back by the network brings the stop again, to the process after the one that was stopped."""
    found = trainings.again(Whole("trainer", "stop", fault=fault, late_reply=True))
    if not fault:
        figure("F42", "effects of a stop that comes again for the process before", found, at_most=effects)
    assert found == effects

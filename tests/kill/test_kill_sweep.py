"""SIGKILL at every crash label of trainer and server, and at random moments: what was acknowledged is there, once, and as it was.

`KILL_ROUNDS` and `KILL_RANDOM` say how often (`make soak`: every label several times, 200 moments).
"""

import os
import random
import textwrap
from concurrent.futures import ThreadPoolExecutor

from kill_history import Stored, judge
from kill_kit import Server, lives_of
from kill_sweep import SERVER_LABELS, TRAINER_LABELS, Fate, Sweep, kill_server_at, server_cases, trainer_cases
from kill_victims import SERIES, known

from trainer_agent.wire.crash import LABELS

ROUNDS = int(os.environ.get("KILL_ROUNDS", "1"))
RANDOM = int(os.environ.get("KILL_RANDOM", "8"))


def show(capsys, whose: str, labels: list[str], hit: set[str]) -> None:
    """Prints the labels: all of them by name, or with what they mean where each is hit several times."""
    with capsys.disabled():
        print(f"\n{len(labels)} crash labels of the {whose}, {len(hit & set(labels))} of them hit:")
        if ROUNDS > 1:
            print("\n".join(f"  {'killed' if label in hit else 'NOT HIT':8} {label:26} {LABELS[label]}" for label in labels))
        else:
            words = [label if label in hit else f"{label} (NOT HIT)" for label in labels]
            print(textwrap.fill(", ".join(words), 120, initial_indent="  ", subsequent_indent="  "))


def total(verdicts: list, name: str) -> int:
    return sum(getattr(verdict, name) for verdict in verdicts)


def test_a_trainer_killed_at_every_label_and_at_any_moment_loses_nothing_acknowledged(
    trainers, servers, tmp_path, figure, capsys
):
    server = Server(servers, tmp_path / "server")
    server.start()
    sweep = Sweep(trainers, server, tmp_path)
    cases = trainer_cases(ROUNDS)
    sweep.run([*cases, *(random.Random(seed) for seed in range(RANDOM))])
    problems = [fate.problem for fate in sweep.fates if fate.problem]
    found = sweep.verdicts()
    verdicts = [verdict for _, verdict, _ in found]
    labels = list(TRAINER_LABELS)
    hit = {fate.case.at.partition(":")[0] for fate in sweep.fates if fate.case and not fate.problem}
    show(capsys, "trainer", labels, hit)
    assert not problems, "\n".join(problems)
    for fate, verdict, _ in found:
        assert verdict.is_clean, f"{fate.case} {fate.folder}: {verdict}"
    figure("F12", "trainers killed with SIGKILL, at labels and at random moments", len(cases) + RANDOM)
    figure("F12", "records logged by them", sum(calls for *_, calls in found))
    figure("F12", "acknowledged records lost", total(verdicts, "acknowledged_and_lost"), at_most=0)
    figure("F12", "records invented or altered", total(verdicts, "invented"), at_most=0)
    figure("F12", "records doubled", total(verdicts, "doubled"), at_most=0)
    figure("F12", "records lost that were older than 100 ms at the kill", total(verdicts, "lost_too_early"), at_most=0)
    figure("F12", "records lost in one kill, all of the last 100 ms", max(verdict.lost_at_the_end for verdict in verdicts))
    figure("F12", "crash labels of the trainer that were not hit", len(set(labels) - hit), at_most=0)


def check_server_fates(fates: list[Fate], stored: dict[str, Stored]) -> list:
    verdicts = []
    assert not [fate.problem for fate in fates if fate.problem], "\n".join(fate.problem for fate in fates)
    for fate in fates:
        (life,) = lives_of(fate.folder)
        verdict = judge(life, stored.get(life.incarnation, Stored()), known, SERIES)
        assert verdict.is_clean, f"{fate.folder}: {verdict}"
        assert stored[life.incarnation].dropped == verdict.lost_at_the_end == 0
        verdicts.append(verdict)
    return verdicts


def test_a_server_killed_at_every_label_keeps_what_it_acknowledged_and_takes_the_rest_once(
    trainers, servers, tmp_path, figure, capsys
):
    chance = random.Random(7)
    cases = server_cases(ROUNDS) + [f"{chance.uniform(0, 0.3):.3f}" for _ in range(max(2, RANDOM // 2))]
    lanes = [Server(servers, tmp_path / f"server-{lane}") for lane in range(2)]
    shares = [cases[lane :: len(lanes)] for lane in range(len(lanes))]

    def drive(lane: int) -> list[Fate]:
        folder = tmp_path / f"lane-{lane}"
        folder.mkdir()
        return [kill_server_at(trainers, lanes[lane], folder / f"victim-{number}", at) for number, at in enumerate(shares[lane])]

    with ThreadPoolExecutor(len(lanes)) as pool:
        fates = list(pool.map(drive, range(len(lanes))))
    done = {fate.folder for theirs in fates for fate in theirs if not fate.problem}
    hit = {
        at.partition(":")[0]
        for lane, share in enumerate(shares)
        for at, fate in zip(share, fates[lane], strict=True)
        if fate.folder in done
    }
    show(capsys, "server", list(SERVER_LABELS), hit)
    verdicts = [
        verdict for lane, theirs in zip(lanes, fates, strict=True) for verdict in check_server_fates(theirs, lane.stored())
    ]
    figure("F57", "servers killed with SIGKILL, at labels and at random moments", len(cases))
    figure("F57", "acknowledged records lost", total(verdicts, "acknowledged_and_lost"), at_most=0)
    figure("F57", "records invented, doubled or altered", total(verdicts, "invented") + total(verdicts, "doubled"), at_most=0)
    figure("F57", "records lost", total(verdicts, "lost_too_early") + total(verdicts, "lost_at_the_end"), at_most=0)
    figure("F57", "crash labels of the server that were not hit", len(set(SERVER_LABELS) - hit), at_most=0)
    figure(
        "F57",
        "slowest start of a server after a kill",
        max(max(lane.restart_seconds[1:]) for lane in lanes),
        at_most=15,
        unit="s",
    )


def test_on_postgresql_too_what_is_acknowledged_is_committed(trainers, servers, tmp_path, figure, new_database_url):
    server = Server(servers, tmp_path / "server", new_database_url("postgresql"))
    cases = ("server.before_commit:6", "server.committed:6")
    fates = [kill_server_at(trainers, server, tmp_path / f"victim-{turn}", at) for turn, at in enumerate(cases)]
    verdicts = check_server_fates(fates, server.stored())
    figure("F57", "acknowledged records lost on PostgreSQL", total(verdicts, "acknowledged_and_lost"), at_most=0)

"""A server killed anywhere in a run of 300 steps tells what an undisturbed one tells, and tells it once.

The labels are printed; one that is never hit fails. Three faults that this exists for are planted and found.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import pytest
from kill_kit import Server, reached
from receiver import Receiver
from scenario_kit import Played, prepare

from trainer_agent.wire.crash import LABELS

SERVER_LABELS = tuple(label for label in LABELS if label.startswith("server."))
_FIRST = ("server.start", "server.seal")
FAULTS = {
    "no dedupe, at once": "server.before_reply:{}",
    "state outside": "server.committed:{}",
    "outbox outside": "server.before_reply:{}",
}


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("template")
    with Receiver([b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"]) as receiver:
        prepare(folder, receiver.url)
        yield folder


@pytest.fixture(scope="module")
def undisturbed(judges, template, tmp_path_factory):
    return Played(Server(judges, tmp_path_factory.mktemp("undisturbed")), template).play()


def test_the_scenario_has_in_it_what_it_is_about(undisturbed):
    kinds = {kind for kind, *_ in undisturbed.transitions}
    assert kinds >= {"alert.firing", "alert.resolved", "alert.rewound", "countdown.started", "countdown.ended", "command.queued"}
    assert len(undisturbed.transitions) > 40
    assert len(undisturbed.messages) > 12
    assert undisturbed.doubled == 0


def at(label):
    return f"{label}:{1 if label.startswith(_FIRST) else 9}"


def test_a_server_killed_at_any_label_tells_what_an_undisturbed_one_tells(judges, template, undisturbed, tmp_path, figure):
    def killed_at(label):
        played = Played(Server(judges, tmp_path / label), template)
        return played, played.play(at(label))

    with ThreadPoolExecutor(3) as pool:
        found = dict(zip(SERVER_LABELS, pool.map(killed_at, SERVER_LABELS), strict=True))
    print("labels:", ", ".join(SERVER_LABELS))
    hit = {label for label, (played, _) in found.items() if any(name == label for name, *_ in reached(played.server.reached))}
    assert hit == set(SERVER_LABELS)
    assert [label for label, (played, _) in found.items() if played.deaths == 0] == []
    differing = [label for label, (_, outcome) in found.items() if outcome != undisturbed]
    for label in differing:  # what differs is told in its own words
        _, outcome = found[label]
        for field in fields(outcome):
            assert getattr(outcome, field.name) == getattr(undisturbed, field.name), (label, field.name)
    figure("F31", f"labels of {len(found)} at which a killed server told otherwise", len(differing), at_most=0)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_planted_fault_is_caught(judges, template, undisturbed, tmp_path, fault):
    for count in (9, 12, 15, 18):
        played = Played(Server(judges, tmp_path / f"at-{count}"), template, fault)
        try:
            outcome = played.play(FAULTS[fault].format(count), undisturbed.deliveries)
        except AssertionError as error:
            assert "the answer to" in str(error)  # noqa: PT017  the server cannot take what it has already
            return
        if outcome != undisturbed:
            return
    pytest.fail(f"the fault {fault!r} changed nothing")

"""The ranks come to one decision at every boundary, or to none."""

import json
import os
import re
import sys
from pathlib import Path

import forked
import pytest
from ranks_kit import environment

LONG = bool(os.environ.get("LOSSGUARD_SOAK"))
BOUNDARIES = 20_000 if LONG else 400


Books = dict[int, dict[int, dict]]


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Books:
    """By the boundary at which rank 3 was killed (0: never): what each rank that lived wrote down."""
    folder = tmp_path_factory.mktemp("agreeing")
    command = [sys.executable, str(Path(__file__).with_name("agreeing.py")), str(folder), f"{BOUNDARIES},0", "80,1", "80,57"]
    done = forked.run(command, env=environment(), seconds=3000)
    found: Books = {
        kill_at: {int(path.stem): json.loads(path.read_text()) for path in sorted((folder / str(kill_at)).glob("*.json"))}
        for kill_at in (0, 1, 57)
    }
    assert [len(found[kill_at]) for kill_at in (0, 1, 57)] == [4, 3, 3], done.stderr[-3000:]
    return found


def test_four_ranks_decide_the_same_at_every_boundary_and_answer_every_command_once(books: Books, figure):
    books = books[0]
    leader = books[0]["book"]
    differing = sum(any(books[rank]["book"][i] != line for rank in books) for i, line in enumerate(leader))
    acts = [line for line in leader if line[1] != "go_on"]
    figure("F47", "stops and rollbacks on 4 ranks", len(acts), at_least=BOUNDARIES // 4)
    figure("F47", "boundaries at which ranks differ", differing, at_most=0)
    figure("F47", "longest wait at a boundary", max(book["longest"] for book in books.values()), at_most=30, unit="s")
    assert {line[1] for line in leader} == {"go_on", "stop", "stop_dead", "roll_back"}
    assert any("on rank 2: the loss is not finite" in line[2] for line in acts)
    assert not any(book["parted"] for book in books.values())
    assert all(books[rank]["said"] == [] for rank in (1, 2, 3)), "rank 0 alone speaks of commands"
    failed = [reason for _, state, reason in books[0]["said"] if state == "failed"]
    assert failed
    assert all(re.fullmatch(r"rank [123]: it is not there", reason) for reason in failed), failed[:3]
    begun = [name for name, state, _ in books[0]["said"] if state == "running"]
    assert len(begun) == len(set(begun))


@pytest.mark.parametrize("kill_at", [1, 57])
def test_of_a_killed_rank_the_others_know_at_once_and_do_nothing_more(books: Books, figure, kill_at):
    books = books[kill_at]
    figure("F47", "longest wait at the boundary where a rank was killed", max(b["longest"] for b in books.values()), at_most=20)
    for rank, book in books.items():
        assert len(book["parted"]) == 1, "told once"
        assert book["parted"][0] in {"rank 3 is gone", "a rank has left"}, rank
        assert all(line[1] == "go_on" for line in book["book"][kill_at - 1 :])
    assert "rank 3 is gone" in {book["parted"][0] for book in books.values()}
    assert books[0]["said"][-1][1] == "rejected"
    assert "the ranks cannot be told together" in books[0]["said"][-1][2]

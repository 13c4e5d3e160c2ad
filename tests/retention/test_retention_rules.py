"""Which checkpoints may be removed: tables of cases."""

import itertools

import pytest

from trainer_agent.checkpoints.retention import AT_LEAST, UNKNOWN_LEAD, Held, Turn, Worth, by_age, is_abandoned, to_remove

MARKS = {"s": Worth.SOUND, "b": Worth.BARE, "x": Worth.BAD}


def folder(text: str) -> list[Held]:
    """`1/100s 2/50x`: segment, step and worth of each checkpoint."""
    held = []
    for word in text.split():
        segment, _, rest = word.partition("/")
        held.append(Held(word, int(segment), int(rest[:-1]), MARKS[rest[-1]]))
    return held


def removed(text: str, keep: int | None, **more) -> str:
    return " ".join(to_remove(folder(text), keep, **more))


CASES = {
    "nothing goes without a limit": ("1/100s 1/200s 1/300s 1/400s", None, ""),
    "nor with one below 1, which the Trainer takes for none": ("1/100s 1/200s 1/300s 1/400s", 0, ""),
    "three sound ones stay whatever the limit": ("1/100s 1/200s 1/300s 1/400s", 1, "1/100s"),
    "a higher limit is obeyed": ("1/100s 1/200s 1/300s 1/400s 1/500s", 4, "1/100s"),
    "the last sound ones stay when what came after them is bad": ("1/100s 1/200s 1/300s 1/400x 1/500x", 2, ""),
    "of bad ones the newest stay": ("1/100s 1/200x 1/300x 1/400x", 1, "1/200x 1/300x"),
    "where all are bad the limit alone holds": ("1/100x 1/200x 1/300x", 2, "1/100x"),
    "finite weights are what must not get lost where nothing is sound": (
        "1/1b 1/99b 1/199b 1/299b 1/400x 1/500x",
        1,
        "1/1b 1/400x",
    ),
    "a bare one does not push a sound one out": ("1/100s 1/200b 1/300b 1/400b 1/500b", 1, "1/200b 1/300b 1/400b"),
    "three close ones are spread too little, so the oldest stays": ("1/10s 1/20s 1/30s 1/40s", 1, "1/30s"),
    "the spread is more than twice the lead and not as much": ("1/10s 1/40s 1/50s 1/60s", 1, "1/50s"),
    "once it is, the oldest goes": ("1/10s 1/40s 1/60s 1/91s", 1, "1/10s"),
    "age is no name: step 1000 is newer than 900": ("1/900s 1/1000s 1/800s 1/700s 1/600s", 1, "1/600s 1/700s"),
    "step 300 after a rollback is newer than 500 before it": ("1/500s 2/300s 2/400s 1/100s 1/200s", 1, "1/500s 1/100s"),
    "an abandoned sound one is better than none": ("1/400s 1/500s 2/300x", 1, ""),
    "and fills up the three": ("1/100s 1/300s 1/400s 1/500s 2/300s", 1, "1/300s 1/400s"),
    "an empty folder": ("", 1, ""),
}


@pytest.mark.parametrize("name", CASES)
def test_what_goes(name):
    text, keep, expected = CASES[name]
    assert removed(text, keep) == expected


def test_protected_ones_stay_and_do_not_count_for_others():
    assert removed("1/100s 1/200s 1/300s 1/400s 1/500s", 1, protected={"1/100s"}) == "1/200s"
    assert removed("1/100x 1/200s 1/300s 1/400s 1/500s", 1, protected={"1/100x", "of another run"}) == "1/200s"


def test_a_longer_lead_wants_a_wider_spread():
    text = "1/100s 1/200s 1/300s 1/400s 1/500s"
    assert removed(text, 1, lead=50) == "1/100s 1/200s"
    assert removed(text, 1, lead=100) == "1/100s 1/400s"
    assert removed(text, 1, lead=1000) == "1/300s 1/400s"
    assert removed("1/1s 1/2s 1/3s 1/4s", 1, lead=0) == "1/1s"


def test_a_segment_that_has_saved_nothing_yet_abandons_what_lies_behind_its_beginning():
    text = "1/100s 1/200s 1/300s 1/400s 1/500s"
    assert removed(text, 1, turns=[Turn(2, 300)]) == "1/400s 1/500s"
    assert removed(text, 1, turns=[Turn(2, 100)]) == "1/200s 1/300s"


def test_a_restart_abandons_only_what_lies_behind_it():
    held = folder("1/100s 1/200s 1/300s")
    assert [is_abandoned(each, [Turn(2, 200)]) for each in held] == [False, False, True]


def test_what_a_second_rollback_leaves_out_stays_abandoned():
    effective, abandoned = by_age(folder("1/100s 1/200s 1/300s 2/200s 2/250s 3/150s"), [Turn(2, 100), Turn(3, 100)])
    assert [each.checkpoint_id for each in effective] == ["1/100s", "3/150s"]
    assert [each.checkpoint_id for each in abandoned] == ["1/200s", "1/300s", "2/200s", "2/250s"]


def test_the_order_in_which_they_are_named_is_nothing():
    names = ["1/100s", "1/200s", "1/300x", "2/150s", "2/200s"]
    answers = {removed(" ".join(order), 1) for order in itertools.permutations(names)}
    assert len(answers) == 1


@pytest.mark.parametrize("interval", [1, 7, 10, 25, 26, 50, 51, 500])
@pytest.mark.parametrize("keep", [1, 2, 5])
def test_over_a_long_run_the_sound_ones_are_few_and_lie_far_enough_apart(interval, keep):
    held: list[Held] = []
    for step in range(interval, 300 * interval, interval):
        held.append(Held(str(step), 1, step, Worth.SOUND))
        gone = to_remove(held, keep)
        held = [each for each in held if each.checkpoint_id not in gone]
        assert len(held) <= keep + AT_LEAST
        if step > AT_LEAST * interval and step > 2 * UNKNOWN_LEAD + interval:
            assert held[-1].step - held[0].step > 2 * UNKNOWN_LEAD
            assert len(held) >= AT_LEAST

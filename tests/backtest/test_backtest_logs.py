"""Logs of other tools: what is read of them, and what is said of one that cannot be read."""

import json
import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.domain.imported_logs import MAX_COLUMNS, MAX_SERIES, BadLog, read_log
from server.domain.spelling import spelled
from trainer_agent.wire import series

TRAINER_STATE = {
    "best_metric": None,
    "epoch": 2.0,
    "global_step": 30,
    "log_history": [
        {"epoch": 0.5, "grad_norm": 1.5, "learning_rate": 5e-05, "loss": 3.25, "step": 10},
        {"epoch": 1.0, "grad_norm": math.nan, "learning_rate": 4e-05, "loss": 0.0, "step": 20},
        {"epoch": 1.0, "eval_loss": 2.5, "eval_runtime": 1.5, "step": 20},
        {"epoch": 2.0, "total_flos": 1e15, "train_loss": 2.0, "train_runtime": 60.0, "step": 30},
    ],
}


def points(log, name):
    _, steps, values = log.columns[name]
    return [(step, repr(value)) for step, value in zip(steps, values, strict=True)]


def test_a_trainer_state_is_read_with_its_nan_and_without_its_summary():
    log = read_log("trainer_state.json", json.dumps(TRAINER_STATE, indent=2))
    assert points(log, series.LOSS) == [(10, "3.25"), (20, "0.0")]
    assert points(log, series.GRAD_NORM) == [(10, "1.5"), (20, "nan")]
    assert points(log, "eval/loss") == [(20, "2.5")]
    assert "train/runtime" not in log.columns
    assert log.recording("log-1").columns[0].segment == 1


def test_json_lines_are_read_with_words_for_what_is_not_finite():
    text = '{"_step": 1, "loss": 2.5, "note": "warm-up"}\n\n{"_step": 2, "loss": "NaN", "train/grad_norm": "-Infinity"}\n'
    log = read_log("log.jsonl", text)
    assert points(log, series.LOSS) == [(1, "2.5"), (2, "nan")]
    assert points(log, series.GRAD_NORM) == [(2, "-inf")]


def test_a_last_line_that_was_cut_off_is_left_out_and_any_other_is_told():
    whole = '{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.25}\n'
    assert points(read_log("a", whole + '{"step": 3, "lo'), series.LOSS) == [(1, "2.5"), (2, "2.25")]
    with pytest.raises(BadLog, match="line 2: not JSON"):
        read_log("a", '{"step": 1, "loss": 2.5}\n{"step": 2, "lo\n{"step": 3, "loss": 2}\n')


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_csv_is_read_whatever_divides_its_fields(delimiter):
    text = delimiter.join(["step", "loss", "lr", "amp/loss_scale", "when"]) + "\r\n"
    text += "".join(
        delimiter.join(row.split("|")) + "\r\n" for row in ("1|2.5||65536|noon", "2|nan|1e-4||later", "3|-inf|1e-5|1|later")
    )
    log = read_log("a.csv", text)
    assert points(log, series.LOSS) == [(1, "2.5"), (2, "nan"), (3, "-inf")]
    assert points(log, series.LEARNING_RATE) == [(2, "0.0001"), (3, "1e-05")]
    assert points(log, series.LOSS_SCALE) == [(1, "65536.0"), (3, "1.0")]
    assert "train/when" not in log.columns


@pytest.mark.parametrize("step", ["Step", "STEP", "Global_Step", "Iteration", "train/Global_Step"])
def test_the_step_column_of_a_csv_may_be_in_capitals(step):
    log = read_log("a.csv", f"{step},loss\n1,2.5\n2,2.25\n")
    assert points(log, series.LOSS) == [(1, "2.5"), (2, "2.25")]
    assert list(log.columns) == [series.LOSS]


@pytest.mark.parametrize(
    "said", ["nan", "NaN", "NAN", "-nan", "inf", "Inf", "+inf", "-INF", "Infinity", "-infinity", "1.#INF", "-1.#IND"]
)
def test_not_a_number_may_be_spelled_in_any_usual_way(said):
    assert not math.isfinite(spelled(said))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        (" \n ", "empty"),
        ("loss,grad_norm\n1,2\n", "line 1: no step column"),
        ("step,loss\n1,2\n2,oops\n", "line 3: column loss holds 'oops'"),
        ("step,loss\n1,oops\n2,3\n", "line 2: column loss holds 'oops'"),
        ("step,loss\n1,2,3\n", "line 2: 3 fields, where the header has 2"),
        ("step,loss\n1,2\n\n0,2\n", "line 4: step 0 comes after step 1"),
        ("step;loss\n1;2,5\n2;2,25\n", "line 2: column loss holds '2,5', which is no number: write decimals with a point"),
        ("step;loss;lr\n1;2;1\n2;2,25;1\n", "line 3: column loss holds '2,25', which is no number: write decimals with a point"),
        ("step\tloss\tlr\n1\t-1,5e-3\t1\n", "line 2: column loss holds '-1,5e-3', which is no number: write decimals"),
        ("step,loss\n1,2,5\n", "line 2: 3 fields, where the header has 2. Decimals must have a point, not a comma"),
        ("step,loss\nnan,2\n", "line 2: the step is 'nan'"),
        ("step,loss\n-1,2\n", "line 2: the step is '-1'"),
        ("step,loss\n1.5,2\n", "line 2: the step is '1.5'"),
        ("step,loss\n1e300,2\n", "line 2: the step is '1e300'"),
        ("step,loss,train/loss\n1,2,3\n", "two columns are train/loss"),
        ('step,loss\n1,"' + "x" * 200_000 + '"\n', "line 2"),
        ("step,words\n1,a\n", "no numbers"),
        ("step\n1\n", "no numbers"),
        ("[1, 2]", "entry 1 of the list: not an object"),
        ('{"log_history": {}}', "log_history is not a list"),
        ('{"log_history": [{"loss": 1}]}', "entry 1 of log_history: no step"),
        ('{"log_history": [{"step": true, "loss": 1}]}', "entry 1 of log_history: the step is 'True'"),
        ('{\n "log_history": [\n  {"step": 1,}\n ]\n}', "line 3: not JSON"),
        ('{"step": 1, "loss": 1' + "0" * 400 + "}", "line 1: loss is larger than a float64 can hold"),
        ('{"step": 1, "loss": 1' + "0" * 5000 + "}", "too many digits"),
        ("[" * 100_000, "nested too deep"),
        ('{"step": 1, "loss": 2}\n' + '{"a":' * 100_000 + "\n{}\n", "line 2: nested too deep"),
        (
            "step," + ",".join(f"s/{n}" for n in range(MAX_SERIES + 1)) + "\n1" + ",1" * (MAX_SERIES + 1) + "\n",
            "more than 200 series",
        ),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(text, says):
    with pytest.raises(BadLog) as told:
        read_log("a", text)
    assert says in str(told.value)
    assert len(str(told.value)) < 1_000


@given(st.text(max_size=300), st.sampled_from(["", "step,loss\n", '{"log_history": [', '{"step": 1}\n']))
def test_no_text_brings_anything_but_a_log_or_a_sentence(text, begin):
    try:
        found = read_log("a", begin + text).points
    except BadLog as told:
        found = len(str(told))
    assert found


def test_a_header_of_very_many_columns_is_refused_and_one_of_many_is_read():
    many = ["step", *(f"c{n}" for n in range(MAX_COLUMNS - 1))]
    row = ["1", "2.5", *[""] * (MAX_COLUMNS - 2)]
    assert points(read_log("wide.csv", f"{','.join(many)}\n{','.join(row)}"), "train/c0") == [(1, "2.5")]
    with pytest.raises(BadLog, match=f"line 1: {MAX_COLUMNS + 1} columns"):
        read_log("wider.csv", ",".join([*many, "more"]))


def test_values_come_back_bit_for_bit():
    random = Random(7)
    values = [random.choice((random.random() * 10.0 ** random.randint(-300, 300), math.nan, -math.inf)) for _ in range(500)]
    text = "step,loss\n" + "".join(f"{step},{value!r}\n" for step, value in enumerate(values))
    assert [repr(value) for value in read_log("a", text).columns[series.LOSS][2]] == [repr(value) for value in values]

"""A hand-written loop that is killed and started again, what it takes up, and what `watch` may raise."""

import os
import shutil
import signal
import sys
import textwrap
from pathlib import Path

import forked
import pytest
import torch
from loops_kit import Tape, Training, loader, tape, until

from trainer_agent.checkpoints.inspection import MANIFEST
from trainer_agent.loop import beginning
from trainer_agent.loop.jumps import Jumps
from trainer_agent.ranks import Apart, Ranks
from trainer_agent.wire import series
from trainer_agent.wire.vocabulary import CheckpointState, CommandKind, CommandState, SegmentCause

ROOT = Path(__file__).parents[2]


@pytest.fixture
def taped(monkeypatch, tmp_path) -> Tape:
    return tape(monkeypatch, tmp_path)


FIRST_LIFE = """
    import pathlib, sys
    sys.path.append({here!r})
    import pytest
    from loops_kit import Training, loader, tape, until
    from trainer_agent.wire import crash
    from trainer_agent.wire.vocabulary import DataMode
    crash.arm({label!r})
    folder = pathlib.Path({folder!r})
    with pytest.MonkeyPatch.context() as patch:
        taped = tape(patch, folder)
        order = lambda: taped.rollback(2, {changes})
        whole = lambda: until(lambda: (folder / "checkpoint-6" / "lossguard.json").exists())
        training = Training(dropout=0.0, at={{6: lambda: None, 7: lambda: (whole(), order())}})
        with training.watch(folder, save_every=2) as run:
            if {batches}:
                training.over(run.batches(loader(), max_steps=12), run)
            else:
                training.draws(run.steps(12, random_batches=True), run)
"""


def first_life(folder: Path, label: str, changes: str, *, batches: bool) -> None:
    """A process that dies at a crash label of its rollback from step 7 to 2."""
    script = FIRST_LIFE.format(here=str(Path(__file__).parent), folder=str(folder), changes=changes, batches=batches, label=label)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
    variables = kept | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = forked.run(command, env=variables)
    assert done.returncode == -signal.SIGKILL, f"{label} was not reached: {done.stderr[-3000:]}"


def reports(taped: Tape, name: str = "c1"):
    return [report for report in taped.reports if report.command_id == name and report.state != CommandState.DELIVERED]


@pytest.mark.parametrize("label", ["rollback.intended", "rollback.loaded", "rollback.opened"])
def test_a_loop_killed_in_a_rollback_goes_on_from_its_target_in_the_segment_that_was_fixed(taped, tmp_path, label):
    """Its overrides and its skip hold, and the old command is answered once."""
    first_life(tmp_path, label, "data=DataMode.SKIP, skip_from_step=4, skip_to_step=5, learning_rate_factor=0.5", batches=True)
    straight = Training(dropout=0.0).over(batch for _ in range(2) for batch in loader())
    again = Training(dropout=0.0, seed=9)
    with again.watch(tmp_path, save_every=2, resume=True) as run:
        assert run.step == 2
        again.over(run.batches(loader(), max_steps=5), run)
    assert again.rows_of == [straight.rows_of[2], *straight.rows_of[5:7]], "steps 4 and 5 are passed over"
    segment = taped.segments[0]
    assert (segment.segment, segment.cause, segment.from_step) == (2, SegmentCause.ROLLBACK, 2)
    assert (segment.command_id, segment.attributes["learning_rate_factor"]) == ("c1", 0.5)
    assert [report.state for report in reports(taped)] == [CommandState.SUCCEEDED]
    rates = taped.series(series.LEARNING_RATE)
    assert rates[3] == pytest.approx(0.01 * 0.5)


def test_overrides_outlive_the_process(taped, tmp_path):
    first = Training(at={4: lambda: taped.rollback(2, learning_rate_factor=0.5, max_grad_norm=0.01)})
    with first.watch(tmp_path, save_every=2) as run:
        first.draws(run.steps(6), run)
    second = Training(seed=5)
    with second.watch(tmp_path, save_every=2, resume=True) as run:
        second.draws(run.steps(8), run)
        assert run.max_grad_norm == 0.01
    assert taped.segments[-1].attributes["learning_rate_factor"] == 0.5
    rates = taped.series(series.LEARNING_RATE, taped.segments[-1].segment)
    assert rates[8] == pytest.approx(second.rates[-1] * 0.5)


def test_draws_that_a_dead_process_did_not_note_down_are_told_as_not_passed_over(taped, tmp_path):
    """What comes after a window that the script drew itself is known only to the process that drew it."""
    first_life(tmp_path, "rollback.intended", "data=DataMode.SKIP, skip_from_step=4", batches=False)
    again = Training(dropout=0.0)
    with again.watch(tmp_path, save_every=2, resume=True) as run:
        assert run.step == 2
        again.draws(run.steps(4, random_batches=True), run)
    (report,) = reports(taped)
    assert report.state is CommandState.FAILED
    assert "drawn again" in report.reason


def test_a_damaged_checkpoint_with_a_manifest_is_passed_over_for_the_next_older(taped, tmp_path, capsys):
    first = Training()
    with first.watch(tmp_path, save_every=2) as run:
        first.draws(run.steps(6), run)
    weights = tmp_path / "checkpoint-6" / "pytorch_model.bin"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    assert (tmp_path / "checkpoint-6" / MANIFEST).exists()
    second = Training()
    with second.watch(tmp_path, resume=True) as run:
        assert run.step == 4
    assert "passed over: checkpoint-6" in capsys.readouterr().err


# --- what watch may raise


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), Apart("rank 1 is gone"), RuntimeError("ours"), MemoryError()]
)
def test_what_goes_wrong_with_lossguard_at_the_start_leaves_a_new_training_unwatched(taped, tmp_path, monkeypatch, capsys, error):
    def fail(*args, **kwargs):
        raise error

    straight = Training().draws(range(4))
    monkeypatch.setattr(beginning, "meet", fail)
    for name in ("first", "second"):  # of one process
        training = Training()
        with training.watch(tmp_path / name, save_every=2) as run:
            training.draws(run.steps(4), run)
        assert training.losses == straight.losses
        assert "not watched" in capsys.readouterr().err
    assert not taped.monitors


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), Apart("rank 1 is gone"), RuntimeError("ours")])
def test_a_training_that_resumes_never_begins_anew_instead(taped, tmp_path, monkeypatch, error):
    training = Training()
    with training.watch(tmp_path, save_every=2) as run:
        training.draws(run.steps(2), run)

    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(beginning, "where_to_go_on", fail)
    with pytest.raises(ValueError, match="resume: "):
        Training().watch(tmp_path, resume=True)


def test_a_full_disk_at_the_start_is_no_error_of_the_script(taped, tmp_path, monkeypatch):
    monkeypatch.setattr(Jumps, "clear", lambda self: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    training = Training()
    with training.watch(tmp_path) as run:
        training.draws(run.steps(2), run)
    assert len(training.losses) == 2


def test_a_load_that_breaks_off_before_the_first_step_is_a_value_error(taped, tmp_path, monkeypatch):
    training = Training()
    with training.watch(tmp_path, save_every=2) as run:
        training.draws(run.steps(2), run)
    other = Training()
    monkeypatch.setattr(other.scheduler, "load_state_dict", lambda state: state["nothing of the kind"])
    with pytest.raises(ValueError, match="resume: the load broke off"):
        other.watch(tmp_path, resume=True)


def test_what_is_wrong_in_the_folder_is_raised_on_every_rank(taped, tmp_path, monkeypatch):
    """Rank 0 looks into the folder; the others are told, and do not wait for it in vain."""
    monkeypatch.setattr(Ranks, "gather", lambda self, value: [b"it holds checkpoints", b""])
    with pytest.raises(ValueError, match="rank 0: it holds checkpoints"):
        beginning._raise_on_all(Ranks(1, 2, group=object()), "")


# --- checkpoints of the script's own


def folders(tmp_path: Path, *, complete: bool):
    """A training that writes a checkpoint of its own at step 5, as a copy of ours or with its weights alone; and its folder."""
    own = tmp_path / "milestone-one"

    def write():
        if complete:
            shutil.copytree(tmp_path / "checkpoint-4", own, ignore=shutil.ignore_patterns(MANIFEST))
        else:
            own.mkdir()
            torch.save(training.model.state_dict(), own / "pytorch_model.bin")
        run_of[0].saved(own)

    run_of = []
    training = Training(dropout=0.0, at={5: write})
    return training, own, run_of


def test_a_checkpoint_of_the_scripts_own_is_judged_and_no_target_where_it_lacks_something(taped, tmp_path):
    training, own, run_of = folders(tmp_path, complete=False)
    training.at[8] = lambda: (
        until((own / MANIFEST).exists),
        taped.command(CommandKind.ROLLBACK, checkpoint_id=own.name, target_step=5),
    )
    with training.watch(tmp_path, save_every=2, keep=1) as run:
        run_of.append(run)
        training.draws(run.steps(10), run)
    facts = next(each for each in taped.checkpoints if each.checkpoint_id == own.name)
    assert (facts.state, facts.step, facts.parts, facts.nonfinite_weights) == (CheckpointState.COMPLETE, 5, ("model",), 0)
    (report,) = reports(taped)
    assert report.state is CommandState.REJECTED
    assert "it holds no optimizer and no scheduler and no rng and no position" in report.reason
    assert own.is_dir(), "it is never removed"


def test_one_that_holds_all_that_is_needed_can_be_gone_back_to(taped, tmp_path):
    training, own, run_of = folders(tmp_path, complete=True)
    training.at[8] = lambda: (
        until((own / MANIFEST).exists),
        taped.command(CommandKind.ROLLBACK, checkpoint_id=own.name, target_step=4),
    )
    with training.watch(tmp_path, save_every=2) as run:
        run_of.append(run)
        training.draws(run.steps(10), run)
    assert [report.state for report in reports(taped)] == [CommandState.RUNNING, CommandState.SUCCEEDED], taped.reports
    assert training.rows_of[8:12] == training.rows_of[4:8]


@pytest.mark.parametrize("name", ["../elsewhere", "deep/er", "checkpoint-99", ".hidden"])
def test_a_folder_that_cannot_be_shown_is_said_and_no_more(taped, tmp_path, capsys, name):
    out = tmp_path / "out"
    training = Training()
    with training.watch(out) as run:
        for step in run.steps(2):
            if step:
                (out / name).mkdir(parents=True)
                run.saved(out / name)
            training.update(training.draw())
    assert not taped.checkpoints
    assert "is not shown" in capsys.readouterr().err

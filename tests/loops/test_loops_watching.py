import json
import math
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from loops_kit import Tape, Training, loader, tape
from torch import nn

from trainer_agent.loop import HalfLoaded, watch
from trainer_agent.policy import Policy
from trainer_agent.training.session import Session
from trainer_agent.wire import series
from trainer_agent.wire.vocabulary import CommandKind, CommandState, EndReason, Phase

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def taped(monkeypatch, tmp_path) -> Tape:
    return tape(monkeypatch, tmp_path)


# --- numbers


@pytest.mark.parametrize("given", [{"folder": Path("x")}, {"rate": torch.tensor(1.0)}, {1: 2}, {"list": [1]}])
def test_attributes_that_cannot_be_sent_are_refused_before_the_first_step(given, taped, tmp_path):
    with pytest.raises(TypeError, match="attributes hold texts"):
        Training().watch(tmp_path, attributes=given)


def test_a_finite_loss_given_as_a_number_stays_what_it_is(taped, tmp_path):
    training = Training()
    with training.watch(tmp_path) as run:
        for step in run.steps(3):
            training.update(training.draw())
            run.step_ended(loss=[1e39, 0.1, 1e-60][step])  # as a float32: infinite, another number, and nothing
    assert not run.stopped
    assert taped.series(series.LOSS) == {1: 1e39, 2: 0.1, 3: 1e-60}


def test_a_strange_number_takes_no_other_of_its_call_along(taped, tmp_path):
    training = Training()
    with training.watch(tmp_path) as run:
        for _ in run.steps(2):
            training.update(training.draw())
            run.log({1: 2.0, "eval/huge": 10**400, "eval/list": [1.0], None: 1.0, "eval/good": 3.0})
            run.step_ended()
    assert taped.series("eval/good") == {0: 3.0, 1: 3.0}


def test_the_numbers_of_each_step_are_those_of_the_script(taped, tmp_path):
    training = Training()
    with training.watch(tmp_path, total_steps=7) as run:
        training.draws(run.steps(), run)
    assert taped.series(series.LOSS) == dict(training.losses)
    assert list(taped.series(series.GRAD_NORM).values()) == training.norms
    assert list(taped.series(series.LEARNING_RATE).values()) == training.rates
    assert set(taped.series(series.LOSS_SCALE)) == set(range(1, 8))
    assert set(taped.series(series.STEP_SECONDS)) == set(range(1, 8))
    start = taped.monitor.start
    assert (start.integration, start.total_steps, start.capabilities) == ("loop", 7, tuple(CommandKind))
    assert start.attributes["optimizer"] == "AdamW"
    assert start.attributes["parameters"] == sum(p.numel() for p in training.model.parameters())
    assert taped.end.reason is EndReason.FINISHED


def test_watching_changes_nothing_of_the_training(taped, tmp_path):
    straight = Training().draws(range(8))
    watched = Training()
    with watched.watch(tmp_path, save_every=3) as run:
        watched.draws(run.steps(8), run)
    assert torch.equal(straight.weights, watched.weights)
    assert straight.losses == watched.losses


@pytest.mark.parametrize("fused", [False, True])
def test_a_norm_that_the_script_does_not_tell_is_measured_before_the_update(taped, tmp_path, fused):
    """Where the optimizer itself unscales, as a fused one does, the gradients are still scaled when it begins."""
    torch.manual_seed(0)
    model, scaler = nn.Linear(4, 1), torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer, norms = torch.optim.AdamW(model.parameters(), fused=fused), []
    with watch(model, optimizer, scaler=scaler, output_dir=tmp_path) as run:
        for _ in run.steps(3):
            loss = model(torch.randn(2, 4)).square().mean()
            scaler.scale(loss).backward()
            norms.append(float(nn.utils.get_total_norm([p.grad for p in model.parameters()])) / 1024.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            run.step_ended(loss=loss)
    assert list(taped.series(series.GRAD_NORM).values()) == pytest.approx(norms)


def test_a_skipped_step_is_seen_by_the_fall_of_the_scale(taped, tmp_path):
    training = Training(poison=frozenset({3}))
    with training.watch(tmp_path) as run:
        training.draws(run.steps(5), run)
    assert taped.series(series.OVERFLOW) == {1: 0.0, 2: 0.0, 3: 1.0, 4: 0.0, 5: 0.0}
    assert math.isnan(taped.series(series.LOSS)[3])
    assert taped.end.reason is EndReason.FINISHED


def test_a_loss_told_for_each_micro_batch_is_averaged_and_a_number_will_do(taped, tmp_path):
    training = Training(scaled=False)
    with training.watch(tmp_path) as run:
        for _ in run.steps(2):
            for value in (1.0, torch.tensor(3.0)):
                run.step_ended(loss=value)
    assert taped.series(series.LOSS) == {1: 2.0, 2: 2.0}


def test_an_evaluation_has_its_phase_and_is_no_part_of_a_steps_time(taped, tmp_path):
    training, clock = Training(), [0.0]

    def evaluate():
        training.model.eval()
        with torch.no_grad():
            training.model(torch.zeros(1, 6))
        clock[0] += 100.0
        training.model.train()

    with training.watch(tmp_path) as run:
        run._driver._clock._clock = lambda: clock[0]
        run._driver._clock.go_on()
        for step in run.steps(4):
            if step == 2:
                evaluate()
            loss, norm = training.update(training.draw())
            clock[0] += 1.0
            run.step_ended(loss=loss, grad_norm=norm)
            run.log({"eval/loss": 0.5, "accuracy": torch.tensor(0.25)})
            clock[0] += 10.0
    assert list(taped.series(series.STEP_SECONDS).values())[1:] == [1.0] * 3
    assert taped.series("eval/loss") == dict.fromkeys(range(1, 5), 0.5)
    assert taped.series("train/accuracy")[1] == 0.25
    assert taped.phases[:4] == [Phase.STARTING, Phase.TRAINING, Phase.EVALUATING, Phase.TRAINING]


def test_a_script_that_forgets_to_tell_its_steps_does_not_run_for_ever(taped, tmp_path):
    training = Training(scaled=False)
    with training.watch(tmp_path) as run:
        training.over(run.batches(loader(), max_steps=12))
    assert len(training.losses) == 12
    assert set(taped.series(series.STEP_SECONDS)) == set(range(1, 13))


# --- stop and death


def test_a_stop_ends_the_loop_at_the_boundary_with_a_checkpoint(taped, tmp_path):
    training = Training(at={5: taped.stop})
    with training.watch(tmp_path) as run:
        training.draws(run.steps(100), run)
        assert run.stopped
        assert list(run.batches(loader(), epochs=1)) == []
    assert len(training.losses) == 5
    assert taped.end.reason is EndReason.STOPPED_BY_COMMAND
    assert (taped.reports[-1].state, taped.reports[-1].checkpoint_id) == (CommandState.SUCCEEDED, "checkpoint-5")
    (facts,) = taped.checkpoints
    assert facts.parts == ("model", "optimizer", "scheduler", "scaler", "rng", "position")
    assert (facts.nonfinite_weights, facts.nonfinite_optimizer) == (0, 0)


def test_a_dead_run_is_stopped_without_a_checkpoint(taped, tmp_path):
    training = Training(scaled=False, poison=frozenset({4}))
    with training.watch(tmp_path, save_every=4) as run:
        training.draws(run.steps(10), run)
    assert len(training.losses) == 4
    assert (taped.end.reason, taped.end.step) == (EndReason.STOPPED_BY_GUARD, 4)
    assert "step 4" in taped.end.detail
    assert not list(tmp_path.glob("checkpoint-*"))


def test_a_run_that_obeys_nothing_says_so(taped, tmp_path):
    training = Training(at={2: taped.stop}, poison=frozenset({3, 4, 5, 6}))
    with training.watch(tmp_path, policy=Policy.watch_only()) as run:
        training.draws(run.steps(8), run)
    assert len(training.losses) == 8
    assert taped.monitor.start.capabilities == ()
    assert "policy" in taped.monitor.start.incapable_because
    assert taped.reports[-1].state is CommandState.REJECTED


# --- ends


@pytest.mark.parametrize(
    ("error", "reason", "detail"),
    [
        (ZeroDivisionError("secret"), EndReason.FAILED, "ZeroDivisionError"),
        (KeyboardInterrupt(), EndReason.FAILED, "KeyboardInterrupt"),
        (SystemExit(3), EndReason.FAILED, "SystemExit 3"),
        (SystemExit(0), EndReason.FINISHED, ""),
    ],
)
def test_what_the_block_is_left_by_passes_through_and_is_the_end(taped, tmp_path, error, reason, detail):
    training = Training()

    def fail():
        raise error

    training.at[3] = fail
    with pytest.raises(type(error)), training.watch(tmp_path) as run:
        training.draws(run.steps(8), run)
    assert (taped.end.reason, taped.end.detail) == (reason, detail)
    assert not training.model._forward_pre_hooks


def test_a_loop_left_by_break_tells_its_last_step(taped, tmp_path):
    training = Training()
    with training.watch(tmp_path) as run:
        for step in run.steps(8):
            loss, norm = training.update(training.draw())
            run.step_ended(loss=loss, grad_norm=norm)
            if step == 3:
                break
    assert set(taped.series(series.LOSS)) == {1, 2, 3, 4}
    assert (taped.end.reason, taped.end.step, run.step) == (EndReason.FINISHED, 4, 4)


SCRIPT = """
    import json, sys, torch
    from trainer_agent.training import opening
    from trainer_agent.loop import HalfLoaded, watch
    from trainer_agent.monitor import Monitor

    class Telling(Monitor):
        def record(self, record):
            if type(record).__name__ == "RunEnded":
                print(json.dumps([record.reason, record.step, record.detail]), flush=True)
            super().record(record)

    opening.Monitor = Telling
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = watch(model, optimizer, output_dir=sys.argv[1])
    for step in run.steps(4):
        optimizer.zero_grad()
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        optimizer.step()
        run.step_ended(loss=loss)
        if step == 2:
            1 / 0
"""


def test_without_a_block_the_run_ends_with_its_process(tmp_path):
    """Here by an error; that a loop which came to its end is finished is seen with the examples."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
    environment |= {"XDG_CONFIG_HOME": str(tmp_path), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    script = textwrap.dedent(SCRIPT)
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert json.loads(done.stdout) == ["failed", 3, "ZeroDivisionError"], done.stderr


# --- harm


CALLS = (
    "begin",
    "segment_begins",
    "step_ended",
    "saved",
    "log",
    "given",
    "save_over",
    "take_target",
    "set_phase",
    "finished",
    "end",
)


@pytest.mark.parametrize("call", CALLS)
def test_no_error_of_ours_reaches_the_script(taped, tmp_path, monkeypatch, call, capsys):
    """Each call into the session fails in turn, and the checkpoints are written all the same."""

    def fail(*args, **kwargs):
        raise RecursionError("ours")

    straight = Training().draws(range(8))
    monkeypatch.setattr(Session, call, fail)
    training = Training(at={6: lambda: taped.monitors and taped.rollback(2)})
    with training.watch(tmp_path, save_every=2, keep=1) as run:
        training.draws(run.steps(8), run)
        run.log({"eval/loss": 1.0})
        run.saved(shutil.copytree(tmp_path / "checkpoint-8", tmp_path / "own"))
    assert training.losses[:6] == straight.losses[:6]
    assert len(training.losses) >= 8
    assert (tmp_path / "checkpoint-8").is_dir()
    if call != "end":  # which is not called in a run that finished
        assert "ours" in capsys.readouterr().err


def test_a_link_to_a_folder_elsewhere_is_not_shown_and_nothing_is_written_there(taped, tmp_path, capsys):
    elsewhere, training = tmp_path / "elsewhere", Training()
    elsewhere.mkdir()
    with training.watch(tmp_path / "out") as run:
        training.draws(run.steps(1), run)
        (tmp_path / "out" / "linked").symlink_to(elsewhere)
        run.saved(tmp_path / "out" / "linked")
    assert list(elsewhere.iterdir()) == []
    assert "linked is not shown" in capsys.readouterr().err


def test_nonsense_told_in_a_step_is_said_and_no_more(taped, tmp_path):
    training = Training()
    with training.watch(tmp_path) as run:
        for _ in run.steps(3):
            training.update(training.draw())
            run.log({"": 1.0, "eval/x": "much", "eval/y": 2.0})
            run.log(None)
            run.step_ended(loss="low", grad_norm="high")
    assert set(taped.series("eval/y")) == {0, 1, 2}
    assert taped.end.reason is EndReason.FINISHED


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"model": "gpt"}, TypeError, "torch.nn.Module"),
        ({"optimizer": 3}, TypeError, "optimizer"),
        ({"scheduler": 3}, TypeError, "scheduler"),
        ({"scaler": 3}, TypeError, "GradScaler"),
        ({"save_every": 0}, ValueError, "save_every is 0"),
        ({"save_every": 2.5}, TypeError, "whole number"),
        ({"resume": "out/checkpoint-5"}, TypeError, "True or False"),
        ({"keep": 0}, ValueError, "keep"),
        ({"total_steps": True}, TypeError, "total_steps"),
        ({"also": {"x": 3}}, TypeError, "x: a int has no state_dict"),
        ({"also": [3]}, TypeError, "name each thing"),
        ({"policy": "stop"}, TypeError, "Policy"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_before_the_training(tmp_path, arguments, error, said):
    parts = Training().parts
    with pytest.raises(error, match=said):
        watch(**parts | arguments, output_dir=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_iterator_is_refused_because_it_cannot_begin_again(taped, tmp_path):
    with Training().watch(tmp_path) as run, pytest.raises(TypeError, match="begin again"):
        run.batches(iter(loader()), epochs=1)


def test_weights_spread_over_processes_are_watched_and_no_more(taped, tmp_path):
    class DTensor(nn.Parameter):
        pass

    training = Training(scaled=False, at={2: taped.stop})
    training.model[0].weight.__class__ = DTensor
    with training.watch(tmp_path, save_every=2) as run:
        training.draws(run.steps(4), run)
    assert taped.monitor.start.capabilities == ()
    assert "spread over processes" in taped.monitor.start.incapable_because
    assert len(training.losses) == 4
    assert not list(tmp_path.glob("checkpoint-*"))


def test_a_load_that_breaks_off_in_the_middle_raises_because_nothing_sane_can_follow(taped, tmp_path, monkeypatch):
    training = Training(at={3: lambda: taped.rollback(2)})
    monkeypatch.setattr(torch.optim.lr_scheduler.StepLR, "load_state_dict", lambda scheduler, state: 1 / 0)
    with pytest.raises(HalfLoaded, match="broke off"), training.watch(tmp_path, save_every=2) as run:
        training.draws(run.steps(5), run)
    assert (taped.end.reason, taped.end.detail) == (EndReason.FAILED, "HalfLoaded")
    assert taped.reports[-1].state is CommandState.FAILED

"""Commands in hand-written loops: what each does to the training, in steps and in batches, with a scaler and with accelerate."""

import threading
from contextlib import suppress

import pytest
import torch
from accelerate_kit import Accelerated
from loops_kit import Tape, Training, loader, tape, until

from trainer_agent.wire import series
from trainer_agent.wire.commands import Command
from trainer_agent.wire.messages import Reply, RunEnded
from trainer_agent.wire.vocabulary import CommandKind, CommandState, DataMode, EndReason, Phase

KINDS = ("steps", "batches", "accelerate")
RATE = 0.01


@pytest.fixture
def taped(monkeypatch, tmp_path) -> Tape:
    return tape(monkeypatch, tmp_path)


def order(taped: Tape, kind: CommandKind, name: str = "c1", value: float | None = None) -> None:
    at = taped.monitor
    command = Command(name, kind, at.start.incarnation, at.segment, 600.0, 600.0, value=value)
    at._on_reply(Reply(next_seq=1, commands=(command,)))


def states(taped: Tape, name: str = "c1") -> list[CommandState]:
    return [report.state for report in taped.reports if report.command_id == name and report.state != CommandState.DELIVERED]


class Seen:
    """Rate and gradient norm that each update of an optimizer was made with."""

    def __init__(self, optimizer) -> None:
        self.rates: list[float] = []
        self.norms: list[float] = []
        self.optimizer = optimizer

    def attach(self) -> None:
        """After LossGuard's own hooks."""
        self.optimizer.register_step_pre_hook(self.see)

    def see(self, optimizer, args, kwargs) -> None:
        group = optimizer.param_groups[0]
        self.rates.append(float(group["lr"]))
        self.norms.append(float(torch.nn.utils.get_total_norm([p.grad for p in group["params"] if p.grad is not None])))


def train(kind: str, folder, steps: int, at: dict, **settings):
    """A training of a kind, told at the end of the given steps; the run and what its updates were made with."""
    made = Accelerated(dropout=0.0) if kind == "accelerate" else Training(dropout=0.0)
    optimizer = made.optimizer.optimizer if kind == "accelerate" else made.optimizer
    micro = 2 if kind == "accelerate" else 1
    seen = Seen(optimizer)
    calls = {step * micro: call for step, call in at.items()}
    made.at = {1: seen.attach, **calls} if micro == 2 else calls
    if micro == 1:
        first = calls.get(1, lambda: None)
        made.at = {**calls, 1: lambda: (seen.attach(), first())}
    with made.watch(folder, **settings) as run:
        if kind == "steps":
            made.draws(run.steps(steps), run)
        elif kind == "batches":
            made.over(run.batches(loader(), max_steps=steps), run)
        else:
            made.over(run.batches(made.loader, max_steps=steps), run)
    return run, made, seen


@pytest.mark.parametrize("kind", KINDS)
def test_a_factor_on_the_learning_rate_holds_from_the_next_step_and_leaves_the_schedule_alone(taped, tmp_path, kind):
    straight = train(kind, tmp_path / "straight", 8, {})[2]
    at = {4: lambda: order(taped, CommandKind.SET_LEARNING_RATE_FACTOR, value=0.5)}
    _, made, seen = train(kind, tmp_path / "told", 8, at)
    told = len(seen.rates) - 4
    assert seen.rates[told:] == [rate * 0.5 for rate in straight.rates[told:]]
    assert seen.rates[:told] == straight.rates[:told]
    schedule = made.schedule if kind == "accelerate" else made.scheduler
    assert made.optimizer.param_groups[0]["lr"] == schedule.get_last_lr()[0], "the schedule's own rate is back"
    assert states(taped) == [CommandState.RUNNING, CommandState.SUCCEEDED]
    logged = taped.series(series.LEARNING_RATE)
    assert logged[8] == seen.rates[-1], "the logged rate is the one that the update was made with"


@pytest.mark.parametrize("kind", KINDS)
def test_a_norm_to_clip_at_holds_from_the_next_step(taped, tmp_path, kind):
    at = {4: lambda: order(taped, CommandKind.SET_MAX_GRAD_NORM, value=0.01)}
    run, _, seen = train(kind, tmp_path, 8, at)
    told = len(seen.norms) - 4
    assert min(seen.norms[:told]) > 0.011
    assert max(seen.norms[told:]) <= 0.0101
    assert run.max_grad_norm is None, "the run is over"


@pytest.mark.parametrize("kind", KINDS)
def test_save_now_saves_at_the_end_of_the_step(taped, tmp_path, kind):
    train(kind, tmp_path, 6, {4: lambda: order(taped, CommandKind.SAVE)})
    assert states(taped) == [CommandState.RUNNING, CommandState.SUCCEEDED]
    assert taped.reports[-1].checkpoint_id == "checkpoint-4"
    assert (tmp_path / "checkpoint-4" / "lossguard.json").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_paused_run_waits_and_serves_commands_until_it_goes_on(taped, tmp_path, kind):
    """Saved and slowed down in the pause; another thread gives the orders, as the one that talks to the server does."""

    def pause():
        order(taped, CommandKind.PAUSE)
        threading.Thread(target=lead, daemon=True).start()

    def lead():
        until(lambda: taped.phases[-1] is Phase.PAUSED)
        order(taped, CommandKind.SAVE, "c2")
        until(lambda: states(taped, "c2")[-1:] == [CommandState.SUCCEEDED])
        until(lambda: taped.phases[-1] is Phase.PAUSED)
        order(taped, CommandKind.SET_LEARNING_RATE_FACTOR, "c3", 0.5)
        until(lambda: states(taped, "c3")[-1:] == [CommandState.SUCCEEDED])
        order(taped, CommandKind.RESUME, "c4")

    _, _, seen = train(kind, tmp_path, 6, {3: pause})
    for name in ("c1", "c2", "c3", "c4"):
        assert states(taped, name)[-1] is CommandState.SUCCEEDED, taped.reports
        assert [report.step for report in taped.reports if report.command_id == name][-1] == 3
    assert (tmp_path / "checkpoint-3").is_dir()
    assert seen.rates[-1] == pytest.approx(RATE * 0.9 ** (5 // 3) * 0.5)
    assert taped.end.reason is EndReason.FINISHED
    seconds = taped.series(series.STEP_SECONDS)
    assert seconds[4] < 5.0, "a pause is no part of a step's time"


def test_a_stop_in_a_pause_saves_and_ends_the_loop(taped, tmp_path):
    def pause():
        order(taped, CommandKind.PAUSE)
        threading.Thread(target=lambda: (until(lambda: taped.phases[-1] is Phase.PAUSED), taped.stop()), daemon=True).start()

    taped.stop = lambda: order(taped, CommandKind.STOP, "c2")
    run, made, _ = train("steps", tmp_path, 9, {3: pause})
    assert run.stopped
    assert len(made.losses) == 3
    assert states(taped, "c2") == [CommandState.RUNNING, CommandState.SUCCEEDED]
    assert (tmp_path / "checkpoint-3").is_dir()


@pytest.mark.parametrize("kind", KINDS)
def test_a_rollback_takes_all_that_its_command_changes(taped, tmp_path, kind):
    """From step 6 back to 2, slower and clipped; a script that stops by itself in the middle of a window is passed over."""
    changes = {"learning_rate_factor": 0.5, "max_grad_norm": 0.01}
    if kind == "batches":
        changes |= {"data": DataMode.SKIP, "skip_from_step": 4, "skip_to_step": 5}
    at = {6: lambda: taped.rollback(2, **changes)}
    _, made, seen = train(kind, tmp_path, 8, at, save_every=2)
    assert states(taped) == [CommandState.RUNNING, CommandState.SUCCEEDED], taped.reports
    again = seen.norms[-6:]
    assert max(again) <= 0.0101
    segment = taped.segments[-1]
    assert segment.attributes["max_grad_norm"] == 0.01
    assert segment.attributes["learning_rate_factor"] == 0.5
    assert taped.series(series.LEARNING_RATE, segment.segment)[3] == pytest.approx(RATE * 0.5 * 0.9 ** (2 // 3))
    assert made.optimizer.param_groups[0]["lr"] == pytest.approx(RATE * 0.9 ** (8 // 3))


def test_what_a_rollback_can_do_with_the_data_is_told_with_the_segment(taped, tmp_path):
    for run_over, can in (
        (lambda t, run: t.draws(run.steps(2), run), {"replay"}),
        (lambda t, run: t.draws(run.steps(2, random_batches=True), run), {"replay", "skip"}),
        (lambda t, run: t.over(run.batches(loader(), max_steps=2), run), {"replay", "skip", "exclude"}),
    ):
        training = Training()
        with training.watch(tmp_path / str(len(taped.monitors))) as run:
            run_over(training, run)
        segment = taped.segments[-1]
        assert taped.monitor.start.data_modes == (DataMode.REPLAY,), "before the loop no more is known"
        assert set(segment.data_modes) == can
        assert bool(segment.data_modes_because) is (len(can) < 3)


def end_at_once(run) -> None:
    gate = threading.Barrier(3)
    threads = [threading.Thread(target=lambda: (gate.wait(), run.end())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_run_ended_by_three_threads_has_one_end(taped, tmp_path):
    for number in range(20):
        end_at_once(Training().watch(tmp_path / str(number)))
    assert len(taped.of(RunEnded)) == 20


@pytest.mark.parametrize("way", ["break", "error"])
@pytest.mark.parametrize("kind", [CommandKind.PAUSE, CommandKind.STOP, CommandKind.ROLLBACK])
def test_a_loop_that_is_left_waits_for_nobody_and_what_came_last_is_not_done(taped, tmp_path, kind, way):
    training = Training()

    def leave(run) -> None:
        for step in run.steps(8):
            if step == 3:
                taped.rollback(2) if kind is CommandKind.ROLLBACK else order(taped, kind)
            loss, norm = training.update(training.draw())
            run.step_ended(loss=loss, grad_norm=norm)
            if step == 3 and way == "error":
                raise ValueError("the script's own")
            if step == 3:
                break

    with suppress(ValueError), training.watch(tmp_path, save_every=2) as run:
        leave(run)
    assert states(taped) == [CommandState.REJECTED]
    assert run.step == 4
    assert taped.series(series.LOSS).keys() == {1, 2, 3, 4}

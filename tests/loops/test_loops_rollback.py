import pytest
import torch
from loops_kit import BATCH, ROWS, Tape, Training, loader, tape

from trainer_agent.checkpoints.inspection import stored_weights, weights_digest
from trainer_agent.wire import series
from trainer_agent.wire.vocabulary import CommandState, DataMode, EndReason, Phase, SegmentCause

EPOCH = ROWS // BATCH


@pytest.fixture
def taped(monkeypatch, tmp_path) -> Tape:
    return tape(monkeypatch, tmp_path)


def values(training: Training) -> list[float]:
    return [value for _, value in training.losses]


def states(taped: Tape, name: str = "c1") -> list[CommandState]:
    return [report.state for report in taped.reports if report.command_id == name and report.state != CommandState.DELIVERED]


def test_a_replay_of_drawn_batches_equals_a_straight_run_to_the_last_bit(taped, tmp_path):
    """Dropout, scaler, schedule, and batches from three generators."""
    straight = Training().draws(range(14))
    again = Training(at={12: lambda: taped.rollback(4)})
    with again.watch(tmp_path, save_every=4) as run:
        again.draws(run.steps(14), run)
    assert torch.equal(again.weights, straight.weights)
    assert values(again) == values(straight)[:12] + values(straight)[4:]
    assert again.rows_of == straight.rows_of[:12] + straight.rows_of[4:]
    assert run.step == 14
    for segment, steps in ((1, range(1, 13)), (2, range(5, 15))):
        assert taped.series(series.LOSS, segment) == {step: values(straight)[step - 1] for step in steps}
        assert taped.series(series.GRAD_NORM, segment) == {step: straight.norms[step - 1] for step in steps}
        assert taped.series(series.LEARNING_RATE, segment) == {step: straight.rates[step - 1] for step in steps}


@pytest.mark.parametrize("back_to", [4, EPOCH, EPOCH + 4])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_replay_of_a_loaders_batches_equals_a_straight_run_to_the_last_bit(taped, tmp_path, back_to, workers):
    """Within an epoch, from its end, and from the next one back into it; the shuffle comes from the global generator."""
    straight = Training()
    straight.over(batch for _ in range(2) for batch in loader(num_workers=workers))
    again = Training(at={EPOCH + 6: lambda: taped.rollback(back_to)})
    with again.watch(tmp_path, save_every=2, keep=100) as run:
        again.over(run.batches(loader(num_workers=workers), epochs=2), run)
    assert again.rows_of == straight.rows_of[: EPOCH + 6] + straight.rows_of[back_to:]
    assert values(again) == values(straight)[: EPOCH + 6] + values(straight)[back_to:]
    assert torch.equal(again.weights, straight.weights)
    assert states(taped) == [CommandState.RUNNING, CommandState.SUCCEEDED]


def test_a_loader_with_its_own_generator_is_brought_back_too(taped, tmp_path):
    def own():
        return loader(generator=torch.Generator().manual_seed(5))

    batches = own()
    straight = Training().over(batch for _ in range(2) for batch in batches)
    again = Training(at={EPOCH + 3: lambda: taped.rollback(6)})
    with again.watch(tmp_path, save_every=2) as run:
        again.over(run.batches(own(), epochs=2), run)
    assert again.rows_of == straight.rows_of[: EPOCH + 3] + straight.rows_of[6:]
    assert torch.equal(again.weights, straight.weights)


def test_a_rollback_opens_the_segment_of_its_command_and_proves_the_weights(taped, tmp_path):
    training = Training(at={6: lambda: taped.rollback(2, max_grad_norm=0.001, new_segment=5)})
    with training.watch(tmp_path, save_every=2) as run:
        training.draws(run.steps(8), run, told=False)
    first, second = taped.segments
    assert (first.segment, first.cause, first.from_step) == (1, SegmentCause.START, 0)
    assert (second.segment, second.parent, second.from_step) == (5, 1, 2)
    assert (second.cause, second.command_id, second.checkpoint_id) == (SegmentCause.ROLLBACK, "c1", "checkpoint-2")
    assert (second.attributes["data"], second.attributes["max_grad_norm"]) == ("replay", 0.001)
    assert first.attributes["precision"] == "bf16"
    assert states(taped) == [CommandState.RUNNING, CommandState.SUCCEEDED]
    done = taped.reports[-1]
    assert (done.step, done.checkpoint_id) == (3, "checkpoint-2")
    assert done.weights_sha256 == weights_digest(stored_weights(tmp_path / "checkpoint-2"))
    assert taped.end.reason is EndReason.FINISHED
    assert Phase.ROLLING_BACK in taped.phases
    assert Phase.SAVING in taped.phases


def test_a_tighter_clipping_holds_from_the_rollback_on_without_a_line_in_the_script(taped, tmp_path):
    seen = []

    class Sgd(torch.optim.SGD):
        def step(self, closure=None):
            seen.append(float(torch.nn.utils.get_total_norm([p.grad for g in self.param_groups for p in g["params"]])))
            return super().step(closure)

    training = Training(scaled=False, at={4: lambda: taped.rollback(2, max_grad_norm=0.01)})
    training.optimizer = Sgd(training.model.parameters(), lr=0.01)
    training.scheduler = torch.optim.lr_scheduler.StepLR(training.optimizer, 3)
    with training.watch(tmp_path, save_every=2) as run:
        training.draws(run.steps(6), run)
        assert run.max_grad_norm == 0.01
    assert min(seen[:4]) > 0.02
    assert max(seen[4:]) <= 0.0101


def test_a_skip_goes_on_with_what_an_undisturbed_run_would_have_drawn_afterwards(taped, tmp_path):
    straight = Training(dropout=0.0).draws(range(20))
    order = {9: lambda: taped.rollback(4, data=DataMode.SKIP, skip_from_step=7)}
    again = Training(dropout=0.0, at=order)
    with again.watch(tmp_path, save_every=4) as run:
        again.draws(run.steps(14, random_batches=True), run)
    assert again.rows_of == straight.rows_of[:9] + straight.rows_of[4:6] + straight.rows_of[9:17]
    second = taped.segments[1].attributes
    assert (second["data"], second["skip_from_step"], second["skip_to_step"]) == ("skip", 7, 9)


@pytest.mark.parametrize("window", [{}, {"skip_from_step": 4, "skip_to_step": 5}])
def test_a_skip_passes_over_exactly_the_batches_of_the_window(taped, tmp_path, window):
    straight = Training().over(loader())
    first, last = window.get("skip_from_step", 3), window.get("skip_to_step", 7)
    order = {7: lambda: taped.rollback(2, data=DataMode.SKIP, **window)}
    again = Training(at=order)
    with again.watch(tmp_path, save_every=2) as run:
        again.over(run.batches(loader(), epochs=1), run)
    kept = [rows for step, rows in enumerate(straight.rows_of, 1) if step > 2 and not first <= step <= last]
    assert again.rows_of == straight.rows_of[:7] + kept


def test_a_skip_is_refused_where_the_script_takes_its_batches_itself(taped, tmp_path):
    training = Training(at={5: lambda: taped.rollback(2, data=DataMode.SKIP)})
    with training.watch(tmp_path, save_every=2) as run:
        training.draws(run.steps(8), run)
    assert states(taped) == [CommandState.REJECTED]
    assert "random_batches=True" in taped.reports[-1].reason
    assert len(training.losses) == 8


def test_two_skips_after_each_other_both_hold(taped, tmp_path):
    straight = Training(dropout=0.0).draws(range(30))
    order = {
        6: lambda: taped.rollback(4, data=DataMode.SKIP),  # 5, 6 passed over
        9: lambda: taped.rollback(2, "c2", data=DataMode.SKIP, skip_from_step=6),  # replays 3, 4, then 7; passes over the rest
    }
    again = Training(dropout=0.0, at=order)
    with again.watch(tmp_path, save_every=2) as run:
        again.draws(run.steps(9, random_batches=True), run)
    drawn = straight.rows_of
    assert again.rows_of == drawn[:6] + drawn[6:9] + drawn[2:4] + drawn[6:7] + drawn[9:13]


def test_a_checkpoint_that_does_not_fit_is_refused_and_nothing_is_touched(taped, tmp_path):
    """The script's model has grown since the checkpoint was saved."""
    straight = Training(dropout=0.0).draws(range(8))

    def grow():
        training.model.register_buffer("more", torch.zeros(2))
        taped.rollback(2)

    training = Training(dropout=0.0, at={5: grow})
    with training.watch(tmp_path, save_every=2) as run:
        training.draws(run.steps(8), run)
    assert states(taped) == [CommandState.RUNNING, CommandState.FAILED]
    assert "it has no more" in taped.reports[-1].reason
    assert values(training) == values(straight)


def test_what_also_names_comes_back_with_the_rest(taped, tmp_path):
    own, average = torch.Generator().manual_seed(1), torch.optim.swa_utils.AveragedModel(torch.nn.Linear(1, 1))
    drawn = []

    class Drawing(Training):
        def draw(self):
            drawn.append(int(torch.randint(1000, (), generator=own)))
            average.n_averaged += 1
            return super().draw()

    training = Drawing(at={6: lambda: taped.rollback(2)})
    with training.watch(tmp_path, save_every=2, also={"own": own, "average": average}) as run:
        training.draws(run.steps(8), run)
    assert drawn[6:10] == drawn[2:6]
    assert int(average.n_averaged) == 8


def test_a_loader_is_not_read_again_up_to_the_place_where_that_can_be_avoided(taped, tmp_path):
    fetched = []

    class Counting(torch.utils.data.Dataset):
        def __len__(self):
            return ROWS

        def __getitem__(self, index):
            fetched.append(index)
            return (torch.full((6,), float(index)),)

    batches = torch.utils.data.DataLoader(Counting(), batch_size=BATCH, shuffle=True)
    training = Training(at={9: lambda: fetched.append("back") or taped.rollback(8)})
    with training.watch(tmp_path, save_every=2) as run:
        training.over(run.batches(batches, epochs=1), run)
    assert len(fetched[fetched.index("back") :]) == 1 + BATCH * 3  # the one before the place, and the two that are left

"""The samples recorded for a hand-written loop are those the script got, and what they cost the training thread."""

import sys
import time
from pathlib import Path

import pytest
import torch
import training_kit as kit
from torch.utils.data import DataLoader

from trainer_agent.data.carried import Ids
from trainer_agent.data.samples import Taking, install
from trainer_agent.ledger.files import readers
from trainer_agent.ledger.ledger import Ledger
from trainer_agent.wire import series
from trainer_agent.wire.messages import StepSamples
from trainer_agent.wire.vocabulary import CommandState, DataMode

sys.path.append(str(Path(__file__).parents[1] / "loops"))
import loops_kit


@pytest.fixture
def tape(monkeypatch, tmp_path):
    return loops_kit.tape(monkeypatch, tmp_path / "config")


def recorded(folder):
    (reader,) = readers(folder / ".lossguard")
    return {found.row.step: list(found.row.samples) for found in reader.effective()}


def trained(folder, loader, accumulation, steps, of=None):
    """Step to rows, and the types of the batches that the script got."""
    model, rows, batch, kinds = torch.nn.Linear(1, 1), {}, [], set()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with kit_watch(model, optimizer, folder) as run:
        for number, items in enumerate(run.batches(loader, max_steps=steps, document_of=of)):
            batch += kit.row_numbers(items["input_ids"])
            kinds.add(type(items))
            loss = model(items["input_ids"][:, :1].float()).square().mean()
            loss.backward()
            if (number + 1) % accumulation == 0:
                optimizer.step()
                optimizer.zero_grad()
                run.step_ended(loss=loss)
                rows[run.step + 1], batch = batch, []
    return rows, kinds


def kit_watch(model, optimizer, folder):
    from trainer_agent.loop import watch

    return watch(model, optimizer, output_dir=folder)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("shuffle", [True, False])
def test_ids_recorded_are_ids_the_script_got_also_where_the_last_batch_is_short(tmp_path, tape, workers, accumulation, shuffle):
    data = kit.Rows(22)  # 5 full batches and one of 2
    loader = DataLoader(data, 4, shuffle=shuffle, num_workers=workers)
    rows, kinds = trained(tmp_path / "run", loader, accumulation, 8, of=lambda number: number // 5)
    assert recorded(tmp_path / "run") == rows
    assert kinds == {dict}
    assert loader.dataset is data, "the loader is the script's own again"
    (reader,) = readers(tmp_path / "run" / ".lossguard")
    assert all(f.row.documents == tuple(str(i // 5) for i in f.row.samples) for f in reader.effective())


def test_after_a_rollback_and_a_restart_what_counts_is_what_was_trained_on(tmp_path, tape):
    """Rows are told by their first column; the window that is skipped is in the first segment only."""
    folder = tmp_path / "run"

    def order():
        loops_kit.until(lambda: {4, 8, 12} <= {saved.step for saved in tape.checkpoints})  # however slow the disk is
        tape.rollback(8, data=DataMode.SKIP, skip_from_step=9, skip_to_step=10)

    first = loops_kit.Training(at={13: order})
    with first.watch(folder, save_every=4) as run:
        first.over(run.batches(loops_kit.loader(), max_steps=17), run)
    assert [report.state for report in tape.reports][-1] is CommandState.SUCCEEDED, tape.reports
    second = loops_kit.Training()
    with second.watch(folder, save_every=4, resume=True) as run:
        begins = run.step
        second.over(run.batches(loops_kit.loader(), max_steps=22), run)
    expected = dict(enumerate(first.rows_of[:8] + first.rows_of[13:], 1))
    expected = {step: rows for step, rows in expected.items() if step <= begins} | dict(enumerate(second.rows_of, begins + 1))
    assert recorded(folder) == expected
    assert len(expected) == 22
    (reader,) = readers(folder / ".lossguard")
    assert [list(row.samples) for row in reader.rows(1, 9, 13)] == first.rows_of[8:13]


def test_what_it_costs_the_training_thread(tmp_path, figure):
    sent = []
    ledger = Ledger(tmp_path, "r", 0, sent.append)
    ledger.start()
    batches = [Ids(tuple(range(k, k + 32))) for k in range(4)]
    values = {series.LOSS: 1.0, series.LEARNING_RATE: 1e-3, series.LOSS_SCALE: 1024.0}
    costs = []
    for step in range(1, 3001):
        begun = time.perf_counter()
        ledger.begin_step()
        for ids in batches:
            ledger.saw(ids)
        ledger.numbers(step, values)
        ledger.step_ended(step, 1.0)
        costs.append(time.perf_counter() - begun)
    ledger.close()
    assert sum(r.last_step - r.first_step + 1 for r in sent if isinstance(r, StepSamples)) == 3000
    figure("ledger", "a step of 4 batches of 32 in the ledger, median", sorted(costs)[1500] * 1e6, unit="us")
    plain, carrying = (DataLoader(list(range(32 * 600)), 32, collate_fn=tuple) for _ in range(2))
    install(carrying)
    took = {False: [], True: []}
    sources = {False: iter(plain), True: Taking(iter(carrying), lambda *_: None)}
    for _ in range(600):  # in turn, so that a busy machine is as busy for both
        for watched, batches in sources.items():
            begun = time.perf_counter()
            next(batches)
            took[watched].append(time.perf_counter() - begun)
    extra = (sorted(took[True])[300] - sorted(took[False])[300]) * 1e6
    figure("ledger", "carrying the ids of a batch of 32 without workers, median", extra, unit="us")

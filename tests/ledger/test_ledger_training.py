"""The samples recorded for a step are those the model saw in it, as rows tell by their content."""

import json
import random

import pytest
import training_kit as kit
from torch.utils.data import Sampler

from trainer_agent.cli import main
from trainer_agent.hf import guarded_train
from trainer_agent.ledger.files import readers
from trainer_agent.wire.messages import StepSamples
from trainer_agent.wire.samples import decode, from_text
from trainer_agent.wire.vocabulary import DataMode


@pytest.fixture
def tape(monkeypatch, tmp_path):
    return kit.tape(monkeypatch, tmp_path)


def recorded(folder, rank=0, segment=None):
    """Step to samples, as the ledger has them."""
    (reader,) = [each for each in readers(folder / ".lossguard") if each.rank == rank]
    if segment is not None:
        return {row.step: list(row.samples) for row in reader.rows(segment)}
    return {found.row.step: list(found.row.samples) for found in reader.effective()}


class Backwards(Sampler):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return iter(range(self.count - 1, -1, -1))

    def __len__(self):
        return self.count


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("sampling", ["random", "sequential"])
def test_ids_recorded_are_ids_the_model_saw_also_where_the_last_batch_is_short(tmp_path, tape, workers, accumulation, sampling):
    book = kit.Book()
    trainer = kit.trainer(
        tmp_path,
        book,
        data=kit.Rows(46),  # 11 full batches and one of 2
        max_steps=15 if accumulation == 1 else 6,
        gradient_accumulation_steps=accumulation,
        dataloader_num_workers=workers,
        train_sampling_strategy=sampling,
        save_strategy="no",
    )
    guarded_train(trainer)
    assert min(map(len, book.rows.values())) < 4 * accumulation, "a short step was among them"
    assert recorded(tmp_path) == book.rows


class WithDocuments(kit.Rows):
    def __getitem__(self, index):
        return super().__getitem__(index) | {"document_id": f"doc-{index // 5}"}


def test_documents_are_recorded_and_the_model_and_overrides_never_see_an_id(tmp_path, tape, capsys):
    seen = []

    class Own(kit.Trainer):
        def get_batch_samples(self, epoch_iterator, num_batches, device):
            batches, items = super().get_batch_samples(epoch_iterator, num_batches + 1, device)
            seen.extend(batches)
            return batches[:-1], items  # throws one away

    book = kit.Book()
    trainer = kit.trainer(tmp_path, book, kind=Own, data=WithDocuments(400), max_steps=5, remove_unused_columns=True)
    guarded_train(trainer)
    assert {type(batch) for batch in seen} == {dict}
    assert {key for batch in seen for key in batch} == {"input_ids", "labels"}
    assert recorded(tmp_path) == book.rows
    (reader,) = readers(tmp_path / ".lossguard")
    assert all(f.row.documents == tuple(f"doc-{i // 5}" for i in f.row.samples) for f in reader.effective())
    assert type(trainer.train_dataset) is WithDocuments
    assert "get_batch_samples" not in vars(trainer)
    capsys.readouterr()
    assert main(["ledger", str(tmp_path), "--step", "2", "--json"]) == 0
    (step,) = json.loads(capsys.readouterr().out)["steps"]
    assert step["samples"] == book.rows[2]
    some = book.rows[4][0]
    assert main(["ledger", str(tmp_path), "--sample", str(some), "--json"]) == 0
    assert [each["step"] for each in json.loads(capsys.readouterr().out)["steps"]] == [4]
    assert main(["ledger", str(tmp_path), "--document", f"doc-{some // 5}"]) == 0
    assert "step 4" in capsys.readouterr().out
    assert main(["ledger", str(tmp_path)]) == 0
    assert "steps 1 to 5" in capsys.readouterr().out
    assert main(["ledger", str(tmp_path), "--step", "2"]) == 0
    documents = [f"doc-{each // 5}" for each in book.rows[2]]
    assert capsys.readouterr().out.split("documents ")[1].split() == documents, "one for each sample, in order"
    for asked, words in (
        (("--sample", "399999"), "Nothing of sample 399999 is recorded"),
        (("--step", "6"), "Nothing of step 6 is recorded"),
        (("--step", "2", "--segment", "9"), "Nothing of step 2 in segment 9"),
        (("--run", "other", "--step", "2"), "No run other is in the ledger"),
    ):
        assert main(["ledger", str(tmp_path), *asked]) == 1
        assert words in capsys.readouterr().err
    for folder, words in ((tmp_path / "nowhere", "There is no folder"), (tmp_path / "checkpoint-5", "holds no ledger")):
        assert main(["ledger", str(folder), "--step", "2"]) == main(["ledger", str(folder)]) == 1
        assert words in capsys.readouterr().err


class InColumns(kit.Rows):
    """As a data set of columns, of which the Trainer leaves only those that the model wants."""

    column_names = ("input_ids", "labels", "url")

    def with_format(self, kind):
        return self

    def select_columns(self, names):
        assert names == ["url"]
        return [{"url": f"page-{i // 7}"} for i in range(len(self))]


def test_documents_out_of_a_column_that_the_trainer_takes_off(tmp_path, tape):
    book = kit.Book()
    trainer = kit.trainer(tmp_path, book, data=InColumns(400), max_steps=3, dataloader_num_workers=2)
    loader = kit.Trainer.get_train_dataloader

    class Without(kit.Rows):
        """What the Trainer makes of it."""

        column_names = ("input_ids", "labels")

    def without_column(self):
        made = loader(self)
        object.__setattr__(made.base_dataloader, "dataset", Without(400))
        return made

    trainer.get_train_dataloader = without_column.__get__(trainer)
    guarded_train(trainer, document_of="url")
    (reader,) = readers(tmp_path / ".lossguard")
    found = {each.row.step: each.row for each in reader.effective()}
    assert {step: list(row.samples) for step, row in found.items()} == book.rows
    assert all(row.documents == tuple(f"page-{i // 7}" for i in row.samples) for row in found.values())


def test_a_loader_of_the_scripts_own_is_watched_too(tmp_path, tape):
    class Own(kit.Trainer):
        def get_train_dataloader(self):
            from torch.utils.data import DataLoader

            return DataLoader(self.train_dataset, 4, sampler=Backwards(400), collate_fn=self.data_collator)

    book = kit.Book()
    trainer = kit.trainer(tmp_path, book, kind=Own, max_steps=3)
    guarded_train(trainer)
    assert recorded(tmp_path) == book.rows == {1: [399, 398, 397, 396], 2: [395, 394, 393, 392], 3: [391, 390, 389, 388]}


def test_after_a_rollback_and_a_restart_each_segment_has_its_own_and_the_effective_curve_is_what_counts(tmp_path, tape):
    book, first = kit.Book(), {}

    def back(**_):
        first.update(book.rows)
        tape.rollback(4, data=DataMode.SKIP, skip_from_step=5, skip_to_step=6)

    settings = {"save_steps": 4, "dataloader_num_workers": 0, "data": kit.Rows(400)}
    trainer = kit.trainer(tmp_path, book, kit.At(7, back), max_steps=9, **settings)
    guarded_train(trainer)
    assert recorded(tmp_path, segment=1) == {step: rows for step, rows in first.items() if step <= 7} | {
        7: book_of_7(first, tmp_path)
    }
    again = kit.Book()
    resumed = kit.trainer(tmp_path, again, max_steps=11, **settings)
    guarded_train(resumed, resume_from_checkpoint=True)
    counted = recorded(tmp_path)
    assert sorted(counted) == list(range(1, 12))
    assert {step: counted[step] for step in again.rows} == again.rows
    assert {step: counted[step] for step in range(1, 5)} == {step: first[step] for step in range(1, 5)}
    before_restart = min(again.rows)
    assert {s: counted[s] for s in range(5, before_restart)} == {s: book.rows[s] for s in range(5, before_restart)}
    told = [row for each in tape.of(StepSamples) for row in decode(from_text(each.body))]
    assert {row.step: list(row.samples) for row in told if row.step >= before_restart} == again.rows


def test_the_command_line_names_the_segment_in_which_a_step_was_left_behind(tmp_path, capsys):
    from trainer_agent.ledger.files import LedgerWriter, folder_of
    from trainer_agent.wire.messages import SegmentStarted
    from trainer_agent.wire.samples import StepRow, blocks, encode
    from trainer_agent.wire.vocabulary import SegmentCause

    written = LedgerWriter(folder_of(tmp_path / ".lossguard", "r", 0))
    for number, (from_step, last) in enumerate([(0, 9), (4, 6)], 1):
        cause = SegmentCause.ROLLBACK if number > 1 else SegmentCause.START
        written.begin(SegmentStarted(number, from_step, cause, 0.0, number - 1 or None))
        for some in blocks([StepRow(step, (step,)) for step in range(from_step + 1, last + 1)]):
            written.append(encode(some), some[0].step, some[-1].step)
    assert main(["ledger", str(tmp_path), "--step", "8"]) == 1
    assert "left behind in segment 1: --segment 1" in capsys.readouterr().err
    assert main(["ledger", str(tmp_path), "--step", "8", "--segment", "1"]) == 0


def book_of_7(first, folder):
    """The step at whose end the run was left is in the ledger as well."""
    return recorded(folder, segment=1)[7]


def test_a_full_ledger_loses_its_oldest_files_and_says_what_is_left(tmp_path):
    from trainer_agent.ledger.files import LedgerReader, LedgerWriter, folder_of
    from trainer_agent.wire.messages import SegmentStarted
    from trainer_agent.wire.samples import StepRow, encode
    from trainer_agent.wire.vocabulary import SegmentCause

    folder = folder_of(tmp_path, "r", 0)
    writer = LedgerWriter(folder, most_bytes=20_000, file_bytes=4_000)
    drawn = random.Random(0)
    for segment, start in ((1, 0), (2, 50)):
        writer.begin(SegmentStarted(segment, start, SegmentCause.START, 0.0, segment - 1 or None))
        for step in range(start + 1, start + 61):
            writer.append(encode([StepRow(step, tuple(drawn.randrange(10**6) for _ in range(100)))]), step, step)
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 20_000
    steps = [found.row.step for found in LedgerReader(folder).effective()]
    assert steps[-1] == 110
    assert steps == list(range(steps[0], 111))


def test_a_torn_end_is_passed_over_and_the_next_process_goes_on(tmp_path):
    from trainer_agent.ledger.files import LedgerReader, LedgerWriter, folder_of
    from trainer_agent.wire.messages import SegmentStarted
    from trainer_agent.wire.samples import StepRow, encode
    from trainer_agent.wire.vocabulary import SegmentCause

    folder, head = folder_of(tmp_path, "r", 0), SegmentStarted(1, 0, SegmentCause.START, 0.0)
    first = LedgerWriter(folder)
    first.begin(head)
    for step in (1, 2, 3):
        first.append(encode([StepRow(step, (step,))]), step, step)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    for cut in range(len(whole) - 1, 8, -7):
        path.write_bytes(whole[:cut])
        steps = [row.step for row in LedgerReader(folder).rows(1)]
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) < 3
    second = LedgerWriter(folder)
    second.begin(head)
    second.append(encode([StepRow(4, (4,))]), 4, 4)
    assert [row.step for row in LedgerReader(folder).rows(1)][-1] == 4


def test_samples_make_room_in_a_full_spool_as_points_do_and_all_else_stays():
    from trainer_agent.recording.segments import _thinned
    from trainer_agent.wire.messages import Dropped, Numbered, SaveFailed

    told = [Numbered(1, SaveFailed(1, 0.0, "x")), *(Numbered(n, StepSamples(1, n, n, 0.0, "")) for n in (2, 3))]
    kept, lost = _thinned(told)
    assert [(each.seq, type(each.record)) for each in kept] == [(1, SaveFailed), (2, Dropped)]
    assert (kept[1].record.count, lost) == (2, 2)

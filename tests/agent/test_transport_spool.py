"""The spool on a real disk: order, torn tails, bounds, a disk that refuses, locks."""

import os
import subprocess
import sys

import pytest

from trainer_agent.errors import NotASpool, SpoolInUse
from trainer_agent.recording import spool as spool_module
from trainer_agent.recording.entries import Points, last_seq
from trainer_agent.recording.segments import leftovers
from trainer_agent.recording.spool import Spool
from trainer_agent.wire.messages import Dropped, Numbered, Report, RunStart
from trainer_agent.wire.vocabulary import CommandState

START = RunStart("run", "inc", "p", "n", attributes={"lr": 1e-5})


def points(seq: int) -> Points:
    return Points(seq, 1.0 * seq, 1, seq, ("train/loss", "train/grad_norm"), (float("nan"), 0.1 * seq))


def report(seq: int) -> Numbered:
    return Numbered(seq, Report(f"cmd-{seq}", CommandState.DELIVERED, 1.0))


def numbers(entries) -> list[int]:
    return [number for entry in entries for number in range(entry.seq, last_seq(entry) + 1)]


def kinds(entries) -> list[str]:
    return [type(entry.record).__name__ if isinstance(entry, Numbered) else "Points" for entry in entries]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "spool" / "inc"


def write(spool: Spool, first: int, last: int) -> None:
    for seq in range(first, last + 1):
        spool.write([points(seq)])


def test_entries_come_back_from_memory_and_from_another_process(folder):
    spool = Spool.create(folder, START)
    write(spool, 1, 20)
    assert numbers(spool.entries(5)) == list(range(5, 21))
    spool.close()
    adopted = Spool.adopt(folder)
    assert adopted.start == START
    assert [repr(entry) for entry in adopted.entries(1)] == [repr(points(seq)) for seq in range(1, 21)]
    assert adopted.waiting == 20
    adopted.close()


def test_what_has_left_the_memory_is_read_from_the_disk(folder, monkeypatch):
    monkeypatch.setattr(spool_module, "HOT_ENTRIES", 8)
    spool = Spool(folder, START, segment_bytes=500)
    write(spool, 1, 100)
    assert len(list(folder.glob("*.seg"))) > 5
    assert numbers(spool.entries(1)) == list(range(1, 101))
    assert numbers(spool.entries(50)) == list(range(50, 101))
    spool.close()


def test_only_acknowledged_files_are_deleted_and_the_folder_goes_at_the_end(folder):
    spool = Spool(folder, START, segment_bytes=500)
    write(spool, 1, 100)
    before = len(list(folder.glob("*.seg")))
    spool.acknowledge(60)
    spool.tend()
    assert 0 < len(list(folder.glob("*.seg"))) < before
    assert numbers(spool.entries(60)) == list(range(60, 101))
    spool.acknowledge(101)
    spool.close()
    assert not folder.exists()


def test_a_torn_tail_is_cut_at_the_next_open_wherever_it_was_torn(folder):
    spool = Spool.create(folder, START)
    write(spool, 1, 3)
    spool.close()
    (path,) = folder.glob("*.seg")
    whole = path.read_bytes()
    size = (len(whole) - 8) // 3
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        adopted = Spool.adopt(folder)
        kept = max(0, length - 8) // size
        assert numbers(adopted.entries(1)) == list(range(1, kept + 1))
        adopted.abandon()
        assert not kept or path.stat().st_size == 8 + kept * size


def test_damage_in_the_middle_becomes_a_counted_drop(folder):
    spool = Spool(folder, START, segment_bytes=400)
    write(spool, 1, 30)
    spool.close()
    second = sorted(folder.glob("*.seg"))[1]
    data = bytearray(second.read_bytes())
    data[20] ^= 0xFF
    second.write_bytes(bytes(data))
    adopted = Spool.adopt(folder)
    found = list(adopted.entries(1))
    assert numbers(found) == list(range(1, 31))
    assert kinds(found).count("Dropped") == 1
    adopted.close()


def test_past_its_bound_the_oldest_points_become_one_drop_and_records_stay(folder, monkeypatch):
    monkeypatch.setattr(spool_module, "HOT_ENTRIES", 8)
    spool = Spool(folder, START, max_bytes=6_000, segment_bytes=1_000)
    spool.write([points(1), report(2), points(3)])
    for seq in range(4, 400):
        spool.write([points(seq)])
        spool.tend()
    found = list(spool.entries(1))
    assert numbers(found) == list(range(1, 400))
    assert report(2) in found
    assert sum(file.stat().st_size for file in folder.glob("*.seg")) < 9_000
    lost = sum(entry.record.count for entry in found if isinstance(entry, Numbered) and isinstance(entry.record, Dropped))
    assert lost == spool.dropped > 200
    spool.close()


def test_a_disk_that_refuses_costs_nothing_while_memory_lasts_and_recovers(tmp_path):
    blocked = tmp_path / "spool"
    blocked.write_text("a file where the folder should be")
    now = [0.0]
    spool = Spool(blocked / "inc", START, clock=lambda: now[0])
    write(spool, 1, 10)
    assert spool.trouble
    assert numbers(spool.entries(1)) == list(range(1, 11))
    blocked.unlink()
    now[0] += 10
    write(spool, 11, 12)
    assert not spool.trouble
    spool.close()
    adopted = Spool.adopt(blocked / "inc")
    assert numbers(adopted.entries(1)) == list(range(1, 13))
    adopted.close()


def test_a_disk_that_refuses_for_long_loses_points_by_count_and_never_records(tmp_path, monkeypatch):
    monkeypatch.setattr(spool_module, "HOT_ENTRIES", 40)
    blocked = tmp_path / "spool"
    blocked.write_text("a file where the folder should be")
    spool = Spool(blocked / "inc", START)
    spool.write([report(1)])
    write(spool, 2, 500)
    found = list(spool.entries(1))
    assert numbers(found) == list(range(1, 501))
    assert found[0] == report(1)
    assert spool.dropped == sum(entry.record.count for entry in found if kinds([entry]) == ["Dropped"]) > 400


def test_a_write_that_fails_half_way_is_cut_off_again(folder, monkeypatch):
    now = [0.0]
    spool = Spool(folder, START, clock=lambda: now[0])
    write(spool, 1, 5)
    real = os.write
    monkeypatch.setattr(
        os,
        "write",
        lambda handle, data: (
            (_ for _ in ()).throw(OSError(28, "No space left on device")) if len(data) < 60 else real(handle, data[:50])
        ),
    )
    write(spool, 6, 6)
    assert spool.trouble == "No space left on device"
    monkeypatch.undo()
    now[0] += 10
    write(spool, 7, 7)
    spool.close()
    adopted = Spool.adopt(folder)
    assert kinds(adopted.entries(1)) == ["Points"] * 7
    adopted.close()


def test_two_processes_never_share_a_spool(folder):
    spool = Spool.create(folder, START)
    write(spool, 1, 1)
    with pytest.raises(SpoolInUse):
        Spool.adopt(folder)
    code = "import sys; from pathlib import Path; from trainer_agent.recording.spool import Spool; Spool.adopt(Path(sys.argv[1]))"
    other = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False)
    assert "SpoolInUse" in other.stderr
    spool.close()
    Spool.adopt(folder).close()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"start": {}}', b'{"start": {"run_id": 1}}', b"\xff", b"[" * 100_000])
def test_a_head_that_is_damaged_is_not_a_spool(folder, content):
    folder.mkdir(parents=True)
    (folder / "start.json").write_bytes(content)
    with pytest.raises(NotASpool):
        Spool.adopt(folder)
    assert leftovers(folder.parent) == [folder]

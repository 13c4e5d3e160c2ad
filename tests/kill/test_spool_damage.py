"""Bits flipped, bytes zeroed, files cut, anywhere in a spool: what is lost is what was hit, counted; nothing is invented."""

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainer_agent.recording.entries import MAGIC, Points, frame, last_seq
from trainer_agent.recording.salvage import Damage, scan
from trainer_agent.recording.segments import leftovers
from trainer_agent.recording.spool import Spool
from trainer_agent.wire.messages import Dropped, Numbered, Report, RunStart
from trainer_agent.wire.vocabulary import CommandState

START = RunStart("run", "inc", "p", "n")
COUNT = 60
NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_0001))[0]


def entry(seq: int):
    if seq % 7 == 0:
        return Numbered(seq, Report(f"cmd-{seq}", CommandState.DELIVERED, 1.0, reason="x" * seq))
    value = {1: NAN, 2: float("inf"), 3: -0.0}.get(seq % 5, 1.0 / seq)
    return Points(seq, 1.5 * seq, 1, seq, ("train/loss", "train/grad_norm")[: 1 + seq % 2], (value, seq + 0.5)[: 1 + seq % 2])


ENTRIES = {seq: frame(entry(seq)) for seq in range(1, COUNT + 1)}


def make(folder: Path) -> list[Path]:
    """A spool of several files, left by a process that died."""
    spool = Spool(folder, START, segment_bytes=700)
    for seq in range(1, COUNT + 1, 4):
        spool.write([entry(each) for each in range(seq, seq + 4)])
    spool.abandon()
    return sorted(folder.glob("*.seg"))


def frames_of(path: Path) -> list[tuple[int, int, int]]:
    """Start, end and number of each frame of a file that is whole."""
    return [(place.start, place.end, place.first) for place in scan(path.read_bytes(), int(path.stem))]


def check(folder: Path, hit: set[int], tail: set[int]) -> None:
    """That all but `hit` comes back bit by bit, and `hit` as counted drops; `tail` may be missing instead."""
    adopted = Spool.adopt(folder)
    found = list(adopted.entries(1))
    numbers = [number for each in found for number in range(each.seq, last_seq(each) + 1)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert set(range(1, COUNT + 1)) - set(numbers) <= tail
    drops = [each for each in found if isinstance(each, Numbered) and isinstance(each.record, Dropped)]
    lost = {number for each in drops for number in range(each.seq, last_seq(each) + 1)}
    assert {number for number in lost if number <= COUNT} <= hit
    assert hit - lost <= tail
    assert adopted.dropped == len(lost)
    for each in found:
        if each not in drops:
            assert frame(each) == ENTRIES[each.seq]
    if lost - tail:
        assert adopted.damage
        assert list(folder.glob("*.damaged"))
    adopted.abandon()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), min_size=1, max_size=4))
def test_flipped_bits_cost_the_frames_they_hit_and_are_counted(flips):
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "inc"
        files = make(folder)
        places = [(path, *place) for path in files for place in frames_of(path)]
        total = sum(path.stat().st_size for path in files)
        hit: set[int] = set()
        for where, bit in set(flips):
            offset = int(where * total)
            for path in files:
                if offset < path.stat().st_size:
                    break
                offset -= path.stat().st_size
            data = bytearray(path.read_bytes())
            data[offset] ^= 1 << bit
            path.write_bytes(data)
        for path, start, end, seq in places:
            if path.read_bytes()[start:end] != ENTRIES[seq]:
                hit.add(seq)
        check(folder, hit, {seq for seq in range(1, COUNT + 1) if all(later in hit for later in range(seq, COUNT + 1))})


@settings(max_examples=30, deadline=None)
@given(
    which=st.integers(0, 20), begin=st.floats(0, 1), length=st.integers(1, 400), fill=st.sampled_from([b"\0", b"\xff", b"cut"])
)
def test_a_stretch_of_zeroes_or_a_file_cut_short_costs_what_lay_there(which, begin, length, fill):
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "inc"
        files = make(folder)
        path = files[which % (len(files) - 1)]  # not the last, whose end is the torn tail's affair
        places = frames_of(path)
        data = path.read_bytes()
        start = int(begin * (len(data) - 1))
        stop = min(len(data), start + length)
        path.write_bytes(data[:start] if fill == b"cut" else data[:start] + fill * (stop - start) + data[stop:])
        now = path.read_bytes()
        check(folder, {seq for first, end, seq in places if now[first:end] != ENTRIES[seq]}, set())


def test_one_damaged_frame_is_one_drop_of_its_number_and_its_bytes_are_kept(tmp_path):
    folder = tmp_path / "inc"
    path = make(folder)[1]
    start, end, seq = frames_of(path)[2]
    data = bytearray(path.read_bytes())
    data[start + 2] ^= 0x04  # its length, so that where the next one begins has to be found
    path.write_bytes(data)
    adopted = Spool.adopt(folder)
    found = list(adopted.entries(1))
    assert len(found) == COUNT
    (lost,) = [each for each in found if isinstance(each, Numbered) and isinstance(each.record, Dropped)]
    assert (lost.seq, lost.record.count) == (seq, 1)
    assert (folder / f"{path.stem}-{start}.damaged").read_bytes() == bytes(data[start:end])
    assert adopted.dropped == 1
    assert "1 records" in adopted.damage[0]
    assert len(list(adopted.entries(1))) == COUNT  # read again: neither counted nor told a second time
    assert (adopted.dropped, len(adopted.damage)) == (1, 1)
    adopted.acknowledge(COUNT + 1)
    adopted.close()
    assert sorted(each.name for each in folder.iterdir()) == [f"{path.stem}-{start}.damaged", "sent.json"]
    assert leftovers(folder.parent) == []


def test_damage_in_a_file_that_is_being_thinned_is_kept_and_counted_too(tmp_path, monkeypatch):
    monkeypatch.setattr("trainer_agent.recording.spool.HOT_ENTRIES", 4)
    spool = Spool(tmp_path / "inc", START, max_bytes=1500, segment_bytes=700)
    for seq in range(1, 31):
        spool.write([entry(seq)])
    path = min((tmp_path / "inc").glob("*.seg"))
    start, _, seq = frames_of(path)[6]
    assert seq == 7  # a record, which thinning would have kept
    data = bytearray(path.read_bytes())
    data[start + 40] ^= 1
    path.write_bytes(data)
    spool.tend()
    found = list(spool.entries(1))
    lost = sum(each.record.count for each in found if isinstance(each, Numbered) and isinstance(each.record, Dropped))
    assert spool.dropped == lost > 1
    assert (tmp_path / "inc" / f"{path.stem}-{start}.damaged").exists()
    spool.close()


def test_a_file_whose_first_bytes_are_damaged_gives_up_nothing(tmp_path):
    path = make(tmp_path / "inc")[0]
    path.write_bytes(b"X" + path.read_bytes()[1:])
    check(tmp_path / "inc", set(), set())


def test_what_holds_no_frame_at_all_is_one_damage_found_in_reasonable_time():
    for junk in (bytes(1 << 18), b"\x01\x00\x00\x00" * (1 << 16)):
        assert list(scan(MAGIC + junk, 5, 9)) == [Damage(8, 8 + len(junk), 5, 9)]


@pytest.mark.parametrize("cut", range(0, 40, 3))
def test_a_torn_end_is_cut_without_a_word_and_a_damaged_end_is_counted(tmp_path, cut):
    folder = tmp_path / "inc"
    path = make(folder)[-1]
    whole = path.read_bytes()
    start, end, seq = frames_of(path)[-1]
    assert seq == COUNT
    path.write_bytes(whole[: end - 1 - cut] if end - 1 - cut > start else whole[:start])
    adopted = Spool.adopt(folder)
    assert (adopted.last_seq, adopted.dropped) == (COUNT - 1, 0)
    assert path.stat().st_size == start
    adopted.abandon()
    path.write_bytes(whole[: end - 1] + bytes([whole[end - 1] ^ 1]))
    adopted = Spool.adopt(folder)
    assert [last_seq(each) for each in adopted.entries(COUNT)] == [COUNT]
    assert adopted.dropped == 1
    assert path.stat().st_size == len(whole)
    adopted.abandon()

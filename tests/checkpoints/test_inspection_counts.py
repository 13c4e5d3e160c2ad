"""One pass: the digest is that of the file, and each number that is not finite is counted, whatever its format and place."""

import hashlib
import io
import os
import pickle
import zipfile

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from trainer_agent.measuring.finite import count_nonfinite
from trainer_agent.scanning import one_pass
from trainer_agent.scanning.float_bits import OF_TORCH, Floats, count
from trainer_agent.scanning.one_pass import Cancelled, CutShort, Region, scan
from trainer_agent.scanning.tensor_files import Incomplete, read_safetensors, read_torch

torch.set_num_threads(1)
NAN, INF = float("nan"), float("inf")
SMALL = ["float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu", "float16", "bfloat16"]
IN_SAFETENSORS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
PLAIN = [*IN_SAFETENSORS, torch.complex64, torch.complex128]


def not_finite(tensor: torch.Tensor) -> int:
    if tensor.is_complex():
        return int((~torch.isfinite(tensor)).sum())
    return int((~torch.isfinite(tensor.double())).sum()) if tensor.is_floating_point() else 0


def bytes_of(tensor: torch.Tensor) -> memoryview:
    return memoryview(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


@pytest.mark.parametrize("name", SMALL)
def test_every_bit_pattern_of_a_small_format_is_judged_as_torch_judges_it(name):
    dtype, width = getattr(torch, name), OF_TORCH[name].width
    whole = torch.arange(256**width, dtype=torch.int32).to(torch.uint8 if width == 1 else torch.uint16).view(dtype)
    assert count(bytes_of(whole), OF_TORCH[name]) == not_finite(whole) > 0
    for pattern in whole if width == 1 else whole[::509]:
        assert count(bytes_of(pattern.reshape(1)), OF_TORCH[name]) == not_finite(pattern.reshape(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
def test_wide_formats_are_judged_right_at_their_edges(dtype):
    edge = torch.finfo(dtype).max
    values = [0.0, -0.0, edge, -edge, torch.finfo(dtype).tiny, 1e-40, INF, -INF, NAN, -NAN]
    tensor = torch.tensor(values, dtype=dtype)
    assert count(bytes_of(tensor), OF_TORCH[str(dtype).removeprefix("torch.")]) == 4
    assert count(bytes_of(tensor[:6]), OF_TORCH[str(dtype).removeprefix("torch.")]) == 0
    assert count_nonfinite(tensor) == 4


def test_a_complex_number_counts_once_however_many_of_its_parts_are_not_finite():
    tensor = torch.tensor([complex(NAN, INF), complex(0, NAN), complex(INF, 0), 1 + 1j])
    assert count(bytes_of(tensor), OF_TORCH["complex64"]) == 3


@st.composite
def states(draw, dtypes):
    made, seed = {}, draw(st.integers(0, 2**32))
    chance = torch.Generator().manual_seed(seed)
    for index in range(draw(st.integers(0, 6))):
        shape = draw(st.sampled_from([(), (1,), (3,), (7, 5), (0, 4), (129,)]))
        tensor = torch.randn(shape, generator=chance).to(draw(st.sampled_from(dtypes)))
        flat = tensor.reshape(-1)
        for _ in range(draw(st.integers(0, 3)) if flat.numel() else 0):
            flat[int(torch.randint(flat.numel(), (1,), generator=chance))] = draw(st.sampled_from([NAN, INF, -INF]))
        made[f"t{index}"] = tensor
    return made | {"whole": torch.tensor([2139095041, -1], dtype=torch.int32)}  # as a float it would be no number


@given(states(IN_SAFETENSORS))
@settings(max_examples=60, deadline=None)
def test_a_safetensors_file_is_counted_to_the_last_element_whatever_lies_across_the_pieces(tmp_path_factory, state):
    path = tmp_path_factory.mktemp("pass") / "model.safetensors"
    save_file(state, path)
    check(path, read_safetensors(path).regions, sum(map(not_finite, state.values())))


@given(states([*PLAIN, torch.float8_e4m3fnuz, torch.float8_e8m0fnu]))
@settings(max_examples=60, deadline=None)
def test_a_torch_file_is_counted_to_the_last_element_whatever_lies_across_the_pieces(tmp_path_factory, state):
    path = tmp_path_factory.mktemp("pass") / "optimizer.pt"
    torch.save({"state": {0: state}, "param_groups": [{"lr": 0.1}]}, path)
    check(path, read_torch(path).regions, sum(map(not_finite, state.values())))


def check(path, regions, wanted):
    for piece in (48, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(one_pass, "PIECE_BYTES", piece)
            found = scan(path, regions)
        assert found.nonfinite == wanted
        assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert found.size_bytes == path.stat().st_size


def test_views_of_one_storage_count_each_element_once_and_none_that_belongs_to_no_tensor(tmp_path):
    whole = torch.zeros(100)
    whole[[3, 50, 99]] = NAN
    torch.save(
        {"a": whole[:60], "again": whole[:60], "part": whole[40:60], "turned": whole[:60].view(6, 10).t()}, tmp_path / "f.pt"
    )
    assert scan(tmp_path / "f.pt", read_torch(tmp_path / "f.pt").regions).nonfinite == 2


def test_parameters_ordered_dicts_and_classes_of_the_user_hide_nothing(tmp_path):
    state = torch.nn.Linear(3, 3).state_dict()
    state["weight"][0, 0] = NAN
    given = {
        "model": state,
        "p": torch.nn.Parameter(torch.tensor([INF])),
        "own": Own(torch.tensor([NAN, 1.0])),
        "at": torch.Size([3]),
    }
    torch.save(given, tmp_path / "f.pt")
    assert scan(tmp_path / "f.pt", read_torch(tmp_path / "f.pt").regions).nonfinite == 3


class Own:
    def __init__(self, tensor) -> None:
        self.tensor = tensor


class Evil:
    def __init__(self, marker) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def test_no_code_of_a_file_is_run(tmp_path):
    evil = {"state": Evil(tmp_path / "harm"), "param_groups": [], "t": torch.tensor([NAN])}
    torch.save(evil, tmp_path / "optimizer.pt")
    contents = read_torch(tmp_path / "optimizer.pt")
    assert "param_groups" in contents.names
    assert scan(tmp_path / "optimizer.pt", contents.regions).nonfinite == 1
    assert not (tmp_path / "harm").exists()
    with zipfile.ZipFile(tmp_path / "optimizer.pt") as archive, pytest.raises(pickle.UnpicklingError):
        pickle.loads(archive.read("optimizer/data.pkl"))  # the same bytes do harm where they are unpickled
    assert (tmp_path / "harm").exists()


def test_a_pickle_that_cannot_be_understood_leaves_the_numbers_unknown_and_a_damaged_one_is_no_checkpoint(tmp_path):
    torch.save({"a": torch.ones(3)}, tmp_path / "f.pt")
    content = (tmp_path / "f.pt").read_bytes()
    at = content.index(b"_rebuild_tensor")
    (tmp_path / "bad.pt").write_bytes(content[:at] + b"?" + content[at + 1 :])
    with pytest.raises(Incomplete, match=r"bad\.pt is cut off or no torch file"):
        read_torch(tmp_path / "bad.pt")
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("f/data.pkl", b"no pickle at all")
    (tmp_path / "odd.pt").write_bytes(made.getvalue())
    assert read_torch(tmp_path / "odd.pt").regions is None


def test_a_file_saved_without_checksums_is_as_good_as_any(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.tensor([NAN])}, tmp_path / "f.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert scan(tmp_path / "f.pt", read_torch(tmp_path / "f.pt").regions).nonfinite == 1


def test_a_pass_is_given_up_between_pieces_and_a_file_that_ends_early_is_told(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(10))
    with pytest.raises(Cancelled):
        scan(path, (), lambda: True)
    with pytest.raises(CutShort):
        scan(path, [Region(4, 8, Floats(4, 0x7F800000))])


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.float8_e5m2]
)
def test_one_number_alone_trips_the_count_whatever_its_sign(dtype):
    floats = OF_TORCH[str(dtype).removeprefix("torch.")]
    for bad in (INF, -INF, NAN):
        tensor = torch.zeros(1000).to(dtype)
        tensor[617:618] = torch.tensor([bad]).to(dtype)
        assert count(bytes_of(tensor), floats) == 1
        assert count(bytes_of(tensor[:617]), floats) == 0


def test_a_disk_that_gives_less_than_was_asked_for_tears_no_number_apart(tmp_path):
    class Drop(io.BytesIO):
        def readinto(self, buffer):
            return super().readinto(memoryview(buffer)[:3])

    buffer = memoryview(bytearray(64))
    assert one_pass._fill(Drop(bytes(range(40))), buffer) == 40
    assert bytes(buffer[:40]) == bytes(range(40))

"""Where the numbers lie in a file of tensors, and whether the file says of itself that it is all there.

Two formats: safetensors, and what `torch.save` writes, a zip file of a pickle and one stored record for each storage. Both tell
where everything is, so that the numbers can be looked at without being loaded.

The pickle is read with inert stand-ins for everything it names: no code of the file is run, no class of it is made, and no type
that only its own library knows keeps the rest from being seen. What cannot be understood that way leaves the numbers unknown,
which is no fault of the file.
"""

import io
import json
import math
import pickle
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from trainer_agent.guest.interrupts import let_pass

from .float_bits import OF_SAFETENSORS, OF_TORCH, Floats
from .one_pass import Region

MOST_PICKLE_BYTES = 1 << 28
"""Of a pickle that is looked into: a million tensors fit."""


class Incomplete(Exception):  # noqa: N818  reads as what it says
    """The checkpoint is not whole. The text says which file and why."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file says of what is in it. `regions` is None where that could not be found out."""

    regions: tuple[Region, ...] | None
    names: frozenset[str] = frozenset()
    """The keys at its top."""
    only_tensors: bool = False
    """Whether there is at least one thing in it, and nothing but tensors."""


# --- safetensors


def read_safetensors(path: Path) -> Contents:
    """What is in a safetensors file.

    Source: the safetensors format; 8 bytes of header length, the header, then data up to the last offset.

    Raises:
        Incomplete, OSError
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else size
        if 8 + length > size:
            raise Incomplete(f"{path.name} ends inside its header")
        try:
            entries = {name: entry for name, entry in json.loads(file.read(length)).items() if name != "__metadata__"}
            regions = tuple(_apart(_regions_of_header(entries, 8 + length)))
            end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            raise Incomplete(f"{path.name} has a header that makes no sense") from None
    if 8 + length + end != size:
        raise Incomplete(f"{path.name} has {size} bytes where its header wants {8 + length + end}")
    return Contents(regions, frozenset(entries), only_tensors=bool(entries))


def _regions_of_header(entries: dict[str, Any], base: int) -> Iterator[Region]:
    for entry in entries.values():
        begin, end = entry["data_offsets"]
        floats = OF_SAFETENSORS.get(entry["dtype"])
        if not 0 <= begin <= end or (floats is not None and math.prod(entry["shape"]) * floats.size != end - begin):
            raise ValueError
        if floats is not None:
            yield Region(base + begin, end - begin, floats)


# --- torch


def read_torch(path: Path) -> Contents:
    """What is in a file that `torch.save` wrote.

    Raises:
        Incomplete, OSError
    """
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            records = {info.filename.partition("/")[2]: info for info in archive.infolist()}
            places = {name: _place(file, info) for name, info in records.items()}
            pickled = _pickle_in(file, records, places)
    except (zipfile.BadZipFile, struct.error, KeyError, NotImplementedError):
        raise Incomplete(f"{path.name} is cut off or no torch file") from None
    if pickled is None:
        return Contents(None)
    seen = _look(pickled)
    if seen is None:
        return Contents(None)
    _check_records(path.name, seen, records)
    return Contents(seen.regions(places), *seen.top())


def _place(file: IO[bytes], info: zipfile.ZipInfo) -> int:
    """Where the bytes of a record begin. Source: APPNOTE.TXT 4.3.7, the local header before them."""
    file.seek(info.header_offset)
    magic, name, extra = struct.unpack("<4s22xHH", file.read(30))
    if magic != b"PK\x03\x04" or info.compress_type != zipfile.ZIP_STORED:
        raise zipfile.BadZipFile
    return int(info.header_offset + 30 + name + extra)


def _pickle_in(file: IO[bytes], records: dict[str, zipfile.ZipInfo], places: dict[str, int]) -> bytes | None:
    info = records["data.pkl"]
    if info.file_size > MOST_PICKLE_BYTES or not _is_little(file, records, places):
        return None
    return _read(file, records, places, "data.pkl")


def _is_little(file: IO[bytes], records: dict[str, zipfile.ZipInfo], places: dict[str, int]) -> bool:
    return "byteorder" not in records or _read(file, records, places, "byteorder") == b"little"


def _read(file: IO[bytes], records: dict[str, zipfile.ZipInfo], places: dict[str, int], name: str) -> bytes:
    """The bytes of a record. Its checksum is 0 where torch was told to make none."""
    file.seek(places[name])
    content = file.read(records[name].file_size)
    if len(content) != records[name].file_size or records[name].CRC not in (0, zlib.crc32(content)):
        raise zipfile.BadZipFile
    return content


def _check_records(name: str, seen: "_Seen", records: dict[str, zipfile.ZipInfo]) -> None:
    for storage in seen.storages.values():
        info = records.get(f"data/{storage.key}")
        if info is None or info.file_size < storage.numel * (storage.floats.size if storage.floats else 1):
            raise Incomplete(f"{name} lacks some of the tensors it names")


class _Inert(dict[Any, Any]):
    """Stands in for whatever a pickle names: takes everything that is done to it, and does nothing."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__()
        del kwargs
        self.args = args

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        del args, kwargs
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        del state

    def __hash__(self) -> int:  # type: ignore[override]  # one of these may be a key
        return id(self)

    def append(self, item: object) -> None:
        """Nothing."""

    def extend(self, items: object) -> None:
        """Nothing."""

    add = append


class _Dict(dict[Any, Any]):
    """A dictionary, which like an `OrderedDict` may have attributes."""


@dataclass(frozen=True, slots=True)
class _Storage:
    key: str
    floats: Floats | None
    numel: int


@dataclass(frozen=True, slots=True)
class _Tensor:
    """Elements of a storage, from `offset` on as far as it reaches in all its dimensions."""

    storage: _Storage
    floats: Floats | None
    offset: int
    reach: int


@dataclass
class _Seen:
    """What a pickle has told."""

    storages: dict[str, _Storage] = field(default_factory=dict)
    tensors: list[_Tensor] = field(default_factory=list)
    root: Any = None

    def top(self) -> tuple[frozenset[str], bool]:
        """The keys at the top, and whether there are only tensors there."""
        root = self.root if isinstance(self.root, dict) else {}
        names = frozenset(key for key in root if isinstance(key, str))
        return names, bool(root) and all(isinstance(value, _Tensor) for value in root.values())

    def regions(self, places: dict[str, int]) -> tuple[Region, ...]:
        """Each number that belongs to a tensor, once; of a storage that belongs to none, all of them."""
        used = {tensor.storage.key for tensor in self.tensors}
        wanted = [(t.storage.key, t.offset, t.reach, t.floats) for t in self.tensors]
        wanted += [(s.key, 0, s.numel, s.floats) for s in self.storages.values() if s.key not in used]
        found = (
            Region(places[f"data/{key}"] + offset * floats.size, reach * floats.size, floats)
            for key, offset, reach, floats in wanted
            if floats is not None and reach
        )
        return tuple(_apart(found))


def _apart(regions: Iterable[Region]) -> Iterator[Region]:
    """The same bytes, each in one region only: tensors may share a storage."""
    at = 0
    for region in sorted(regions, key=lambda region: (region.offset, -region.size)):
        shared = max(0, at - region.offset)
        shared += -shared % region.floats.size
        if region.size > shared:
            yield Region(region.offset + shared, region.size - shared, region.floats)
            at = region.offset + region.size


class _Looker(pickle.Unpickler):
    """Reads a pickle of torch, and makes nothing of what it names."""

    def __init__(self, file: IO[bytes], seen: _Seen) -> None:
        super().__init__(file)
        self._seen = seen
        self._known: dict[tuple[str, str], Any] = {
            ("collections", "OrderedDict"): _Dict,
            ("torch._utils", "_rebuild_tensor_v2"): self._tensor,
            ("torch._utils", "_rebuild_tensor_v3"): self._tensor,
            ("torch._utils", "_rebuild_parameter"): _first,
            ("torch._utils", "_rebuild_parameter_with_state"): _first,
        }

    def find_class(self, module: str, name: str) -> Any:
        """A stand-in; one that carries the name, for types."""
        known = self._known.get((module, name))
        return known if known is not None else type(name.rpartition(".")[2] or "_", (_Inert,), {})

    def persistent_load(self, pid: Any) -> _Storage:
        """A storage by its record. Source: torch/serialization.py, ("storage", type, key, place, elements)."""
        _, kind, key, _, numel = pid
        storage = _Storage(str(key), OF_TORCH.get(kind.__name__), int(numel))
        self._seen.storages[storage.key] = storage
        return storage

    def _tensor(self, storage: _Storage, offset: int, size: Any, stride: Any, *rest: Any) -> _Tensor:
        """Source: torch/_utils.py; the third version has the type as the third of the rest, for storages without one."""
        named = rest[2] if len(rest) > 2 and isinstance(rest[2], type) else None
        floats = OF_TORCH.get(named.__name__) if named is not None else storage.floats
        reach = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if all(size) else 0
        tensor = _Tensor(storage, floats, int(offset), int(reach))
        self._seen.tensors.append(tensor)
        return tensor


def _first(data: object, *rest: object) -> object:
    del rest
    return data


def _look(content: bytes) -> _Seen | None:
    """What a pickle tells; None where it cannot be understood."""
    seen = _Seen()
    try:
        seen.root = _Looker(io.BytesIO(content), seen).load()
    except Exception as error:
        let_pass(error)
        return None
    return seen

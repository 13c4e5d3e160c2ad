"""How the ids of a batch travel with it: from the data set, through the loader's workers, to whoever takes them off.

    DataLoader                 fetch(keys)                 collate                       -> Carried(batch, ids)
      dataset   = MapView      notes the keys, asks the user's data set
      collate_fn = Collate                                 reads the note, asks the user's collator

Fetching and collating happen one after the other on one thread (of the process or of a worker), so a note per thread connects
them. The data set and the collator are asked exactly what they would have been asked, and everything else about them is theirs:
a view answers for its data set (attributes, length, isinstance). A `Carried` answers for its batch in the same way, so that code
which looks into a loader on its own finds a batch there.

Ids are Python objects all the way: moving a batch to a device moves its tensors, never its ids.
"""

import hashlib
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import Any

from torch.utils.data import get_worker_info

from .randomness import unmoved

DOCUMENT_KEY = "document_id"
"""Where a data set keeps the id of a sample's document, unless the script says otherwise."""
LONGEST_DOCUMENT_ID = 200

DocumentOf = str | Callable[[int], object] | None


class Unweighted(int):
    """The number of a sample whose batch is to have no weight: a stand-in for a batch left empty."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Ids:
    """What a batch is made of: numbers of samples in the data set, shape (N,), and ids of their documents, shape (N,).

    `samples` is empty where samples have no numbers; `documents` is None where the data name none. `weighs` is False for a batch
    of `Unweighted` samples, which is run but teaches nothing.
    """

    samples: tuple[int, ...]
    documents: tuple[str, ...] | None = None
    weighs: bool = True


def document_id(value: object) -> str:
    """The id of a document as it is kept and compared: text; a very long one keeps its beginning and a digest."""
    plain = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    text = str(plain.item() if hasattr(plain, "item") else plain).encode("utf-8", "replace").decode()
    if len(text) <= LONGEST_DOCUMENT_ID:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{text[: LONGEST_DOCUMENT_ID - 17]}~{digest}"


class _Note(threading.local):
    """What this thread fetched last, and has not collated yet."""

    keys: Any = None


_note = _Note()


class _View:
    """Answers for a data set. `lossguard_inner` is the data set itself."""

    lossguard_inner: Any

    def __init__(self, inner: Any) -> None:
        object.__setattr__(self, "lossguard_inner", inner)

    @property  # type: ignore[misc]  # so that isinstance() answers as for the data set
    def __class__(self) -> type:
        return self.lossguard_inner.__class__  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        if name == "lossguard_inner":  # not there yet: being unpickled
            raise AttributeError(name)
        return getattr(self.lossguard_inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.lossguard_inner, name, value)

    def __len__(self) -> int:
        return len(self.lossguard_inner)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.lossguard_inner)

    def __repr__(self) -> str:
        return repr(self.lossguard_inner)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return type(self), (self.lossguard_inner,)


class MapView(_View):
    """A data set with numbered items, whose batches are fetched by a list of numbers.

    `lossguard_fetching` is called before the items of a batch are asked for, where the training's own process fetches them.
    """

    lossguard_fetching: Callable[[], None] | None = None

    def __getitem__(self, key: Any) -> Any:
        return self.lossguard_inner[_plain(key)]

    def __getitems__(self, keys: Sequence[Any]) -> Any:
        """The items of a batch, asked for as the loader would have; for a stand-in without a trace in the random state."""
        if self.lossguard_fetching is not None:
            self.lossguard_fetching()
        if any(type(key) is Unweighted for key in keys):
            with unmoved():
                return self._items(keys, [_plain(key) for key in keys])
        return self._items(keys, keys)

    def _items(self, keys: Sequence[Any], plain: Sequence[Any]) -> Any:
        inner = self.lossguard_inner
        items = inner.__getitems__(plain) if getattr(inner, "__getitems__", None) else [inner[key] for key in plain]
        _note.keys = keys
        return items


class BatchView(_View):
    """A data set that is asked for whole batches (a loader without a batch size of its own)."""

    def __getitem__(self, keys: Any) -> Any:
        several = isinstance(keys, list | tuple)
        batch = self.lossguard_inner[[_plain(key) for key in keys] if isinstance(keys, list) else _plain(keys)]
        _note.keys = keys if several else [keys]
        return batch


class StreamView(_View):
    """A data set that is only read through; its samples are numbered in the order in which one reader finds them."""

    def __iter__(self) -> Iterator[Any]:
        return self._counted(iter(self.lossguard_inner))  # opened now, as without a view: it may draw an order

    def _counted(self, items: Iterator[Any]) -> Iterator[Any]:
        _note.keys = []
        for number, item in enumerate(items):
            if not isinstance(_note.keys, list):
                _note.keys = []
            _note.keys.append(number)
            yield item


VIEWS: tuple[type, ...] = (MapView, BatchView, StreamView)


class Numbers(Enum):
    """Whether the samples of a data set have numbers."""

    PLACES = "places"
    """Places in the data set."""
    READ = "read"
    """The order in which its only reader finds them; with several readers they have none."""
    NONE = "none"


class Collate:
    """The loader's collator, and the ids put to what it gives."""

    def __init__(self, inner: Callable[[Any], Any], document_of: DocumentOf, numbers: Numbers) -> None:
        self.lossguard_inner = inner
        self.lossguard_settings = (document_of, numbers)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("lossguard_") or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return getattr(self.lossguard_inner, name)

    def __call__(self, data: Any) -> Any:
        """What the collator gives, with the ids of what was fetched last on this thread."""
        keys, _note.keys = _note.keys, None
        if not keys:  # not fetched through a view
            return self.lossguard_inner(data)
        ids, problem = _ids(keys, data, *self.lossguard_settings)  # before the collator, which may take the items apart
        with nullcontext() if ids.weighs else unmoved():
            return Carried(self.lossguard_inner(data), ids, problem)


def _ids(keys: Sequence[Any], data: Any, document_of: DocumentOf, numbers: Numbers) -> tuple[Ids, str]:
    """The ids of a batch, and why its documents are missing. An error here is ours, and must not reach the training."""
    samples = _samples(keys, numbers)
    weighs = not all(type(key) is Unweighted for key in keys)
    try:
        return Ids(samples, _documents(samples, len(keys), data, document_of), weighs), ""
    except Exception as error:
        return Ids(samples, None, weighs), f"the documents of a batch are not known ({type(error).__name__}: {error})"


def _samples(keys: Sequence[Any], numbers: Numbers) -> tuple[int, ...]:
    several_readers = (info := get_worker_info()) is not None and info.num_workers > 1
    if numbers is Numbers.NONE or (numbers is Numbers.READ and several_readers):
        return ()
    try:
        return tuple(int(operator.index(key)) for key in keys)
    except TypeError:
        return ()  # the sampler gives names, not numbers


def _documents(samples: tuple[int, ...], count: int, data: Any, document_of: DocumentOf) -> tuple[str, ...] | None:
    if callable(document_of):
        return tuple(document_id(document_of(number)) for number in samples) if samples else None
    key = document_of or DOCUMENT_KEY
    items = data if isinstance(data, list | tuple) else ()
    if document_of is None and items and _field(items[0], key) is None:
        return None  # most data: found out without looking at each item
    found = data.get(key) if isinstance(data, Mapping) else [_field(item, key) for item in items]
    if found is None or len(found) != count or any(value is None for value in found):
        if document_of is not None:
            raise KeyError(key)
        return None
    return tuple(map(document_id, found))


def _field(item: Any, key: str) -> Any:
    return item.get(key) if isinstance(item, Mapping) else getattr(item, key, None)


def _plain(key: Any) -> Any:
    return int(key) if type(key) is Unweighted else key


class Carried:
    """A batch with its ids. Answers for the batch, until `samples.take` parts the two."""

    __slots__ = ("_lossguard_batch", "_lossguard_ids", "_lossguard_problem")

    def __init__(self, batch: Any, ids: Ids | None, problem: str = "") -> None:
        object.__setattr__(self, "_lossguard_batch", batch)
        object.__setattr__(self, "_lossguard_ids", ids)
        object.__setattr__(self, "_lossguard_problem", problem)

    def to(self, device: Any, non_blocking: bool = False, **kwargs: Any) -> "Carried":  # noqa: FBT001, FBT002  as accelerate calls it
        """The batch on another device, its ids where they are."""
        from accelerate.utils import send_to_device  # type: ignore[import-untyped]

        return self._like(send_to_device(self._lossguard_batch, device, non_blocking=non_blocking, **kwargs))

    def pin_memory(self, *args: Any) -> "Carried":
        """The batch in pinned memory, as the loader pins it."""
        from torch.utils.data._utils.pin_memory import pin_memory

        return self._like(pin_memory(self._lossguard_batch, *args))  # type: ignore[no-untyped-call]

    def _like(self, batch: Any) -> "Carried":
        return Carried(batch, self._lossguard_ids, self._lossguard_problem)

    @property  # type: ignore[misc]  # so that isinstance() answers as for the batch
    def __class__(self) -> type:
        return self._lossguard_batch.__class__  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_lossguard_"):
            raise AttributeError(name)
        return getattr(self._lossguard_batch, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._lossguard_batch, name, value)

    def __getitem__(self, key: Any) -> Any:
        return self._lossguard_batch[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._lossguard_batch[key] = value

    def __contains__(self, key: Any) -> bool:
        return key in self._lossguard_batch

    def __len__(self) -> int:
        return len(self._lossguard_batch)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._lossguard_batch)

    def __repr__(self) -> str:
        return repr(self._lossguard_batch)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Carried, (self._lossguard_batch, self._lossguard_ids, self._lossguard_problem)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """A batch that is one tensor can be computed with."""
        del types
        plain = [each._lossguard_batch if type(each) is Carried else each for each in args]  # noqa: SLF001
        return function(*plain, **(kwargs or {}))

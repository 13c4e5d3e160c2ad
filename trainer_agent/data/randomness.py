"""The random state of this process: of Python, of NumPy where it is there, of torch on the CPU and on each GPU.

Plain tuples and tensors only, so that a stored state is read without running code of it.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch


def capture() -> dict[str, Any]:
    """The state as it is now. Does not wait for a GPU."""
    state = packed(glance())
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def glance() -> tuple[Any, ...]:
    """The state on the CPU as the libraries hand it out: about 20 us, for every batch that is fetched. See `packed`."""
    numpy: Any = None
    with suppress(ImportError):
        import numpy as np

        numpy = np.random.get_state(legacy=False)  # noqa: NPY002  the one that scripts use without naming it
    return random.getstate(), torch.get_rng_state(), numpy


def packed(seen: tuple[Any, ...]) -> dict[str, Any]:
    """What `glance` saw, as `restore` takes it."""
    python, of_torch, numpy = seen
    state: dict[str, Any] = {"python": python, "torch": of_torch}
    if numpy is not None and numpy["bit_generator"] == "MT19937":
        key = torch.from_numpy(numpy["state"]["key"].astype("int64"))
        state["numpy"] = (key, int(numpy["state"]["pos"]), int(numpy["has_gauss"]), float(numpy["gauss"]))
    return state


def restore(state: dict[str, Any]) -> None:
    """Brings back a state; what it does not hold stays as it is."""
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    if "numpy" in state:
        import numpy as np

        key, position, has_gauss, gauss = state["numpy"]
        np.random.set_state(("MT19937", key.numpy().astype("uint32"), position, has_gauss, gauss))  # noqa: NPY002  as above
    if "cuda" in state and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])


@contextmanager
def unmoved() -> Iterator[None]:
    """The random state comes out as it went in, also by an error."""
    state = capture()
    try:
        yield
    finally:
        restore(state)

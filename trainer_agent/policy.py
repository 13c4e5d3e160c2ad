"""What a training run may be told, and what becomes of it when it is dead. Said in the user's own script."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from .wire.vocabulary import CommandKind, DataMode

OnDead = Literal["stop", "hold", "continue"]


@dataclass(frozen=True, slots=True)
class Policy:
    """What a run obeys. The default is: a dead run is stopped, clicked commands are obeyed, no rule rolls back by itself.

    Raises:
        ValueError: a value that has no meaning; the text says which ones have.
    """

    on_dead: OnDead = "stop"
    """What to do with a dead run (see `guard`): `stop` it; `hold` it at the step boundary for a command, and stop it when
    none came; `continue`, which leaves it and its checkpoints alone."""
    hold_seconds: float = 600.0
    """How long a held run waits for a command before it is stopped."""
    skipped_steps: int = 3
    """So many non-finite or skipped steps in a row are a dead run, where a loss scaler protects the weights."""
    automatic_rollback: bool = False
    """Whether a rule of the server may roll this run back without a person."""
    obey: tuple[CommandKind, ...] = tuple(CommandKind)
    """The commands obeyed, as far as the integration can."""
    agree_every: int | None = None
    """Several processes agree on what to do every so many steps; what rank 0 says holds. None is 1 on one machine, else 10."""

    def __post_init__(self) -> None:
        if self.on_dead not in get_args(OnDead):
            raise ValueError(f"on_dead is {self.on_dead!r}; it must be one of {', '.join(get_args(OnDead))}")
        _check_number("hold_seconds", self.hold_seconds)
        if isinstance(self.skipped_steps, bool) or not isinstance(self.skipped_steps, int) or self.skipped_steps < 1:
            raise ValueError(f"skipped_steps is {self.skipped_steps!r}; it must be a whole number of at least 1")
        if not isinstance(self.automatic_rollback, bool):
            raise ValueError(f"automatic_rollback is {self.automatic_rollback!r}; it must be True or False")  # noqa: TRY004  one error type for a bad policy
        if self.agree_every is not None and (type(self.agree_every) is not int or self.agree_every < 1):
            raise ValueError(f"agree_every is {self.agree_every!r}; it must be a whole number of at least 1, or None")
        object.__setattr__(self, "obey", _kinds(self.obey))
        if self.automatic_rollback and CommandKind.ROLLBACK not in self.obey:
            raise ValueError("automatic_rollback needs 'rollback' in obey: a run cannot be rolled back against its policy")

    @classmethod
    def watch_only(cls) -> "Policy":
        """A policy under which nothing ever touches the training: it is watched, and that is all."""
        return cls(on_dead="continue", obey=())

    @property
    def refusal(self) -> str:
        """Which commands are not obeyed, in a clause; empty when all are."""
        refused = [kind.replace("_", " ") for kind in CommandKind if kind not in self.obey]
        if not self.obey:
            return "the script's policy obeys no command"
        *others, last = refused or [""]
        return f"the script's policy does not obey {', '.join(others)}{' and ' if others else ''}{last}" if refused else ""

    @property
    def acts_on_dead(self) -> bool:
        """Whether a dead run is stopped or held, and its saves are withheld."""
        return self.on_dead != "continue"


@dataclass(frozen=True, slots=True)
class Abilities:
    """The commands a run can obey, and why it cannot obey the others."""

    kinds: tuple[CommandKind, ...]
    because: str = ""
    acts: bool = True
    """Whether anything may be done to the training at all."""
    modes: tuple[DataMode, ...] = tuple(DataMode)
    """What a rollback can do with the data, as far as is known when the run starts."""
    modes_because: str = ""
    """Why it cannot do more."""


def _check_number(name: str, value: object) -> None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not plain or not math.isfinite(float(value)) or float(value) < 0:  # type: ignore[arg-type]  # `plain` is tested first
        raise ValueError(f"{name} is {value!r}; it must be a finite number of seconds, 0 or more")


def _kinds(obey: object) -> tuple[CommandKind, ...]:
    known = ", ".join(CommandKind)
    if isinstance(obey, str) or not isinstance(obey, Iterable):
        raise ValueError(f"obey is {obey!r}; it must be a sequence of {known}, such as ('stop',)")  # noqa: TRY004  as above
    try:
        return tuple(dict.fromkeys(CommandKind(kind) for kind in obey))
    except ValueError:
        raise ValueError(f"obey is {obey!r}; it may hold {known} and nothing else") from None

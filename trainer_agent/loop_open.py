"""How a hand-written training begins under watch: the ranks meet, a checkpoint is taken up, the session begins.

What is wrong with the script's own arguments is raised here, before the first step; what goes wrong with LossGuard is said, and
the training is not watched.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from . import loop_facts
from .config import Config
from .data_plan import Cut, DataPlan
from .harmless import go_on
from .identity import new_run_id
from .loop_folder import Folder
from .loop_hooks import StepClock
from .loop_jumps import Jumps
from .loop_state import CannotLoad, State, Stored
from .monitor import Monitor, new_incarnation
from .opening import Opening, meet, open_plan, process
from .policy import Abilities, Policy
from .probes import Probes
from .session import Session
from .wire.messages import RunStart, Scalar
from .wire.vocabulary import CommandKind


@dataclass(frozen=True, slots=True)
class Settings:
    """What the script said of its run."""

    output_dir: Path
    policy: Policy
    config: Config
    run_id: str | None
    total_steps: int | None
    save_every: int | None
    keep: int
    resume: bool
    attributes: Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class Opened:
    """A training that may begin. `stored`: the checkpoint whose state it has already."""

    opening: Opening
    plan: DataPlan
    jumps: Jumps
    stored: Stored | None


def take_up(state: State, settings: Settings, folder: Folder) -> Opened:
    """Finds the ranks, the run and the checkpoint to go on from, and loads that.

    Raises:
        ValueError: what lies in the folder is nothing to go on from, or is of a run that nobody wants to go on with.
    """
    directory = settings.output_dir / ".lossguard"
    opening = meet(directory, settings.policy, lambda: _choose_run(directory, settings, folder))
    leads, is_restart = opening.ranks.leads, opening.identity.is_restart
    jumps = Jumps.open(directory, opening.ranks.rank)
    if not is_restart:
        jumps.clear()
    stored = _load(state, folder, opening) if settings.resume else None
    return Opened(opening, open_plan(directory, keep=is_restart, leads=leads), jumps, stored)


def _choose_run(directory: Path, settings: Settings, folder: Folder) -> str | None:
    folder.tidy()
    steps = folder.steps()
    if steps and not settings.resume:
        raise ValueError(
            f"{settings.output_dir} holds checkpoints up to step {steps[-1]} of an earlier run: resume=True goes on from the "
            "newest that is fit; to begin anew, name another output_dir or remove them"
        )
    return settings.run_id or new_run_id(directory, resuming=settings.resume)


def _load(state: State, folder: Folder, opening: Opening) -> Stored | None:
    """Rank 0 chooses; all load the same."""
    ranks, chosen, problem = opening.ranks, None, ""
    if ranks.leads:
        try:
            chosen = folder.to_go_on_from(opening.identity.run_id, needs_scaler=state.scaler is not None)
        except ValueError as error:
            problem = str(error)
    said = json.dumps({"name": chosen and chosen.name, "problem": problem}).encode()
    if not ranks.problem:
        told = json.loads(ranks.share(said if ranks.leads else None))
        chosen, problem = folder.path / told["name"] if told["name"] else None, told["problem"]
    if problem:
        raise ValueError(problem)
    if chosen is None:
        return None
    try:
        stored = state.read(chosen, ranks.rank, ranks.world_size)
        state.apply(stored)
    except CannotLoad as reason:
        raise ValueError(f"resume: {reason}") from None
    return stored


def begin(state: State, settings: Settings, opened: Opened, clock: StepClock, cutter: Callable[[int, int], Cut]) -> Session:
    """The session, begun."""
    opening, policy = opened.opening, settings.policy
    ranks, identity = opening.ranks, opening.identity
    able = loop_facts.abilities(policy, state)
    if ranks.problem:
        able = Abilities((), ranks.problem)
    if not able.kinds and able.because and (ranks.problem or loop_facts.cannot_save(state)):
        policy = Policy.watch_only()
    directory = settings.output_dir / ".lossguard"
    start = RunStart(
        run_id=identity.run_id,
        incarnation=new_incarnation(),
        project=settings.config.project,
        name=settings.config.name or settings.output_dir.name or "run",
        rank=ranks.rank,
        world_size=ranks.world_size,
        **process(),
        total_steps=settings.total_steps,
        integration=loop_facts.integration(state),
        capabilities=able.kinds,
        incapable_because=able.because,
        automatic_rollback=policy.automatic_rollback and CommandKind.ROLLBACK in able.kinds,
        attributes=loop_facts.attributes(state) | _own(settings),
    )
    try:
        session = Session(
            monitor=Monitor(start, settings.config, directory, opening.voice),
            identity=identity,
            policy=policy,
            capabilities=able.kinds,
            output_dir=settings.output_dir,
            probes=Probes(from_forward=False, on_error=go_on, clock=clock),
            plan=opened.plan,
            cutter=cutter,
            ranks=ranks,
            agree_every=opening.agree_every,
        )
        session.begin()
    except Exception:
        with suppress(Exception):
            ranks.leave()
        raise
    return session


def _own(settings: Settings) -> dict[str, Scalar]:
    return {"save_every": settings.save_every, **settings.attributes}

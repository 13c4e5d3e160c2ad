"""How a hand-written training begins under watch: the ranks meet, a checkpoint is taken up, the session begins.

What is wrong with the script's own arguments is raised here, before the first step; what goes wrong with LossGuard is said, and
the training is not watched.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer_agent.commands.agreement import joined
from trainer_agent.commands.going_on import GoOn
from trainer_agent.commands.in_force import SetNorm
from trainer_agent.config import Config
from trainer_agent.data.leaving_out import Source
from trainer_agent.data.plan import DataPlan
from trainer_agent.guest.harmless import go_on, unwatched
from trainer_agent.guest.interrupts import let_pass
from trainer_agent.identity import new_run_id
from trainer_agent.measuring.probes import Probes
from trainer_agent.policy import Policy
from trainer_agent.ranks import Ranks
from trainer_agent.training.opening import Facts, Opening, Parts, begin_session, meet, open_plan, where_to_go_on
from trainer_agent.training.session import Session
from trainer_agent.wire.messages import Scalar

from . import facts as loop_facts
from .folder import Folder
from .hooks import StepClock
from .jumps import Jumps
from .state import CannotLoad, HalfLoaded, State, Stored


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
    """A training that may begin. `stored`: the checkpoint whose state it has already; `opening` None: it is not watched."""

    opening: Opening | None
    ranks: Ranks
    plan: DataPlan
    jumps: Jumps
    stored: Stored | None
    goes_on: GoOn | None = None


def take_up(state: State, settings: Settings, folder: Folder) -> Opened:
    """Finds the ranks, the run and the checkpoint to go on from, and loads that.

    Where LossGuard itself fails, a new training goes on without it; one that resumes does not begin anew instead.

    Raises:
        ValueError: what lies in the folder is nothing to go on from, or is of a run that nobody wants to go on with.
    """
    try:
        return _take_up(state, settings, folder)
    except ValueError:
        raise
    except Exception as error:
        let_pass(error)
        if settings.resume:
            raise ValueError(f"resume: {type(error).__name__}: {error}") from error
        unwatched(error)
        directory = settings.output_dir / ".lossguard"
        ranks = Ranks.apart(f"this rank did not meet the others: {error}")
        return Opened(None, ranks, DataPlan.empty(directory), Jumps.empty(directory, ranks.rank), None)


def _take_up(state: State, settings: Settings, folder: Folder) -> Opened:
    directory, problems = settings.output_dir / ".lossguard", []

    def choose_run() -> str | None:
        try:
            return _choose_run(directory, settings, folder)
        except ValueError as problem:  # for all ranks to know, which wait for an answer now
            problems.append(str(problem))
            return None

    opening = meet(directory, settings.policy, choose_run)
    _raise_on_all(opening.ranks, *problems)
    leads, is_restart = opening.ranks.leads, opening.identity.is_restart
    jumps = Jumps.open(directory, opening.ranks.rank)
    if not is_restart:
        jumps.clear()
    stored, goes_on = _load(state, settings, opening) if settings.resume else (None, None)
    plan = open_plan(directory, keep=is_restart, leads=leads)
    return Opened(opening, opening.ranks, plan, jumps, stored, goes_on)


def _raise_on_all(ranks: Ranks, problem: str = "") -> None:
    """Raises what stands in the way of any rank, on all of them."""
    said = problem if ranks.is_alone or ranks.problem else joined(ranks.gather(problem.encode()))
    if said:
        raise ValueError(said)


def _choose_run(directory: Path, settings: Settings, folder: Folder) -> str | None:
    folder.tidy()
    steps = folder.steps()
    if steps and not settings.resume:
        raise ValueError(
            f"{settings.output_dir} holds checkpoints up to step {steps[-1]} of an earlier run: resume=True goes on from the "
            "newest that is fit; to begin anew, name another output_dir or remove them"
        )
    return settings.run_id or new_run_id(directory, resuming=settings.resume)


def _load(state: State, settings: Settings, opening: Opening) -> tuple[Stored | None, GoOn]:
    """Rank 0 chooses; all load the same."""
    ranks = opening.ranks
    goes_on = where_to_go_on(opening, settings.output_dir, needs_scaler=state.scaler is not None)
    if goes_on.directory is None:
        return None, goes_on
    stored, problem = _read(state, goes_on.directory, ranks)
    _raise_on_all(ranks, problem)
    if stored is None:
        return None, goes_on
    try:
        state.apply(stored)
    except (CannotLoad, HalfLoaded) as reason:  # half is no harm before the first step
        raise ValueError(f"resume: {reason}") from reason
    return stored, goes_on


def _read(state: State, directory: Path, ranks: Ranks) -> tuple[Stored | None, str]:
    try:
        return state.read(directory, ranks.rank, ranks.world_size), ""
    except CannotLoad as reason:
        return None, f"resume: {reason}"


def begin(
    state: State, settings: Settings, opened: Opened, clock: StepClock, source: Source, *, set_max_grad_norm: SetNorm
) -> Session:
    """The session, begun."""
    parts = Parts(
        policy=settings.policy,
        config=settings.config,
        output_dir=settings.output_dir,
        probes=Probes(from_forward=False, on_error=go_on, clock=clock),
        plan=opened.plan,
        source=source,
        set_max_grad_norm=set_max_grad_norm,
    )
    attributes = loop_facts.attributes(state) | _own(settings)
    able = loop_facts.abilities(settings.policy, state)
    facts = Facts(loop_facts.integration(state), able, attributes, settings.total_steps)
    assert opened.opening is not None, "a training that is not watched has no session"
    return begin_session(opened.opening, facts, parts, opened.goes_on)


def _own(settings: Settings) -> dict[str, Scalar]:
    return {"save_every": settings.save_every, **settings.attributes}

"""How a training begins on all of its ranks: they find together, take up one run under one id, and go on from one checkpoint.

    meet -> (where_to_go_on) -> begin_session

Rank 0 reads and writes the run's folder; the others are told. A rank that cannot begin leaves, so that the others notice and go
on without waiting for it.
"""

import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainer_agent.checkpoints.directories import read_manifest
from trainer_agent.commands import going_on
from trainer_agent.commands.agreement import joined
from trainer_agent.commands.going_on import GoOn, NothingFit
from trainer_agent.commands.in_force import SetNorm
from trainer_agent.commands.journal import Journal
from trainer_agent.config import Config
from trainer_agent.data.leaving_out import Source
from trainer_agent.data.plan import DataPlan
from trainer_agent.guest.interrupts import let_pass
from trainer_agent.guest.voice import Voice
from trainer_agent.identity import Identity
from trainer_agent.measuring.probes import Probes
from trainer_agent.monitor import Monitor, new_incarnation
from trainer_agent.policy import Abilities, Policy
from trainer_agent.ranks import START_SECONDS, Apart, Ranks
from trainer_agent.wire.messages import RunStart, Scalar
from trainer_agent.wire.vocabulary import CommandKind

from .session import Session

EVERY_BESIDE_NETWORK = 10


@dataclass(frozen=True, slots=True)
class Opening:
    """What all ranks know before the first step."""

    ranks: Ranks
    identity: Identity
    journal: Journal
    agree_every: int = 1

    @property
    def voice(self) -> Voice | None:
        """For the monitor: the ranks beside rank 0 leave to it what concerns all of them. None is the usual one."""
        if self.ranks.leads:
            return None
        voice = Voice()
        voice.hush("page", "config", "unset", "transport", "left")
        return voice


def meet(
    directory: Path, policy: Policy, choose_run: Callable[[], str | None], *, start_seconds: float = START_SECONDS
) -> Opening:
    """The ranks, and the run of this `.lossguard` folder. `choose_run` gives the id wanted, on rank 0; None takes what is there.

    All ranks call it. Where they do not find together, rank 0 goes on by itself, able to do nothing to the training.

    Raises:
        Apart: on another rank, which then knows no run.
    """
    ranks = Ranks.of_this_process(start_seconds=start_seconds)
    if ranks.is_alone or (ranks.problem and ranks.leads):
        return _alone(ranks, directory, choose_run)
    if ranks.problem:
        raise Apart(ranks.problem)
    try:
        return _lead(ranks, directory, policy, choose_run) if ranks.leads else _follow(ranks, directory)
    except Exception:
        ranks.leave()
        raise


def _alone(ranks: Ranks, directory: Path, choose_run: Callable[[], str | None]) -> Opening:
    identity = Identity.open(directory, choose_run())
    return Opening(ranks, identity, Journal.open(directory, identity.run_id, identity.last_segment))


def _lead(ranks: Ranks, directory: Path, policy: Policy, choose_run: Callable[[], str | None]) -> Opening:
    opening = _alone(ranks, directory, choose_run)
    every = policy.agree_every or (1 if ranks.on_one_machine else EVERY_BESIDE_NETWORK)
    told = {"every": every, "identity": opening.identity.to_bytes().decode(), "journal": opening.journal.to_bytes().decode()}
    try:
        ranks.share(json.dumps(told).encode())
    except Apart:  # said by the session, whose capabilities these are
        return opening
    return replace(opening, agree_every=every)


def _follow(ranks: Ranks, directory: Path) -> Opening:
    told = json.loads(ranks.share())
    identity = Identity.of_rank_0(told["identity"].encode(), directory)
    return Opening(ranks, identity, Journal.of_rank_0(told["journal"].encode()), told["every"])


# --- where it goes on


def where_to_go_on(opening: Opening, output_dir: Path, *, needs_scaler: bool) -> GoOn:
    """The checkpoint that all ranks go on from, chosen by rank 0. All ranks call it.

    Raises:
        NothingFit: there are checkpoints and none is fit, or another rank does not see it. On all ranks.
        Apart
    """
    ranks, journal = opening.ranks, opening.journal
    if ranks.is_alone or ranks.problem:
        return _said(going_on.where_to_go_on(journal, output_dir, needs_scaler=needs_scaler), output_dir)
    told = ranks.share(_choose(opening, output_dir, needs_scaler) if ranks.leads else None)
    found, problem = _understood(journal, output_dir, json.loads(told))
    problems = joined(ranks.gather(problem.encode()))
    if problems:
        raise NothingFit(problems)
    return _said(found, output_dir) if ranks.leads else found


def _choose(opening: Opening, output_dir: Path, needs_scaler: bool) -> bytes:  # noqa: FBT001  as it is called once
    def choose() -> GoOn:
        return going_on.where_to_go_on(opening.journal, output_dir, needs_scaler=needs_scaler)

    try:
        found = opening.ranks.while_they_wait(choose)
    except Apart:
        raise
    except Exception as error:
        let_pass(error)
        return json.dumps({"problem": str(error) or type(error).__name__}).encode()
    name = found.directory.name if found.directory is not None else None
    how = {"ends": found.ends is not None, "stops": found.stops, "passed_over": found.passed_over}
    return json.dumps({"problem": "", "name": name, **how}).encode()


def _understood(journal: Journal, output_dir: Path, told: dict[str, Any]) -> tuple[GoOn, str]:
    """What rank 0 chose, and why this rank cannot go on from there."""
    if told["problem"] or told["name"] is None:
        return GoOn(stops=told.get("stops", False)), told["problem"]
    directory = output_dir / told["name"]
    facts = read_manifest(directory, journal.state.run_id)
    ends = journal.state.intent if told["ends"] else None
    seen = "" if directory.is_dir() else f"{directory} is not there; all ranks must share the output directory"
    return GoOn(directory, facts, ends, tuple(told["passed_over"]), stops=told["stops"]), seen


def _said(found: GoOn, output_dir: Path) -> GoOn:
    if found.passed_over and found.directory is not None:
        Voice().once("passed over", f"goes on from {found.directory.name}; passed over: {'; '.join(found.passed_over[:3])}")
    if found.directory is None:
        Voice().once("anew", f"there is no checkpoint in {output_dir} to go on from: the training begins anew")
    return found


# --- the session


@dataclass(frozen=True, slots=True)
class Facts:
    """What is said of a training when it starts."""

    integration: str
    able: Abilities
    attributes: Mapping[str, Scalar]
    total_steps: int | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """What a session is made of, that its integration has."""

    policy: Policy
    config: Config
    output_dir: Path
    probes: Probes
    plan: DataPlan
    source: Source
    set_max_grad_norm: SetNorm


def begin_session(opening: Opening, facts: Facts, parts: Parts, goes_on: GoOn | None = None) -> Session:
    """The session of one training, begun. All ranks call it. `goes_on`: see `Session.begin`."""
    ranks, able = opening.ranks, facts.able
    if ranks.problem:
        able = Abilities((), ranks.problem, acts=False)
    policy = parts.policy if able.acts else Policy.watch_only()
    start = _start(opening, replace(facts, able=able), parts, policy)
    try:
        session = Session(
            monitor=Monitor(start, parts.config, parts.output_dir / ".lossguard", opening.voice),
            identity=opening.identity,
            policy=policy,
            capabilities=able.kinds,
            output_dir=parts.output_dir,
            probes=parts.probes,
            plan=parts.plan,
            source=parts.source,
            ranks=ranks,
            agree_every=opening.agree_every,
            journal=opening.journal,
            set_max_grad_norm=parts.set_max_grad_norm,
        )
        session.begin(goes_on)
    except Exception:
        ranks.leave()
        raise
    return session


def _start(opening: Opening, facts: Facts, parts: Parts, policy: Policy) -> RunStart:
    able = facts.able
    return RunStart(
        run_id=opening.identity.run_id,
        incarnation=new_incarnation(),
        project=parts.config.project,
        name=parts.config.name or parts.output_dir.name or "run",  # the root folder has no name
        rank=opening.ranks.rank,
        world_size=opening.ranks.world_size,
        host=socket.gethostname(),
        pid=os.getpid(),
        total_steps=facts.total_steps,
        integration=facts.integration,
        capabilities=able.kinds,
        incapable_because=able.because,
        data_modes=able.modes,
        data_modes_because=able.modes_because,
        automatic_rollback=policy.automatic_rollback and CommandKind.ROLLBACK in able.kinds,
        attributes=dict(facts.attributes),
    )


def open_plan(directory: Path, *, keep: bool, leads: bool) -> DataPlan:
    """The plan of a run that is taken up again; an empty one for a new run, and rank 0 empties the file too."""
    try:
        plan = DataPlan.open(directory) if keep or leads else DataPlan.empty(directory)
    except ValueError as error:
        Voice().once("data plan", f"{error}; batches that were skipped before may come again")
        return DataPlan.empty(directory)
    if not keep and leads:
        plan.clear()
    return plan

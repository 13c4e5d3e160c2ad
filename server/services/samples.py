"""What the agents tell of the data: which samples went into which steps, and whether a resume goes on as it was."""

from datetime import datetime

from sqlalchemy import Connection

from server.domain.events import Event, EventType
from server.domain.wording.clauses import clause
from server.domain.wording.event_words import resumed, told
from server.services.errors import Invalid
from server.services.recording import record
from server.store import samples as store
from trainer_agent.wire.messages import ResumeChecked, StepSamples
from trainer_agent.wire.samples import NoBlock, from_text, sample_planes
from trainer_agent.wire.vocabulary import Severity

MOST_STEP = 2**53 - 1
MOST_FINDINGS, LONGEST_FINDING = 20, 500
_MOST_NUMBER = 2**31 - 1


def check(wire: StepSamples | ResumeChecked) -> None:
    """That a record of this kind can be stored.

    Raises:
        Invalid
    """
    steps = (wire.first_step, wire.last_step) if isinstance(wire, StepSamples) else (wire.from_step, wire.steps)
    if not 0 <= wire.segment <= _MOST_NUMBER or not all(0 <= step <= MOST_STEP for step in steps):
        raise Invalid(f"segment {wire.segment} or steps {steps} cannot be stored", "send true numbers")
    if isinstance(wire, StepSamples):
        _check_body(wire)


def _check_body(wire: StepSamples) -> None:
    try:
        sample_planes(from_text(wire.body))
    except NoBlock as error:
        raise Invalid(
            f"the samples of steps {wire.first_step} to {wire.last_step} cannot be read: {error}", "send a block"
        ) from None


def take(connection: Connection, run_id: str, rank: int, wire: StepSamples, now: datetime) -> None:
    """A block of the ledger, which `check` has let pass."""
    store.save(connection, run_id, rank, wire, now)


def resume_checked(connection: Connection, run_id: str, wire: ResumeChecked, now: datetime) -> None:
    """What the first steps of a segment look like beside the stored curve."""
    findings = [each[:LONGEST_FINDING] for each in wire.findings[:MOST_FINDINGS]]
    severity = Severity.WARNING if findings else Severity.INFO
    found = resumed(wire.steps, [clause(each) for each in findings])
    data = {
        "severity": severity.value,
        "from_step": wire.from_step,
        "steps": wire.steps,
        "findings": findings,
        **told(EventType.RUN_RESUME_CHECKED, step=wire.from_step, found=found),
    }
    record(connection, Event(EventType.RUN_RESUME_CHECKED, now, run_id, wire.from_step, wire.segment, data))

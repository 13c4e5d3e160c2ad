"""Alert rules, and the detectors they may use, for people."""

from collections import defaultdict
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from sqlalchemy import Connection

from server.domain import rule_flaws
from server.domain import rules as domain
from server.domain.detectors import DETECTORS
from server.domain.detectors.base import DetectorKind
from server.domain.rule_notes import RULE_NOTES, RuleNote
from server.domain.rules import AlertRule
from server.services import rules as service
from server.store import alerts as alerts_store
from server.store import rules as store
from trainer_agent.wire.vocabulary import Severity

from .deps import By, Id, In, Out
from .door import PeopleRoute

router = APIRouter(prefix="/api", route_class=PeopleRoute, tags=["rules"])

MOST_RUNS_NAMED = 20


class ActionOut(Out):
    """What follows when a rule fires."""

    kind: str
    countdown_seconds: float
    data: str
    max_grad_norm: float | None
    dry_run: bool


class ScopeOut(Out):
    """Where a rule holds."""

    kind: str
    name: str


class FailureOut(Out):
    """Why a rule is judged no more."""

    at: str
    text: str


class RunNamed(Out):
    """A run that something is said of."""

    run_id: str
    run_name: str


class RuleOut(Out):
    """A rule as the page shows it."""

    rule_id: str
    name: str
    title: str
    series: str
    detector: str
    settings: dict[str, float]
    for_points: int
    keep_firing_for_points: int
    severity: str
    enabled: bool
    action: ActionOut
    version: int
    reason: str
    scope: ScopeOut
    trial: bool
    edited: bool
    is_default: bool
    failure: FailureOut | None
    never_seen: list[RunNamed]
    too_many_series: list[RunNamed]
    open_alerts: int


class Rules(Out):
    """All rules, in the order of the page."""

    rules: list[RuleOut]


class SettingOut(Out):
    """A number that a detector lets a rule set."""

    name: str
    default: float | None
    minimum: float
    maximum: float
    whole: bool
    meaning: str


class DetectorOut(Out):
    """A condition that a rule can state."""

    kind: str
    meaning: str
    companions: list[str]
    across_ranks: bool
    settings: list[SettingOut]


class Detectors(Out):
    """All conditions."""

    detectors: list[DetectorOut]


def _said(**schema: Any) -> Any:
    """A field that the domain reads, so that every wrong one is told at once; the schema is what it takes."""
    return Annotated[Any, WithJsonSchema(schema)]


_TEXT: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": rule_flaws.MAX_NAME}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": rule_flaws.MAX_POINTS}
_NUMBER = {"anyOf": [{"type": "number"}, {"type": "null"}]}
_ACTION = {
    "type": "object",
    "properties": {
        "kind": {"enum": [kind.value for kind in domain.ActionKind]},
        "countdown_seconds": {"type": "number", "minimum": 0, "maximum": rule_flaws.MAX_COUNTDOWN_SECONDS},
        "data": {"enum": [mode.value for mode in rule_flaws.RULE_DATA]},
        "max_grad_norm": _NUMBER,
        "dry_run": {"type": "boolean"},
    },
    "additionalProperties": False,
}
_SCOPE = {
    "type": "object",
    "properties": {"kind": {"enum": [kind.value for kind in domain.ScopeKind]}, "name": {"type": "string"}},
    "additionalProperties": False,
}


class RuleSaid(BaseModel):
    """A rule, or what of one is to be different; what is not named stays, or is the default."""

    model_config = ConfigDict(extra="allow")
    name: _said(**_TEXT) = None  # type: ignore[valid-type]
    title: _said(**_TEXT) = None  # type: ignore[valid-type]
    series: _said(**_TEXT) = None  # type: ignore[valid-type]
    detector: _said(enum=[kind.value for kind in DETECTORS]) = None  # type: ignore[valid-type]
    settings: _said(type="object", additionalProperties=_NUMBER) = None  # type: ignore[valid-type]
    for_points: _said(**_COUNT) = None  # type: ignore[valid-type]
    keep_firing_for_points: _said(**_COUNT) = None  # type: ignore[valid-type]
    severity: _said(enum=[severity.value for severity in Severity]) = None  # type: ignore[valid-type]
    enabled: _said(type="boolean") = None  # type: ignore[valid-type]
    action: _said(**_ACTION) = None  # type: ignore[valid-type]
    scope: _said(**_SCOPE) = None  # type: ignore[valid-type]
    trial: _said(type="boolean") = None  # type: ignore[valid-type]
    reason: _said(type="string", maxLength=rule_flaws.MAX_REASON) = None  # type: ignore[valid-type]

    def given(self) -> dict[str, Any]:
        """What the caller has named, as it was sent."""
        named = {name: getattr(self, name) for name in self.model_fields_set if name in type(self).model_fields}
        return {**named, **(self.model_extra or {})}


class RuleChange(RuleSaid):
    """What of a rule is to be different, and the version that this was decided on."""

    version: Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)] | None = None


def rules_out(connection: Connection, rules: tuple[AlertRule, ...]) -> list[RuleOut]:
    """Rules as the API shows them, with what there is to say of each."""
    failures, alerts = store.read_failures(connection), alerts_store.count_open_by_rule(connection)
    noted = {note: _runs_of(connection, note) for note in RULE_NOTES}
    return [
        RuleOut(
            **domain.rule_to_json(rule),
            is_default=service.is_default(rule.rule_id),
            failure=_failure(failures.get(rule.rule_id)),
            never_seen=noted[RuleNote.NEVER_SEEN][rule.rule_id, rule.version][:MOST_RUNS_NAMED],
            too_many_series=noted[RuleNote.TOO_MANY_SERIES][rule.rule_id, rule.version][:MOST_RUNS_NAMED],
            open_alerts=alerts.get(rule.rule_id, 0),
        )
        for rule in rules
    ]


def _failure(kept: dict[str, Any] | None) -> FailureOut | None:
    return None if kept is None else FailureOut(at=kept["at"], text=kept["text"])


def _runs_of(connection: Connection, note: RuleNote) -> dict[tuple[str, int], list[RunNamed]]:
    """The runs of which something is noted of a rule, by its id and the version that it had."""
    found: dict[tuple[str, int], list[RunNamed]] = defaultdict(list)
    for rule_id, version, run_id, run_name in store.read_notes(connection, note):
        found[rule_id, version].append(RunNamed(run_id=run_id, run_name=run_name))
    return found


def detector_out(kind: DetectorKind) -> DetectorOut:
    """A detector as the API shows it."""
    detector = DETECTORS[kind]
    settings = [
        SettingOut(
            name=name,
            default=setting.default,
            minimum=setting.minimum,
            maximum=setting.maximum,
            whole=setting.whole,
            meaning=setting.meaning,
        )
        for name, setting in detector.settings.items()
    ]
    return DetectorOut(
        kind=kind.value,
        meaning=domain.meaning(kind),
        companions=list(detector.companions),
        across_ranks=detector.across_ranks,
        settings=settings,
    )


@router.get("/detectors")
def list_detectors() -> Detectors:
    """Every condition that a rule can state, with its settings."""
    return Detectors(detectors=[detector_out(kind) for kind in DETECTORS])


@router.get("/rules")
def list_rules(context: In) -> Rules:
    """All rules, in the order of the page."""
    with context.database.reading() as connection:
        return Rules(rules=rules_out(connection, store.read_rules(connection)))


@router.post("/rules", status_code=201)
def create_rule(body: RuleSaid, context: In, caller: By) -> RuleOut:
    """A new rule. It judges from the next point on."""
    given, now = body.given(), context.now()
    return _saved(context, lambda connection: service.create(connection, given, caller.name, now))


@router.put("/rules/{rule_id}")
def change_rule(rule_id: Id, body: RuleChange, context: In, caller: By) -> RuleOut:
    """The rule after the change; it starts afresh on every run, unless only its words have changed."""
    changes, now = body.given(), context.now()
    changes.pop("version", None)
    return _saved(context, lambda c: service.change(c, rule_id, changes, caller.name, now, version=body.version))


@router.post("/rules/{rule_id}/reset")
def reset_rule(rule_id: Id, context: In, caller: By) -> RuleOut:
    """A default rule as the pack has it."""
    now = context.now()
    return _saved(context, lambda connection: service.reset(connection, rule_id, caller.name, now))


@router.delete("/rules/{rule_id}", status_code=204)
def delete_rule(rule_id: Id, context: In, caller: By) -> None:
    """Forget a rule of one's own. A default rule is disabled instead."""
    now = context.now()
    context.database.writer.submit(lambda connection: service.remove(connection, rule_id, caller.name, now))
    context.bus.ring(rules=True)


def _saved(context: In, act: Any) -> RuleOut:
    """What a change has made of a rule. Pages are told."""
    rule = context.database.writer.submit(act)
    context.bus.ring(rules=True)
    with context.database.reading() as connection:
        return rules_out(connection, (rule,))[0]

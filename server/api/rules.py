"""Alert rules, for people."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from server.domain.rules import AlertRule
from server.services import rules as service
from server.store import rules as store

from .deps import By, Id, In
from .door import PeopleRoute

router = APIRouter(prefix="/api/rules", route_class=PeopleRoute, tags=["rules"])

Finite = Annotated[float, Field(allow_inf_nan=False)]


class ActionOut(BaseModel):
    """What follows when a rule fires."""

    kind: str
    countdown_seconds: float
    data: str
    max_grad_norm: float | None


class RuleOut(BaseModel):
    """A rule as the page shows it."""

    model_config = ConfigDict(ser_json_inf_nan="strings")
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


class Rules(BaseModel):
    """All rules, in the order of the page."""

    rules: list[RuleOut]


class ActionChange(BaseModel):
    """What of an action is to be different."""

    model_config = ConfigDict(extra="forbid", strict=True)
    kind: Literal["notify", "stop", "rollback"] = "notify"
    countdown_seconds: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = 60.0
    data: Literal["replay", "skip"] = "skip"
    max_grad_norm: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class RuleChange(BaseModel):
    """What of a rule is to be different; what is not named stays."""

    model_config = ConfigDict(extra="forbid", strict=True)
    settings: dict[Annotated[str, Field(max_length=64)], Finite] = Field(default={}, max_length=32)
    for_points: Annotated[int, Field(ge=1, le=100_000)] = 1
    keep_firing_for_points: Annotated[int, Field(ge=0, le=100_000)] = 10
    severity: Literal["info", "warning", "critical"] = "warning"
    enabled: bool = True
    action: ActionChange = ActionChange()


def rule_out(rule: AlertRule) -> RuleOut:
    """A rule as the API shows it."""
    action = rule.action
    return RuleOut(
        rule_id=rule.rule_id,
        name=rule.name,
        title=rule.title,
        series=rule.series,
        detector=rule.detector.value,
        settings=dict(rule.settings),
        for_points=rule.for_points,
        keep_firing_for_points=rule.keep_firing_for_points,
        severity=rule.severity.value,
        enabled=rule.enabled,
        action=ActionOut(
            kind=action.kind.value,
            countdown_seconds=action.countdown_seconds,
            data=action.data.value,
            max_grad_norm=action.max_grad_norm,
        ),
        version=rule.version,
        reason=rule.reason,
    )


@router.get("")
def list_rules(context: In) -> Rules:
    """All rules, in the order of the page."""
    with context.database.reading() as connection:
        return Rules(rules=[rule_out(rule) for rule in store.read_rules(connection)])


@router.put("/{rule_id}")
def change_rule(rule_id: Id, body: RuleChange, context: In, caller: By) -> RuleOut:
    """The rule after the change; it starts afresh on every run."""
    changes: dict[str, Any] = body.model_dump(exclude_unset=True)
    now = context.now()
    return rule_out(context.database.writer.submit(lambda c: service.change(c, rule_id, changes, caller.name, now)))

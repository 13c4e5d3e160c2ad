"""A run of 300 steps over HTTP whose rules fire, recover, are rewound and act, and what is left of it in the database."""

import contextlib
import json
import random
import shutil
import ssl
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import sqlalchemy as sa
from judging_kit import Trainer
from kill_kit import Server, wait_until

from server.domain.access import Role
from server.domain.rules import Action, ActionKind, AlertRule, DetectorKind
from server.services import access
from server.services import rules as rules_service
from server.services import webhooks as webhooks_service
from server.store import rules as rules_store
from server.store.database import Database
from server.store.tables import alerts, countdowns, deliveries, events, rule_states
from trainer_agent.wire.codec import encode
from trainer_agent.wire.messages import RunStart
from trainer_agent.wire.vocabulary import CommandKind, SegmentCause, Severity

_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used on loopback, and slow to make anew
RUN, BATCH, STEPS = "scenario", 11, 300
NOW = datetime(2026, 3, 1, tzinfo=UTC)
_TIMES = ("onset_at", "firing_at", "resolved_at", "started_at", "due_at", "ended_at")
_OF_ONE_RUN = ("incident_id", "command_id", "countdown_id")

RULES = (
    AlertRule(
        "loss-high",
        "Loss is high",
        "Loss high",
        "train/loss",
        DetectorKind.THRESHOLD,
        {"above": 10.0},
        for_points=2,
        keep_firing_for_points=3,
        severity=Severity.CRITICAL,
    ),
    AlertRule("eval-nan", "Eval loss is not finite", "Eval NaN", "eval/loss", DetectorKind.NONFINITE, severity=Severity.CRITICAL),
    AlertRule("any-rises", "Anything rises", "Rises", "train/*", DetectorKind.CONSECUTIVE_RISE, {"rises": 5.0}, for_points=2),
    AlertRule("slow", "Aux over 1 for long", "Aux", "train/aux", DetectorKind.THRESHOLD, {"above": 1.0}, for_points=17),
    AlertRule(
        "acts",
        "Aux over 5 stops the run",
        "Aux over 5",
        "train/aux",
        DetectorKind.THRESHOLD,
        {"above": 5.0},
        severity=Severity.CRITICAL,
        action=Action(ActionKind.STOP, countdown_seconds=3600.0),
    ),
)


class _Records(Trainer):
    """The trainer of `tests/services`, for what it makes of records; nothing is sent by it."""

    def log_all(self, step: int, **values: float) -> None:
        self.records.append((self.segment, step, {name.replace("__", "/"): value for name, value in values.items()}))


def told_records() -> _Records:
    """300 steps: 160, a rollback to step 110 out of the middle of it all, and 140 more."""
    made, chance = _Records(None, None, run_id=RUN), random.Random(5)
    made.open_segment(1, 0, SegmentCause.START)
    for count in range(1, STEPS + 1):
        step = count if count <= 160 else count - 50
        if count == 161:
            made.open_segment(2, 110)
        loss = 20.0 if step % 20 in {4, 5} else 2.0 + chance.random() / 10
        norm = float("inf") if chance.random() < 0.02 else 1.0 + chance.random() + (30.0 if chance.random() < 0.02 else 0.0)
        aux = 2.0 if 95 <= step <= 140 else 0.5
        if count > 260 and step % 20 < 12:
            aux = 6.0
        values = {"train__loss": loss, "train__grad_norm": norm, "train__aux": aux}
        if step % 25 == 0:
            values["eval__loss"] = float("nan") if step in {75, 150, 200} else 3.0
        made.log_all(step, **values)
    return made


@dataclass(frozen=True)
class Outcome:
    """What a scenario leaves behind, without times and random ids."""

    transitions: list
    alerts: list
    countdowns: list
    states: dict
    messages: list
    deliveries: int
    doubled: int
    """Messages that say the same under different ids."""


def prepare(folder: Path, url: str) -> None:
    """A database with the rules and an endpoint, to be copied for each server."""
    database = Database.open(f"sqlite:///{folder}/lossguard.db")
    try:
        database.migrate()
        database.writer.submit(lambda c: rules_service.ensure_rules(c, NOW))
        database.writer.submit(lambda c: rules_store.add_missing(c, [replace(rule, edited=True) for rule in RULES]))
        endpoint = {"name": "all", "url": url, "secret": "whsec_" + "A" * 32, "minimum_severity": Severity.INFO, "project": None}
        database.writer.submit(lambda c: webhooks_service.create(c, **endpoint, by="ann", now=NOW))
        token = database.writer.submit(lambda c: access.create_token(c, Role.OPERATOR, "ann", NOW))
        (folder / "operator.token").write_text(token)
    finally:
        database.close()


class Played:
    """One server, one run of the scenario; the server is started again wherever it dies."""

    def __init__(self, server: Server, template: Path, fault: str = "none") -> None:
        self.server, self.fault = server, fault
        shutil.copytree(template, server.folder / "data")
        self.operator = (template / "operator.token").read_text()
        server.start(fault)
        self.deaths = 0
        self._client = httpx2.Client(timeout=20, trust_env=False, verify=_TLS)

    def play(self, at: str = "", messages: int = 0) -> Outcome:
        """The scenario to its end; the server dies at the label, where one is given. `messages`: how many to wait for.

        Without a fault there is nothing to wait for: a message is in line as soon as the points are stored that it is about.
        """
        records = told_records()
        if at:
            self.server.arm(at)
        start = RunStart(RUN, records.incarnation, "p", "n", capabilities=tuple(CommandKind))
        self._post("/api/agent/runs", encode(start))
        for first in range(1, len(records.records) + 1, BATCH):
            self._post("/api/agent/batches", encode(records.batch(first, min(first + BATCH - 1, len(records.records)))))
        self._post(f"/api/runs/{RUN}/countdown/now", b"", self.operator, done=(200, 409))
        if messages:
            self._settle(messages)
        return self._read()

    def _post(self, path: str, body: bytes, token: str = "", done: tuple[int, ...] = (200,)) -> None:
        """Until the server has answered that it is done, as an agent does."""
        answered = []

        def says_yes() -> bool:
            if self.server.is_dead:
                self.deaths += 1
                self.server.start(self.fault)
            headers = {"Authorization": f"Bearer {token or self.server.token}", "Content-Type": "application/json"}
            try:
                answer = self._client.post(self.server.url + path, content=body, headers=headers)
            except httpx2.HTTPError:
                return False
            answered.append((answer.status_code, answer.text[:300]))
            return answer.status_code in done

        try:
            wait_until(f"the answer to {path}", says_yes, 30.0)
        except AssertionError as error:
            raise AssertionError(f"{error}; last: {answered[-1:]}") from None

    def _settle(self, messages: int) -> None:
        """Until so many deliveries are in line; those that come later do not come any more."""
        if self.server.is_dead:
            self.server.start(self.fault)
        headers = {"Authorization": f"Bearer {self.operator}"}
        (endpoint,) = self._client.get(f"{self.server.url}/api/webhooks", headers=headers).json()["webhooks"]
        where = f"{self.server.url}/api/webhooks/{endpoint['webhook_id']}/deliveries"

        def is_there() -> bool:
            time.sleep(0.1)
            return len(self._client.get(where, headers=headers, params={"limit": 500}).json()["deliveries"]) >= messages

        with contextlib.suppress(AssertionError):
            wait_until("the last message", is_there, 5.0)

    def _read(self) -> Outcome:
        self._client.close()
        self.server.kill()
        engine = sa.create_engine(f"sqlite:///{self.server.folder}/data/lossguard.db", poolclass=sa.NullPool)
        with engine.connect() as connection:
            made = _outcome(connection)
        engine.dispose()
        return made


def _outcome(connection: sa.Connection) -> Outcome:
    every = connection.execute(sa.select(events).where(events.c.run_id == RUN).order_by(events.c.event_id))
    told = [row for row in every if row.type.partition(".")[0] in {"alert", "countdown", "command", "rule"}]
    sent = connection.execute(sa.select(deliveries)).all()
    messages = [_message(json.loads(row.body)) for row in sent if row.event_type.startswith("incident.")]
    states = connection.execute(sa.select(rule_states).where(rule_states.c.run_id == RUN)).all()
    return Outcome(
        transitions=[(row.type, row.step, row.segment, _plain(json.loads(row.data))) for row in told],
        alerts=sorted(json.dumps(_plain(dict(row._mapping)), default=str) for row in connection.execute(sa.select(alerts))),
        countdowns=[_plain(dict(row._mapping)) for row in connection.execute(sa.select(countdowns))],
        states={(row.rule_id, row.series, row.rank): (row.segment, row.state) for row in states},
        messages=sorted(messages),
        deliveries=len(sent),
        doubled=len(messages) - len(set(messages)),
    )


def _plain(data: dict) -> dict:
    """Without what differs between two runs of the same scenario: times and random ids."""
    return {name: value for name, value in data.items() if name not in {*_TIMES, *_OF_ONE_RUN, "told"}}


def _message(body: dict) -> str:
    """What a message says: of which alerts, at which step."""
    data = body["data"]
    named = sorted((each["alert_id"], each.get("state", "")) for each in data.get("alerts", []))
    return json.dumps([body["type"], data["step"], data["rule"], data["text"], named])

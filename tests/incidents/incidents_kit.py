"""A run, alerts that fire and end, endpoints that answer or do not, and a worker whose clock is the test's."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from judging_kit import Trainer

from server.domain.alerts import Alert, CloseReason
from server.domain.webhooks import Attempt
from server.services import incidents, silences, transitions, webhooks
from server.store import alerts as alerts_store
from server.store import events as events_store
from server.store import incidents as incident_store
from server.store.tables import deliveries
from server.store.tables import incidents as incident_table
from trainer_agent.wire.vocabulary import AlertState, Severity

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def an_alert(name="a", severity=Severity.WARNING, **change):
    """A firing alert of the run `run`, its rule named after it."""
    alert = Alert(
        run_id="run",
        alert_id=f"a_{name}",
        rule_id=f"rule-{name}",
        rule_version=1,
        rule_name=f"Rule {name}",
        title=f"Title {name}",
        severity=severity,
        series="train/grad_norm",
        rank=0,
        segment=1,
        state=AlertState.FIRING,
        onset_step=7,
        onset_at=NOW,
        value=12.5,
        limit=6.9,
        evidence={"median": 2.3, "points": 128.0, "times": 3.0},
        text=f"text of {name}",
        firing_step=7,
        firing_at=NOW,
        detector="spike",
    )
    return replace(alert, **change)


@dataclass
class Scene:
    """One run on one connection, at the time of `clock`."""

    connection: sa.Connection
    clock: object
    answers: bool = True
    """Whether endpoints take what they get."""
    sent: list = field(default_factory=list)
    """Each message that was taken: when, and its body."""

    def __post_init__(self):
        self.trainer = Trainer(self.connection, self.clock).start().send()

    def fire(self, alert, *, look=True):
        transitions.fire(self.connection, alert, self.clock(), is_new=True)
        if look:
            self.look()

    def end(self, alert_id, because=CloseReason.RECOVERED):
        alert = alerts_store.read_alert(self.connection, "run", alert_id)
        if because is CloseReason.RECOVERED:
            over = replace(alert, state=AlertState.RESOLVED, resolved_step=9, resolved_at=self.clock(), closed_because=because)
            transitions.resolve(self.connection, over, alert.state, self.clock())
        else:
            transitions.cut_off(self.connection, alert, because, self.clock(), 9)
        self.look()

    def look(self):
        incidents.look(self.connection, "run", self.clock())

    def acknowledge(self, note=""):
        found = incident_store.open_incident(self.connection, "run")
        return incidents.acknowledge(self.connection, "run", found.incident_id, self.clock(), by="mlops", note=note)

    def silence(self, hours=1.0, **what):
        what = {"run_id": None, "project": None, "rule_id": None} | what
        return silences.start(self.connection, **what, hours=hours, reason="maintenance", by="mlops", now=self.clock())

    def endpoint(self, name="hook", severity=Severity.WARNING, language="en"):
        return webhooks.create(
            self.connection,
            name=name,
            url="https://hook.example/",
            secret="whsec_x",
            minimum_severity=severity,
            project=None,
            by="mlops",
            now=self.clock(),
            language=language,
        )

    def work(self):
        """One round of the worker: what time brings, then deliveries."""
        now = self.clock()
        silences.expire_due(self.connection, now)
        incidents.tell_due(self.connection, now)
        for ready in webhooks.take_due(self.connection, now, {}, 1000):
            attempt = Attempt(now, 200 if self.answers else 503, None if self.answers else "answered 503", 0.1)
            webhooks.finish_attempt(self.connection, ready.delivery.delivery_id, attempt, now, jitter=0.0, scale=1.0)
            if self.answers:
                self.sent.append((now, ready.endpoint.name, ready.delivery.body))

    def until(self, at):
        """Let time go on, with a round of the worker whenever a row says that something is due."""
        self.work()
        while (due := self.next_due()) is not None and due <= at:
            self.clock.now = max(self.clock(), due)
            self.work()
        self.clock.now = at
        self.work()

    def later(self, **span):
        self.until(self.clock() + timedelta(**span))

    def next_due(self):
        waits = [
            self.connection.execute(sa.select(sa.func.min(column))).scalar()
            for column in (incident_table.c.notify_at, deliveries.c.next_attempt_at)
        ]
        ends = [each.ends_at for each in silences.store.running(self.connection)]
        return min((each for each in (*waits, *ends) if each is not None), default=None)

    def told(self):
        """The events of all messages, oldest first."""
        events = reversed(events_store.newest(self.connection, "run", limit=1000))
        return [each.event for each in events if each.event.type in ("incident.firing", "incident.resolved")]

    def news(self):
        return [(e.type.value, sorted(a["alert_id"] for a in e.data["alerts"] if a["is_new"])) for e in self.told()]

    def incident(self):
        return incident_store.newest(self.connection, "run")

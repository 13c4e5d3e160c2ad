"""Rules, where they stand, and what came of them."""

import sqlalchemy as sa

from server.store.columns import Id, Json, Name, UtcTime, Word, metadata

rules = sa.Table(
    "rules",
    metadata,
    sa.Column("rule_id", Id, primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("body", Json, nullable=False),
    sa.Column("failure", Json),  # why it is not judged any more: see services/rules.py; None where it is
)

rule_states = sa.Table(
    "rule_states",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("rule_id", Id, primary_key=True),
    sa.Column("series", sa.String(128), primary_key=True),
    sa.Column("rank", sa.Integer, primary_key=True),
    sa.Column("rule_version", sa.Integer, nullable=False),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("state", Json, nullable=False),  # detector state and alert status
)

rule_snapshots = sa.Table(
    "rule_snapshots",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("rank", sa.Integer, primary_key=True),
    sa.Column("segment", sa.Integer, primary_key=True),
    sa.Column("incarnation", Id, primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True),
    sa.Column("top_step", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    comment="The rule states of a rank after point `seq`, kept now and then. No point before it has a step over `top_step`.",
)

alerts = sa.Table(
    "alerts",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("alert_id", Id, primary_key=True),
    sa.Column("rule_id", Id, nullable=False),
    sa.Column("rule_version", sa.Integer, nullable=False),
    sa.Column("rule_name", Name, nullable=False),
    sa.Column("title", Name, nullable=False),
    sa.Column("severity", Word, nullable=False),
    sa.Column("series", sa.String(128), nullable=False),
    sa.Column("rank", sa.Integer, nullable=False),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("state", Word, nullable=False, index=True),
    sa.Column("onset_step", sa.BigInteger, nullable=False),
    sa.Column("firing_step", sa.BigInteger),
    sa.Column("resolved_step", sa.BigInteger),
    sa.Column("onset_at", UtcTime, nullable=False),
    sa.Column("firing_at", UtcTime),
    sa.Column("resolved_at", UtcTime),
    sa.Column("closed_because", Word),
    sa.Column("evidence", Json, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("detector", Word, nullable=False, default=""),  # whose sentence it is
    sa.Column("trial", sa.Boolean, nullable=False, default=False),
    sa.Column("incident_id", Id),
    sa.Column("again_after", sa.Integer),  # the segment of the rollback after which the same rule fires once more
    sa.Column("told", Word),  # whether a message has named it: see domain/grouping.py
    sa.Index("ix_alerts_incident", "run_id", "incident_id"),
)

incidents = sa.Table(
    "incidents",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("incident_id", Id, primary_key=True),
    sa.Column("number", sa.Integer, nullable=False),  # within the run
    sa.Column("state", Word, nullable=False, index=True),
    sa.Column("severity", Word, nullable=False),
    sa.Column("title", Name, nullable=False),
    sa.Column("first_step", sa.BigInteger, nullable=False),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("opened_at", UtcTime, nullable=False),
    sa.Column("acknowledged_at", UtcTime),
    sa.Column("acknowledged_by", Name, nullable=False, default=""),
    sa.Column("note", sa.Text, nullable=False, default=""),
    sa.Column("resolved_at", UtcTime),
    sa.Column("closed_because", Word),
    sa.Column("notify_at", UtcTime, index=True),  # when the next message is due; None where none is
    sa.Column("notified_at", UtcTime),  # the last message that reached somebody
    sa.Column("told", Json, nullable=False, default="{}"),  # what has been told already: see domain/incidents.py
    sa.Column("version", sa.Integer, nullable=False, default=1),
)

silences = sa.Table(
    "silences",
    metadata,
    sa.Column("silence_id", Id, primary_key=True),
    sa.Column("run_id", Id),
    sa.Column("project", Name),
    sa.Column("rule_id", Id),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("author", Name, nullable=False),
    sa.Column("starts_at", UtcTime, nullable=False),
    sa.Column("ends_at", UtcTime, nullable=False, index=True),
    sa.Column("ended_at", UtcTime),  # by hand, before its time
    sa.Column("ended_by", Name, nullable=False, default=""),
)

backtests = sa.Table(
    "backtests",
    metadata,
    sa.Column("backtest_id", Id, primary_key=True),
    sa.Column("state", Word, nullable=False, index=True),
    sa.Column("request", Json, nullable=False),
    sa.Column("logs", sa.LargeBinary),  # what was brought along to be judged, compressed
    sa.Column("done", sa.Integer, nullable=False, default=0),
    sa.Column("total", sa.Integer, nullable=False, default=0),
    sa.Column("points", sa.BigInteger, nullable=False, default=0),
    sa.Column("result", Json),
    sa.Column("problem", sa.Text, nullable=False, default=""),
    sa.Column("created_by", Name, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("heard_at", UtcTime, nullable=False),  # of the server process that works on it
    sa.Column("taken_by", Id),  # which server process that is; None while it waits for one
    sa.Column("attempts", sa.Integer, nullable=False, default=0),  # how many have begun with it
    sa.Column("started_at", UtcTime),
    sa.Column("ended_at", UtcTime),
)

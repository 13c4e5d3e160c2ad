"""Runs, the processes that speak for them, and the stretches of steps they are made of."""

import sqlalchemy as sa

from server.store.columns import Id, Json, Name, UtcTime, Word, metadata

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("owner_token_id", Id, nullable=False),
    sa.Column("project", Name, nullable=False),
    sa.Column("name", Name, nullable=False),
    sa.Column("state", Word, nullable=False),
    sa.Column("state_reason", sa.Text, nullable=False, default=""),
    sa.Column("deadline_at", UtcTime, index=True),
    sa.Column("phase", Word),
    sa.Column("step", sa.BigInteger),
    sa.Column("total_steps", sa.BigInteger),
    sa.Column("segment", sa.Integer, nullable=False, default=1),
    sa.Column("world_size", sa.Integer, nullable=False, default=1),
    sa.Column("host", Name, nullable=False, default=""),
    sa.Column("integration", Word, nullable=False, default=""),
    sa.Column("capabilities", Json, nullable=False, default="[]"),
    sa.Column("incapable_because", sa.Text, nullable=False, default=""),
    sa.Column("data_modes", Json, nullable=False, default='["replay", "skip"]'),
    sa.Column("data_modes_because", sa.Text, nullable=False, default=""),
    sa.Column("automatic_rollback", sa.Boolean, nullable=False, default=False),
    sa.Column("attributes", Json, nullable=False, default="{}"),
    sa.Column("latest", Json, nullable=False, default="{}"),  # of the last heartbeat: shown, never judged
    sa.Column("dropped_records", sa.BigInteger, nullable=False, default=0),
    sa.Column("save_failure", Json),  # the last one; None once a later save has succeeded
    sa.Column("stepped_at", UtcTime),  # by the server's clock: when the newest step came
    sa.Column("phase_since", UtcTime),
    sa.Column("pace", Json),  # what the limit for a stall follows from: see domain/detectors/absence.py
    sa.Column("look_at", UtcTime, index=True),  # when the worker looks again whether it steps, and whether a hold is over
    sa.Column("hold", Json),  # no automatic action meanwhile: who said so, until when, why; None where nobody has
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("heard_at", UtcTime, nullable=False, index=True),
    sa.Column("ended_at", UtcTime),
    sa.Column("revision", sa.BigInteger, nullable=False, default=0),
)

incarnations = sa.Table(
    "incarnations",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("incarnation", Id, primary_key=True),
    sa.Column("rank", sa.Integer, primary_key=True),
    sa.Column("next_seq", sa.BigInteger, nullable=False, default=1),
    sa.Column("made_seq", sa.BigInteger, nullable=False, default=0),  # records it had made by what it said last: a backlog
    sa.Column("host", Name, nullable=False, default=""),
    sa.Column("pid", sa.BigInteger, nullable=False, default=0),
    sa.Column("started_at", UtcTime, nullable=False),
    sa.Column("heard_at", UtcTime, nullable=False),
)

segments = sa.Table(
    "segments",
    metadata,
    sa.Column("run_id", Id, primary_key=True),
    sa.Column("segment", sa.Integer, primary_key=True),
    sa.Column("incarnation", Id, nullable=False),
    sa.Column("from_step", sa.BigInteger, nullable=False),
    sa.Column("cause", Word, nullable=False),
    sa.Column("parent", sa.Integer),
    sa.Column("command_id", Id),
    sa.Column("checkpoint_id", Name),
    sa.Column("attributes", Json, nullable=False, default="{}"),
    sa.Column("last_step", sa.BigInteger),  # of the points of rank 0; None as long as there are none
    sa.Column("started_at", UtcTime, nullable=False),
)

"""The write that proves, before each ping to the watchdog outside, that the database takes one."""

from datetime import datetime

import sqlalchemy as sa

from .tables import pulses
from .upserts import upsert

SERVER = "server"


def beat(connection: sa.Connection, now: datetime) -> None:
    """Write the time down."""
    upsert(connection, pulses, [{"name": SERVER, "beaten_at": now}])

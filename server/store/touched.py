"""Which runs a unit of work has changed: each gets its revision raised once, and the page a hint after the commit."""

import sqlalchemy as sa

from .tables import runs

_KEY = "lossguard.touched"
_RAISED = (
    sa.update(runs)
    .where(runs.c.run_id == sa.bindparam("touched"))
    .values(revision=runs.c.revision + 1)
    .returning(runs.c.revision)
)


def touch(connection: sa.Connection, run_id: str) -> None:
    """Raise the run's revision by one, at most once in a unit of work, and remember it for the hint."""
    touched: dict[str, int] = connection.info.setdefault(_KEY, {})
    if run_id in touched:
        return
    revision = connection.execute(_RAISED, {"touched": run_id}).scalar()
    if revision is not None:
        touched[run_id] = revision


def take_touched(connection: sa.Connection) -> dict[str, int]:
    """The runs touched since the last call, with their new revisions. The writer asks after each unit, done or failed."""
    touched: dict[str, int] = connection.info.pop(_KEY, {})
    return touched

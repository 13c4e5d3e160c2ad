"""What tables are made of: the kinds of columns, and the names of keys and indexes."""

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class UtcTime(sa.types.TypeDecorator[datetime]):
    """An aware UTC datetime, stored as microseconds."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> int | None:  # noqa: ARG002
        """Refuses naive times: they are always a mistake."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone")
        return (value - _EPOCH) // timedelta(microseconds=1)

    def process_result_value(self, value: int | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002
        """Back to an aware datetime."""
        return None if value is None else _EPOCH + timedelta(microseconds=value)


metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Id = sa.String(64)
Name = sa.String(256)
Word = sa.String(32)
Json = sa.Text  # strict JSON as text: PostgreSQL's json type would refuse what SQLite takes

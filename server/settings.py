"""The only reader of the environment in the server: every setting, its default and what it means."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

List = Annotated[tuple[str, ...], NoDecode]

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")


class Settings(BaseSettings):
    """Read from `LOSSGUARD_*` variables; lists are written with commas."""

    model_config = SettingsConfigDict(env_prefix="LOSSGUARD_", frozen=True, extra="ignore")

    data_dir: Path = Path.home() / ".lossguard" / "server"
    """Holds the database (when it is SQLite) and the first agent token. Made with mode 0700."""
    database_url: str = ""
    """`sqlite:///path` or `postgresql://...`; empty: `lossguard.db` in `data_dir`."""
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8787
    public_url: str | None = None
    """How people reach the page from where they read the messages. Unset: messages carry no link, and say why."""
    allowed_hosts: List = ()
    """Host names the server answers to beside its own loopback names and that of `public_url`."""
    allow_private_webhooks: List = ()
    """Hosts or networks inside that webhooks may go to, or `true` for loopback and all private ranges."""
    watchdog_url: str | None = None
    """Asked for once a minute while the server does its work; who answers there calls somebody when that stops."""
    webhook_retry_scale: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Shortens the waits between attempts; for demonstrations and tests."""

    @field_validator("allowed_hosts", "allow_private_webhooks", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("public_url", "watchdog_url")
    @classmethod
    def _check_url(cls, value: str | None, info: ValidationInfo) -> str | None:
        if not value:
            return None
        if not value.startswith(("http://", "https://")):
            raise ValueError(f"LOSSGUARD_{str(info.field_name).upper()} must begin with http:// or https://")
        return value.rstrip("/") if info.field_name == "public_url" else value

    @property
    def database(self) -> str:
        """The URL of the database to open."""
        return self.database_url or f"sqlite:///{self.data_dir.expanduser().resolve() / 'lossguard.db'}"

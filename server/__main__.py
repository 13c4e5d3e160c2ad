"""The server's command line: `python -m server serve`, and what an administrator does beside it."""

import ipaddress
import json
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError
from sqlalchemy import Connection

from .app import create_app
from .clock import utc_now
from .domain.access import Role
from .services import access
from .settings import Settings
from .store import access as store
from .store.database import Database, DatabaseInUse, is_missing_file, without_password
from .store.migrating import DatabaseTooNew
from .store.visiting import visit
from .store.writer import StorageUnavailable

T = TypeVar("T")

GRACE_SECONDS = 3
BACKLOG = 2048
ADDRESS_FILE = "server.address"
"""Where the server last was, for `signin`: it may have been started on another port than the settings say."""
AGENT_TOKEN_FILE = "agent.token"  # noqa: S105 -- the name of the file

cli = typer.Typer(no_args_is_help=True, add_completion=False, help="LossGuard's server.", pretty_exceptions_enable=False)
token_cli = typer.Typer(no_args_is_help=True, help="Tokens for programs.")
cli.add_typer(token_cli, name="token")


class Server(uvicorn.Server):
    """Tells when it is ready, and lets the live streams go first when it ends: they would hold it up otherwise."""

    def __init__(self, app: FastAPI, ready: dict[str, Any], ready_file: Path | None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop" if sys.platform != "win32" else "asyncio",
                http="httptools",
                ws="none",
                lifespan="on",
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )
        self._app, self._ready, self._ready_file = app, ready, ready_file

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the database, take requests, then say so."""
        await super().startup(sockets)
        if self.started:
            _announce(self._ready, self._ready_file)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, take no more requests, finish what is under way."""
        self._app.state.bus.close()
        await super().shutdown(sockets)


@cli.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on. [LOSSGUARD_HOST, 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one. [LOSSGUARD_PORT, 8787]")] = None,
    ready_file: Annotated[Path | None, typer.Option(help="Write a JSON line here once the server answers.")] = None,
) -> None:
    """Run the server until it is told to end."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = _settings(host=host, port=port)
    token_file, code = _prepare(settings)
    listener = _listen(settings)
    app = create_app(settings)
    app.state.own_port = listener.getsockname()[1]
    url = _url(settings, app.state.own_port)
    (settings.data_dir.expanduser() / ADDRESS_FILE).write_text(url + "\n")
    ready = {"url": url, "sign_in": f"{url}/signin#{code}", "agent_token_file": str(token_file), "pid": os.getpid()}
    server = Server(app, ready, ready_file)
    server.run(sockets=[listener])
    if not server.started:
        raise typer.Exit(3)


@cli.command()
def signin() -> None:
    """Print a fresh one-time link for a browser. The server may be running."""
    settings = _settings()
    code = _change(settings, lambda connection: access.create_sign_in_code(connection, utc_now()))
    known = settings.data_dir.expanduser() / ADDRESS_FILE
    url = known.read_text().strip() if known.exists() and not settings.public_url else _url(settings, settings.port)
    print(f"{url}/signin#{code}")  # noqa: T201 -- this is the command's answer


@token_cli.command("create")
def create_token(
    role: Annotated[Role, typer.Option(help="agent: for training scripts; operator: what a person may do.")],
    name: Annotated[str, typer.Option(help="What the token is for; shown in the audit trail.")],
) -> None:
    """Print a new token. It cannot be shown again. The server may be running."""
    if not 1 <= len(name) <= 256:
        raise _refuse("--name must have 1 to 256 characters")
    print(_change(_settings(), lambda connection: access.create_token(connection, role, name, utc_now())))  # noqa: T201


@token_cli.command("revoke")
def revoke_tokens(name: Annotated[str, typer.Option(help="The name the tokens were made with.")]) -> None:
    """Let nobody in any more with the tokens of this name. The server may be running."""
    count = _change(_settings(), lambda connection: access.revoke_tokens(connection, name, utc_now()))
    if not count:
        raise _refuse(f"there is no live token named {name}")
    print(f"revoked {count}")  # noqa: T201


@cli.command()
def migrate() -> None:
    """Bring the database up to this version."""
    settings = _settings()
    _open(settings).close()
    print("the database is up to date")  # noqa: T201


def _settings(**overrides: object) -> Settings:
    try:
        return Settings(**{name: value for name, value in overrides.items() if value is not None})  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        raise _refuse(f"LOSSGUARD_{'_'.join(map(str, first['loc'])).upper()}: {first['msg']}") from None


def _prepare(settings: Settings) -> tuple[Path, str]:
    """What must be there before the first request: an agent token, a sign-in code, and leave to listen where asked."""
    database = _open(settings)
    token_file = settings.data_dir.expanduser() / AGENT_TOKEN_FILE
    try:
        with database.reading() as connection:
            has_operator = store.has_token(connection, Role.OPERATOR)
        if not _is_loopback(settings.host) and not has_operator:
            raise _refuse(
                f"{settings.host} can be reached from other machines, and nobody has made an operator token yet. "
                "Make one with: python -m server token create --role operator --name NAME"
            )
        with _quiet():
            _keep_agent_token(database, token_file)
            return token_file, database.writer.submit(lambda c: access.create_sign_in_code(c, utc_now()))
    except (StorageUnavailable, OSError) as error:
        raise _refuse(_unusable(settings, error)) from None
    finally:
        database.close()


def _keep_agent_token(database: Database, file: Path) -> None:
    """That the file holds a token which this database knows: it is made at the first start, and again with a new database."""
    if file.exists():
        with database.reading() as connection:
            if access.token_caller(connection, file.read_text().strip()) is not None:
                return
        file.unlink()
    _write_private(file, database.writer.submit(lambda c: access.create_token(c, Role.AGENT, "first", utc_now())))


def _open(settings: Settings) -> Database:
    """The database, at this version; a clear sentence and an exit where that cannot be."""
    try:
        _make_private(settings.data_dir.expanduser())
        with _quiet():
            database = Database.open(settings.database)
    except (DatabaseInUse, ValueError) as error:
        raise _refuse(str(error)) from None
    except OSError as error:
        raise _refuse(_unusable(settings, error)) from None
    try:
        with _quiet():
            database.migrate()
    except (DatabaseTooNew, StorageUnavailable) as error:
        database.close()
        raise _refuse(str(error) if isinstance(error, DatabaseTooNew) else _unusable(settings, error)) from None
    return database


def _change(settings: Settings, act: Callable[[Connection], T]) -> T:
    """What `act` gives, once it is committed."""
    try:
        _make_private(settings.data_dir.expanduser())
        is_new = is_missing_file(settings.database)
        with _quiet(), visit(settings.database) as connection:
            result = act(connection)
    except (DatabaseTooNew, ValueError) as error:
        raise _refuse(str(error)) from None
    except (StorageUnavailable, OSError) as error:
        raise _refuse(_unusable(settings, error)) from None
    _say_where(settings, is_new=is_new)
    return result


def _say_where(settings: Settings, *, is_new: bool) -> None:
    """Which server's it was: the answer itself on stdout stays alone."""
    told = f"Data directory {settings.data_dir.expanduser()}, database {without_password(settings.database)}"
    if is_new:
        told += (
            "\nThere was no database, so a new one was made. Is the server running elsewhere? Then it does not know of this: "
            "LOSSGUARD_DATA_DIR and LOSSGUARD_DATABASE_URL must be set as they are for the server"
        )
    print(f"{told}.", file=sys.stderr, flush=True)  # noqa: T201


def _unusable(settings: Settings, error: Exception) -> str:
    """That the database cannot be opened or written, why, and what to do. Its address is told without the password."""
    cause = getattr(error.__cause__, "orig", None) or error.__cause__ or error
    why = str(cause).strip().partition("\n")[0]
    where = without_password(settings.database)
    return f"{where} cannot be used ({why}). Look whether it can be reached, is writable and has free space, and start again"


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave what the database says about itself to the moment when the server opens it; a failure is told in a sentence."""
    logger = logging.getLogger("server.store")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _make_private(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def _write_private(path: Path, text: str) -> None:
    """Make the file anew, readable by its owner only; never follows a link that somebody put there."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(text + "\n")


def _listen(settings: Settings) -> socket.socket:
    """A socket on the address asked for, bound before anything is announced."""
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(found[4][:2], family=found[0], backlog=BACKLOG)
    except OSError as error:
        raise _refuse(f"cannot listen on {settings.host} port {settings.port}: {error.strerror or error}") from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _url(settings: Settings, port: int) -> str:
    """The address for the one who sits at this machine, or the public one where it is set."""
    if settings.public_url:
        return settings.public_url
    host = settings.host if _is_loopback(settings.host) else "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _announce(ready: dict[str, Any], ready_file: Path | None) -> None:
    """One JSON line for programs, and a sentence for people."""
    print(json.dumps(ready), flush=True)  # noqa: T201
    print(f"LossGuard is ready. Open {ready['sign_in']}", file=sys.stderr, flush=True)  # noqa: T201
    print(f"The token for training scripts is in {ready['agent_token_file']}", file=sys.stderr, flush=True)  # noqa: T201
    if ready_file is not None:
        partial = ready_file.with_name(ready_file.name + ".partial")
        partial.unlink(missing_ok=True)
        _write_private(partial, json.dumps(ready))
        partial.replace(ready_file)


def _refuse(why: str) -> typer.Exit:
    print(why, file=sys.stderr, flush=True)  # noqa: T201
    return typer.Exit(2)


if __name__ == "__main__":
    cli()

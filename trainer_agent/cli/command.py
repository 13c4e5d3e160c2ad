"""The `lossguard` command: sign in, look at what waits, send what is left.

    lossguard login URL [--token TOKEN]     keeps address and token in a file only its owner can read; exit code 1: refused
    lossguard spool [DIR]                   lists what waits on disk under DIR
    lossguard sync [DIR]                    sends it; exit code 1 when something is left
    lossguard ledger [DIR] ...              shows which samples went into which steps (see `ledger`)
    lossguard backtest [LOG...] ...         says what alert rules would have made of runs and logs (see `backtest`)

Exit code 2: the request itself was not usable.
"""

import argparse
import getpass
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from trainer_agent.config import Config, check_token, check_url, is_loopback, save_login
from trainer_agent.errors import LossGuardError, NotASpool, SpoolInUse
from trainer_agent.guest.voice import Voice, printable
from trainer_agent.recording.segments import leftovers
from trainer_agent.recording.spool import Spool
from trainer_agent.sending.backlog import Leftover
from trainer_agent.sending.sender import NEEDS_A_PERSON
from trainer_agent.sending.transport import Answer, HttpTransport, Meaning

from . import backtest, ledger


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the exit code."""
    given = _parser().parse_args(arguments)
    try:
        code: int = given.run(given)
    except (LossGuardError, OSError) as error:
        _say(str(error), sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lossguard", description="The trainer's side of LossGuard.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    login = commands.add_parser("login", help="keep a server's address and token for later runs")
    login.add_argument("url", help="such as http://127.0.0.1:8787")
    login.add_argument("--token", help="asked for when not given, so that it stays out of the shell's history")
    login.set_defaults(run=_login)
    spool = commands.add_parser("spool", help="list what waits on disk")
    spool.set_defaults(run=_spool)
    sync = commands.add_parser("sync", help="send what waits on disk")
    sync.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="for a server that is away (default: 60)")
    sync.set_defaults(run=_sync)
    for command in (spool, sync):
        command.add_argument("directory", nargs="?", default=".", type=Path, help="output folder of a run, or one above")
    ledger.add_to(commands)
    backtest.add_to(commands)
    return parser


def _login(given: argparse.Namespace) -> int:
    url = check_url(given.url)
    token = check_token(given.token or _ask_token())
    answer = _asked(Config(url=url, token=token))
    if answer.meaning in (Meaning.NOT_ALLOWED, Meaning.NOT_LOSSGUARD):
        is_refused = answer.meaning is Meaning.NOT_ALLOWED
        what = "The server refuses the token" if is_refused else "What answers there is not a LossGuard server"
        _say(f"{what} ({answer.detail}). Nothing is kept.", sys.stderr)
        return 1
    path = save_login(url, token)
    if answer.meaning in (Meaning.BUSY, Meaning.UNREACHABLE):
        _say(f"The server is away ({answer.detail}), so the token could not be tried.", sys.stderr)
    _say(f"Kept in {path}. Runs started now send to {url}.")
    if url.startswith("http://") and not is_loopback(url):
        _say("The address is not https: token and numbers travel in the open. Use https, or a tunnel.", sys.stderr)
    return 0


def _ask_token() -> str:
    try:
        return getpass.getpass("Agent token: ") if sys.stdin.isatty() else sys.stdin.readline()
    except EOFError:
        return ""


def _asked(config: Config) -> Answer:
    """What the server says of the token."""
    transport = HttpTransport(config)
    try:
        return transport.check()
    finally:
        transport.close()


def _spool(given: argparse.Namespace) -> int:
    folders = _find(given.directory)
    for folder in folders:
        try:
            spool = Spool.adopt(folder)
        except SpoolInUse:
            _say(f"{folder}  in use: its process is sending it")
            continue
        except NotASpool as error:
            _say(str(error), sys.stderr)
            continue
        name = printable(f"{spool.start.project}/{spool.start.name}", 120)
        _say(f"{folder}  {name}  run {spool.start.run_id}  at most {spool.waiting} records wait")
        spool.abandon()
    if not folders:
        _say(f"Nothing waits under {given.directory.resolve()}.")
    return 0


def _sync(given: argparse.Namespace) -> int:
    config = Config.load()
    folders = _find(given.directory)
    if not folders:
        _say(f"Nothing waits under {given.directory.resolve()}.")
        return 0
    if config.url is None or config.token is None:
        _say(
            config.problem or "No server is set: run `lossguard login URL`, or set LOSSGUARD_URL and LOSSGUARD_TOKEN.", sys.stderr
        )
        return 2
    transport = HttpTransport(config)
    try:
        done = [_sync_one(folder, transport, given.timeout) for folder in folders]  # one that fails holds up no other
        return 0 if all(done) else 1
    finally:
        transport.close()


def _sync_one(folder: Path, transport: HttpTransport, timeout: float) -> bool:
    """Sends one spool; whether nothing of it is left."""
    try:
        spool = Spool.adopt(folder)
    except (SpoolInUse, NotASpool) as error:
        _say(str(error), sys.stderr)
        return isinstance(error, SpoolInUse)
    delivery = Leftover(spool, transport, Voice())
    try:
        _deliver(delivery, timeout)
        is_sent = delivery.is_done and not spool.waiting
        _say(f"{folder}: {'all sent' if is_sent else f'{max(1, spool.waiting)} records are left'}.")
        return is_sent
    finally:
        delivery.let_go()


def _deliver(delivery: Leftover, timeout: float) -> None:
    """Tries until all is sent, a person is needed, or nothing went forward for `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not delivery.is_done:
        pause = delivery.attempt()
        delivery.spool.tend()
        answer = delivery.last_answer
        if answer is not None and answer.meaning in NEEDS_A_PERSON:
            return
        if not delivery.failures:
            deadline = time.monotonic() + timeout
        if time.monotonic() + pause > deadline:
            return
        time.sleep(pause)


def _find(directory: Path) -> list[Path]:
    """Folders of spools in an output folder, in a `.lossguard` folder, or anywhere below."""
    roots = {Path(path) / "spool" for path, _, _ in os.walk(directory) if Path(path).name == ".lossguard"}
    if directory.resolve().name == ".lossguard":
        roots.add(directory / "spool")
    return [folder for root in sorted(roots) for folder in leftovers(root)]


def _say(text: str, stream: TextIO | None = None) -> None:
    (stream or sys.stdout).write(text + "\n")

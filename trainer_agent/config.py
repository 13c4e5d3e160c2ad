"""Where the agent sends to, and as whom: argument, then environment, then the file that `lossguard login` wrote.

Nothing here raises into a training script. A setting that cannot be used is left out and named in `Config.problem`.
"""

import ipaddress
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .errors import BadAddress, BadToken
from .guest.on_disk import replace_file

DEFAULT_PROJECT = "default"


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one run. `url` or `token` is None: nothing is sent, the spool keeps it."""

    url: str | None = None
    token: str | None = None
    project: str = DEFAULT_PROJECT
    name: str = ""
    token_path: Path | None = None
    """The file the token was read from; None when it came as an argument or from the environment."""
    problem: str = ""
    """What of the settings could not be used, in words; empty when all could."""

    @classmethod
    def load(
        cls, url: str | None = None, token: str | None = None, project: str | None = None, name: str | None = None
    ) -> "Config":
        """The settings that hold now. Never raises."""
        saved, problem = _read(login_path())
        problems = [problem] if problem else []
        address = _usable(check_url, url or os.environ.get("LOSSGUARD_URL") or saved.get("url"), problems)
        given = token or os.environ.get("LOSSGUARD_TOKEN")
        secret = _usable(check_token, given or saved.get("token"), problems)
        return cls(
            url=address,
            token=secret,
            project=project or os.environ.get("LOSSGUARD_PROJECT") or saved.get("project") or DEFAULT_PROJECT,
            name=name or os.environ.get("LOSSGUARD_NAME") or "",
            token_path=login_path() if secret and not given else None,
            problem=" ".join(problems),
        )

    def fresh_token(self) -> str | None:
        """The token as its file has it now: somebody may have signed in again since. The old one if that fails."""
        if self.token_path is None:
            return self.token
        return _usable(check_token, _read(self.token_path)[0].get("token"), []) or self.token


def login_path() -> Path:
    """The file of `lossguard login`."""
    base = os.environ.get("XDG_CONFIG_HOME") or ""
    try:
        root = Path(base) if base else Path.home() / ".config"
    except RuntimeError:  # no home folder, as in a bare container
        root = Path(tempfile.gettempdir())
    return root / "lossguard" / "login.json"


def save_login(url: str, token: str) -> Path:
    """Writes address and token to `login_path()`, readable by nobody else.

    Raises:
        BadAddress, BadToken, OSError
    """
    path = login_path()
    content = json.dumps({"url": check_url(url), "token": check_token(token)})
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(path, content.encode(), mode=0o600)
    return path


def check_url(url: str) -> str:
    """The address without a slash at its end.

    Raises:
        BadAddress
    """
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or not url.strip().isprintable():
        raise BadAddress(f"Not usable: {url[:200]!r}.")
    return url.strip().rstrip("/")


def check_token(token: str) -> str:
    """The token without blanks around it.

    Raises:
        BadToken
    """
    stripped = token.strip()
    if not stripped or not stripped.isascii() or not stripped.isprintable() or " " in stripped or len(stripped) > 4096:
        raise BadToken
    return stripped


def is_loopback(url: str) -> bool:
    """Whether the address is this very machine, where no proxy may come between."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(path: Path) -> tuple[dict[str, str], str]:
    """The texts of the login file, and what is wrong with it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {key: value for key, value in content.items() if isinstance(value, str)}, ""
    except FileNotFoundError:
        return {}, ""
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        return {}, f"{path} cannot be read ({type(error).__name__}): run `lossguard login URL` again."


def _usable(check: Callable[[str], str], value: str | None, problems: list[str]) -> str | None:
    if not value:
        return None
    try:
        return check(value)
    except (BadAddress, BadToken) as error:
        problems.append(str(error))
        return None

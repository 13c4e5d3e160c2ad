"""What the commands of `dev.py` need: `.venv` with the project at the pinned versions, torch in it, and a browser for the tests.

Owns how these are found and installed. Standard library only, because it runs before anything is installed.
"""

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
PYTHON = BIN / "python"
TORCH = "2.13.0"

CONTAINS = {"server": ("server",), "demo": ("server", "demo"), "test": ("server", "demo", "test")}
"""Which extras are satisfied once one is installed."""

BREAKS_INSTALLS = re.compile(
    "PYTHON(PATH|HOME)|VIRTUAL_ENV|CONDA_PREFIX"
    "|PIP_(BUILD_)?(CONSTRAINT|REQUIREMENT|TARGET|PREFIX|ROOT|USER|PYTHON|NO_DEPS|DRY_RUN|EDITABLE|REQUIRE_HASHES|REQUIRE_VIRTUALENV)"
    "|UV_(BUILD_)?(CONSTRAINT|OVERRIDE|SYSTEM_PYTHON|PYTHON|PROJECT|PROJECT_ENVIRONMENT|REQUIRE_HASHES|TORCH_BACKEND)"
)
"""Settings meant for somebody's other projects. Where packages come from (index, find-links, proxy, certificates) is kept."""

BROWSERS = (
    "chromium-headless-shell",
    "chrome-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)


class SetupError(Exception):
    """Something outside this checkout is missing; the message says what to do."""


def setup(extra: str) -> None:
    """`.venv` holds the project with `extra`, at the pinned versions. Does nothing when that is so already."""
    if _make_venv() and any(
        _stamp(name).exists() and _stamp(name).read_text() == _key() for name in CONTAINS if extra in CONTAINS[name]
    ):
        return
    say(f"setting up .venv for '{extra}' (Python {platform.python_version()})")
    if extra != "server":
        _install_torch()  # before the packages that need it: left to themselves they bring the CUDA build, several GB
    if not _install(f"-e.[{extra}]"):
        raise SetupError(
            "Installing the packages failed; the reason is above. Without a network to PyPI, name a mirror with PIP_INDEX_URL "
            "or a folder of wheels with PIP_FIND_LINKS, then run the same command again."
        )
    _stamp(extra).write_text(_key())


def _stamp(extra: str) -> Path:
    return VENV / f".lossguard-{extra}"


def _key() -> str:
    parts = (
        (ROOT / "pyproject.toml").read_bytes(),
        (ROOT / "constraints.txt").read_bytes(),
        sys.version.encode(),
        str(ROOT).encode(),
    )
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _make_venv() -> bool:
    """True when a working environment of this Python was there; else makes one."""
    version = "import sys; print(*sys.version_info[:2])"
    if PYTHON.exists() and _output([PYTHON, "-c", version]) == f"{sys.version_info[0]} {sys.version_info[1]}":
        return True
    shutil.rmtree(VENV, ignore_errors=True)
    if importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip"):
        made = call([sys.executable, "-m", "venv", VENV])
    elif uv := shutil.which("uv"):  # Debian's python3 without python3-venv
        made = call([uv, "venv", "-q", "--seed", "--python", sys.executable, VENV], _install_environment())
    else:
        made = False
    if not made:
        raise SetupError(
            "Python's venv module is missing or broken. On Debian or Ubuntu: apt install python3-venv. "
            "Or install uv (https://docs.astral.sh/uv). Then run the same command again."
        )
    return False


def _install(what: str, for_uv: Sequence[str] = (), for_pip: Sequence[str] = ()) -> bool:
    """True when `what` could be installed, by uv, or by pip where uv cannot. Each may have options of its own."""
    ways = [[PYTHON, "-m", "pip", "install", *for_pip]]
    if uv := _uv():
        ways.insert(0, [uv, "pip", "install", "--python", PYTHON, *for_uv])
    environment = _install_environment()
    return any(call([*way, "-q", "-c", ROOT / "constraints.txt", what], environment) for way in ways)


def _uv() -> str | None:
    """Path of uv: pip puts it into `.venv`; else the one on PATH; None when there is none, and pip has to do."""
    own = BIN / "uv"
    pip = [PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", ROOT / "constraints.txt", "uv"]
    if not own.exists() and not call(pip, _install_environment()):
        say("uv could not be installed; pip does the work, which takes longer")
    return str(own) if own.exists() else shutil.which("uv")


def _install_environment() -> dict[str, str]:
    """The environment for installers: what the user set for pip also holds for uv."""
    environment = {name: value for name, value in os.environ.items() if not BREAKS_INSTALLS.fullmatch(name)}
    if links := _find_links():
        environment["UV_FIND_LINKS"] = ",".join(links)
        environment["PIP_FIND_LINKS"] = " ".join(links)
    else:
        environment.pop("PIP_FIND_LINKS", None)
    for pips, uvs in (("PIP_INDEX_URL", "UV_DEFAULT_INDEX"), ("PIP_CERT", "SSL_CERT_FILE")):
        if os.environ.get(pips):
            environment.setdefault(uvs, os.environ[pips])
    if "UV_DEFAULT_INDEX" not in environment and (mirror := _pip_setting("index-url")):
        environment["UV_DEFAULT_INDEX"] = mirror
    environment.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    return environment


def _pip_setting(name: str) -> str:
    """A setting out of pip's own files, such as the mirror that a company or a country uses; empty when unset."""
    return _output([PYTHON, "-m", "pip", "config", "get", f"global.{name}"]) or _output(
        [PYTHON, "-m", "pip", "config", "get", f"install.{name}"]
    )


def _find_links() -> list[str]:
    """The entries of PIP_FIND_LINKS and UV_FIND_LINKS that are there; uv would fail on a folder that is not."""
    words = os.environ.get("PIP_FIND_LINKS", "").split() + os.environ.get("UV_FIND_LINKS", "").replace(",", " ").split()
    kept = [word for word in dict.fromkeys(words) if re.match(r"https?://", word) or _local(word).exists()]
    return [word if re.match(r"[a-z]+://", word) else str(_local(word).resolve()) for word in kept]


def _local(link: str) -> Path:
    return Path(urllib.parse.unquote(link[len("file://") :]) if link.startswith("file://") else link).expanduser()


def _install_torch() -> None:
    """A torch that can be imported: the one that is there, a local wheel, else the CPU build."""
    if there := _output([PYTHON, "-c", "import torch; print(torch.__version__)"]):
        say(f"torch {there} is there already")
        return
    if wheel := _torch_wheel():
        say(f"installing torch from {wheel.name} ({wheel.stat().st_size / 1e6:.0f} MB)")
        done = _install(f"torch=={TORCH}")
    else:
        say(f"installing the CPU build of torch {TORCH}: a download of about 190 MB, 700 MB on disk")
        cpu = ("--extra-index-url", "https://download.pytorch.org/whl/cpu")
        done = _install(f"torch=={TORCH}" if sys.platform == "darwin" else f"torch=={TORCH}+cpu", ("--torch-backend=cpu",), cpu)
    if not done or not _output([PYTHON, "-c", "import torch; print(torch.__version__)"]):
        raise SetupError(
            f"torch {TORCH} could not be installed; the reason is above. Install any build of it by hand with\n"
            f"    {PYTHON} -m pip install torch\nand run the same command again: a torch that can be imported is used as it is."
        )


def _torch_wheel() -> Path | None:
    """A wheel of the pinned torch for this Python and machine in one of the local folders."""
    tag = f"-cp{sys.version_info[0]}{sys.version_info[1]}-"
    folders = [_local(link) for link in _find_links() if "://" not in link]
    wheels = [path for folder in folders if folder.is_dir() for path in sorted(folder.glob(f"torch-{TORCH}*.whl"))]
    return next((path for path in wheels if tag in path.name and platform.machine().lower() in path.name), None)


# --- a browser for the tests ---


def chromium() -> str:
    """Path of a Chromium: $CHROMIUM, PATH, one that Playwright has, apt when root, else Playwright's download.

    Raises:
        SetupError: none of them gives one. The tests need a real browser, so there is no going on without.
    """
    if named := os.environ.get("CHROMIUM"):
        if path := shutil.which(named):
            return path
        raise SetupError(f"CHROMIUM is set to {named!r}, which is not a program. Correct it or unset it.")
    for get in (_nothing, _apt_chromium, _playwright_chromium):
        get()
        if path := _installed_chromium():
            return path
    raise SetupError("No Chromium for the browser tests. Install chromium or Google Chrome, or set CHROMIUM=/path/to/it.")


def _installed_chromium() -> str | None:
    on_path = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    return on_path or next(_playwright_browsers(), None)


def _playwright_browsers() -> Iterator[str]:
    """What `playwright install` keeps in its cache, the newest first."""
    home = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or home / "ms-playwright")
    for folder in sorted(cache.glob("chromium_headless_shell-*"), reverse=True):
        for name in ("headless_shell", "chrome-headless-shell"):
            yield from (str(path) for path in folder.rglob(name) if path.is_file() and os.access(path, os.X_OK))


def _nothing() -> None:
    """Look first: most machines have one."""


def _apt_chromium() -> None:
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return
    say("installing Debian's chromium for the browser tests (about 100 MB)")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    call(["apt-get", "update", "-qq"], environment)
    for package in ("chromium-headless-shell", "chromium"):
        if call(["apt-get", "install", "-y", "-qq", "--no-install-recommends", package], environment):
            return


def _playwright_chromium() -> None:
    say("downloading Playwright's Chromium for the browser tests (about 110 MB)")
    call([PYTHON, "-m", "playwright", "install", "--only-shell", "chromium"])


# --- running what installs ---


def call(command: Sequence[object], environment: dict[str, str] | None = None) -> bool:
    """True when the command could be run and succeeded; it is not asked anything."""
    try:
        return (
            subprocess.run(
                [str(part) for part in command], cwd=ROOT, env=environment, check=False, stdin=subprocess.DEVNULL
            ).returncode
            == 0
        )
    except OSError as error:
        say(f"{command[0]}: {error}")
        return False


def _output(command: Sequence[object]) -> str:
    """What it prints, stripped; empty when it fails."""
    try:
        done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def say(text: str) -> None:
    """To stderr: stdout belongs to the command that is run."""
    print(text, file=sys.stderr, flush=True)

"""The image's own steps, run as a script in a bare environment: no Docker daemon is needed to know that they work."""

import os
import re
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT_SECONDS = 40
OURS = ("VIRTUAL_ENV", "LOSSGUARD_DATA_DIR", "LOSSGUARD_HOST", "LOSSGUARD_PORT", "PIP_NO_CACHE_DIR", "UV_NO_CACHE")
"""Variables of the image that point into the container, or switch off the caches that make this test quick."""


def instructions() -> list[tuple[str, str]]:
    """(word, rest) of the Dockerfile, continued lines joined."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def copy_context(target: Path) -> None:
    target.mkdir()
    for word, rest in instructions():
        if word == "COPY":
            *sources, destination = rest.split()
            for source in sources:
                into = target / destination if (ROOT / source).is_dir() else target / destination / source
                (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, into)


def container_environment(folder: Path, port: int) -> dict[str, str]:
    """As the image sets it, with the folders and the port of this test."""
    kept = (
        "HOME",
        "LANG",
        "UV_FIND_LINKS",
        "UV_DEFAULT_INDEX",
        "PIP_INDEX_URL",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "SSL_CERT_FILE",
        "PIP_CERT",
    )
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {"PATH": f"{Path(sys.base_prefix) / 'bin'}:/usr/bin:/bin", "APP_UID": str(os.getuid())}
    environment |= {"VIRTUAL_ENV": str(folder / "venv"), "LOSSGUARD_DATA_DIR": str(folder / "data")}
    environment |= {"LOSSGUARD_HOST": "127.0.0.1", "LOSSGUARD_PORT": str(port), "UV_LINK_MODE": "hardlink"}
    for word, rest in instructions():
        name, _, value = rest.partition("=")
        if word == "ENV" and name not in OURS:
            value = value.replace("/opt/venv", str(folder / "venv")).replace("$PATH", environment["PATH"])
            environment[name] = value
    return environment


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The image's working folder and environment, after all its RUN steps."""
    folder = tmp_path_factory.mktemp("image")
    copy_context(folder / "app")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        environment = container_environment(folder, probe.getsockname()[1])
    script = "\n".join(["set -eu", *(rest for word, rest in instructions() if word == "RUN")])
    done = subprocess.run(["sh", "-c", script], cwd=folder / "app", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "app", environment


def test_the_server_of_the_image_has_a_command_line(image):
    folder, environment = image
    done = subprocess.run(
        ["python3", "-m", "server", "--help"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "serve" in done.stdout


def test_the_first_token_can_be_made_before_the_server_ever_ran(image):
    folder, environment = image
    command = ["python3", "-m", "server", "token", "create", "--role", "operator", "--name", "me"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("lg_operator_")


def test_the_image_holds_no_torch_and_no_test_tools(image):
    folder, environment = image
    code = "import importlib.util as u; print([n for n in ('torch', 'transformers', 'pytest', 'playwright') if u.find_spec(n)])"
    done = subprocess.run(["python3", "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_image_starts_answers_its_own_health_check_and_stops_on_sigterm(image):
    folder, environment = image
    command = exec_form("CMD")
    assert os.access(environment["LOSSGUARD_DATA_DIR"], os.W_OK)
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as server:
        try:
            wait_for_health(server, int(environment["LOSSGUARD_PORT"]))
            check = subprocess.run(
                exec_form("HEALTHCHECK"), cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
            assert check.returncode == 0, check.stderr
            server.send_signal(signal.SIGTERM)
            assert server.wait(timeout=15) in {0, -signal.SIGTERM}
        finally:
            server.kill()


def exec_form(word: str) -> list[str]:
    """The command of a CMD or HEALTHCHECK instruction written as a list."""
    rest = next(rest for name, rest in instructions() if name == word)
    return [part.replace('\\"', '"') for part in shlex.split(rest[rest.index("[") + 1 : rest.rindex("]")].replace('", "', '" "'))]


def wait_for_health(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_LIMIT_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=2) as answer:
                assert answer.status == 200
                return
        except OSError:
            assert server.poll() is None, f"the server ended: {server.stdout.read().decode()}"
            assert time.monotonic() < deadline, f"no answer within {START_LIMIT_SECONDS} s: {available(server)}"
            time.sleep(0.1)


def available(server: subprocess.Popen[bytes]) -> str:
    """What the server has printed so far, without waiting for more."""
    with selectors.DefaultSelector() as selector:
        selector.register(server.stdout, selectors.EVENT_READ)
        return os.read(server.stdout.fileno(), 65536).decode() if selector.select(0) else ""

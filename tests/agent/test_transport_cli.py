"""Settings, identity, and the `lossguard` command."""

import io
import json
import stat
import threading
from types import SimpleNamespace

import pytest
from transport_server import ScriptedServer

from trainer_agent import cli
from trainer_agent.config import Config, check_url, is_loopback, login_path
from trainer_agent.guest.voice import Voice
from trainer_agent.identity import Identity
from trainer_agent.recording.entries import Points
from trainer_agent.recording.spool import Spool
from trainer_agent.wire.messages import RunStart


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("URL", "TOKEN", "PROJECT", "NAME"):
        monkeypatch.delenv(f"LOSSGUARD_{name}", raising=False)


def test_an_argument_comes_before_the_environment_before_the_login_file(monkeypatch):
    assert cli.main(["login", "http://file:1", "--token", "file-token"]) == 0
    assert (Config.load().url, Config.load().token) == ("http://file:1", "file-token")
    monkeypatch.setenv("LOSSGUARD_URL", "http://environment:1/")
    monkeypatch.setenv("LOSSGUARD_TOKEN", " environment-token\n")
    assert (Config.load().url, Config.load().token) == ("http://environment:1", "environment-token")
    assert Config.load(url="https://argument").url == "https://argument"


def test_the_login_file_is_readable_by_its_owner_only_and_its_token_is_asked_for(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("typed-token\n"))
    assert cli.main(["login", "http://localhost:8000"]) == 0
    assert stat.S_IMODE(login_path().stat().st_mode) == 0o600
    assert Config.load().token == "typed-token"


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "ftp://x",
        "http://",
        "http://x:port",
        "http://x:99999",
        "http://[::1",
        "http://x/?a=b",
        "http://x\n/y",
        "",
    ],
)
def test_an_address_that_is_none_is_said_and_nothing_is_kept(url, capsys):
    assert cli.main(["login", url, "--token", "t"]) == 2
    assert "http://host:port" in capsys.readouterr().err
    assert not login_path().exists()


@pytest.mark.parametrize("token", ["two words", "\u00e9", "a\x00b", " "])
def test_a_token_that_is_none_is_said(token, capsys):
    assert cli.main(["login", "http://x", "--token", token]) == 2
    assert "token" in capsys.readouterr().err


def refusing(status, kind="application/problem+json"):
    return ScriptedServer(lambda _: (status, {"Content-Type": kind}, b'{"detail": "unknown token", "fix": "give another"}'))


@pytest.mark.parametrize(
    ("server", "code", "words"),
    [
        (lambda: refusing(401), 1, "refuses the token (401 unknown token; give another)"),
        (lambda: refusing(403), 1, "refuses the token (403"),
        (lambda: refusing(404, "text/html"), 1, "not a LossGuard server"),
        (lambda: refusing(404), 0, ""),
        (lambda: refusing(503), 0, "The server is away (503"),
    ],
)
def test_a_token_is_tried_and_one_that_is_refused_is_not_kept(server, code, words, capsys):
    with server() as answering:
        assert cli.main(["login", answering.url, "--token", "t"]) == code
    assert words in capsys.readouterr().err
    assert login_path().exists() is (code == 0)


def test_no_token_at_the_prompt_is_said_and_no_traceback(monkeypatch, capsys):
    def ended(_):
        raise EOFError

    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("getpass.getpass", ended)
    assert cli.main(["login", "http://localhost:1"]) == 2
    assert "token" in capsys.readouterr().err
    assert not login_path().exists()


@pytest.mark.parametrize("content", ["", "{", "[]", "5", '{"url": 5}', "\x00"])
def test_a_login_file_that_is_damaged_never_raises(content):
    login_path().parent.mkdir(parents=True)
    login_path().write_text(content)
    assert Config.load().url is None


def test_a_bad_setting_is_left_out_and_named(monkeypatch):
    monkeypatch.setenv("LOSSGUARD_URL", "nonsense")
    config = Config.load(token="good")
    assert (config.url, config.token) == (None, "good")
    assert "nonsense" in config.problem


def test_a_token_is_read_again_from_its_file():
    cli.main(["login", "http://x", "--token", "old"])
    config = Config.load()
    cli.main(["login", "http://x", "--token", "new"])
    assert config.fresh_token() == "new"
    login_path().unlink()
    assert config.fresh_token() == "old"
    assert Config.load(token="given").fresh_token() == "given"


@pytest.mark.parametrize(
    ("url", "is_local"),
    [
        ("http://localhost:1", True),
        ("http://127.8.8.8", True),
        ("http://[::1]:8", True),
        ("http://localhost.evil.test", False),
        ("http://10.0.0.1", False),
    ],
)
def test_what_is_this_machine(url, is_local):
    assert is_loopback(check_url(url)) is is_local


def test_a_run_is_taken_up_again_with_its_next_segment(tmp_path):
    first = Identity.open(tmp_path / ".lossguard")
    assert (first.is_restart, first.next_segment(), first.reserve_segment(2), first.reserve_segment(2)) == (False, 1, 2, 2)
    second = Identity.open(tmp_path / ".lossguard")
    assert (second.run_id, second.is_restart, second.last_segment, second.next_segment()) == (first.run_id, True, 2, 3)


def test_another_run_id_is_another_run(tmp_path):
    first = Identity.open(tmp_path)
    first.next_segment()
    other = Identity.open(tmp_path, "my run/../x")
    assert (other.run_id, other.is_restart) == ("my-run-..-x", False)
    assert Identity.open(tmp_path).run_id == other.run_id


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"run_id": "../x", "last_segment": 1}', '{"run_id": "a", "last_segment": -1}', '{"run_id": "a"}']
)
def test_an_identity_that_is_damaged_becomes_a_new_run_and_says_so(tmp_path, content, capsys):
    (tmp_path / "run.json").write_text(content)
    identity = Identity.open(tmp_path)
    assert identity.next_segment() == 1
    assert "new run" in capsys.readouterr().err
    assert Identity.open(tmp_path).run_id == identity.run_id


def test_an_identity_that_cannot_be_written_is_in_memory(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    identity = Identity.open(tmp_path / "file" / ".lossguard")
    assert (identity.next_segment(), identity.next_segment()) == (1, 2)
    assert "cannot be written" in capsys.readouterr().err


def test_ranks_that_start_at_once_agree_on_one_run(tmp_path):
    found: list[str] = []
    barrier = threading.Barrier(8)

    def rank() -> None:
        barrier.wait()
        found.append(Identity.open(tmp_path / ".lossguard").run_id)

    threads = [threading.Thread(target=rank) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1


def fill(folder, incarnation: str, count: int) -> Spool:
    spool = Spool.create(folder / ".lossguard" / "spool" / incarnation, RunStart("run", incarnation, "p", "n\x1b[31m"))
    spool.write([Points(seq, 1.0, 1, seq, ("train/loss",), (1.0 * seq,)) for seq in range(1, count + 1)])
    return spool


def test_spool_lists_what_waits_and_sync_sends_it(tmp_path, monkeypatch, capsys):
    fill(tmp_path / "out" / "a", "one", 10).close()
    fill(tmp_path / "out" / "b", "two", 20).close()
    in_use = fill(tmp_path / "out" / "b", "three", 5)
    assert cli.main(["spool", str(tmp_path / "out")]) == 0
    listed = capsys.readouterr().out
    assert ["at most 10 records" in listed, "at most 20 records" in listed, "in use" in listed, "\x1b" in listed] == [
        True,
        True,
        True,
        False,
    ]
    with ScriptedServer() as server:
        monkeypatch.setenv("LOSSGUARD_URL", server.url)
        monkeypatch.setenv("LOSSGUARD_TOKEN", "t")
        for _ in range(2):
            assert cli.main(["sync", str(tmp_path / "out")]) == 0
        assert {name: kept.next_seq for name, kept in server.kept.items()} == {"one": 12, "two": 22}  # and that each was killed
    in_use.close()
    assert json.loads((in_use.directory / "start.json").read_text())["start"]["incarnation"] == "three"


@pytest.mark.parametrize("below", ["", ".lossguard"])
def test_sync_finds_the_spool_of_an_output_folder_and_of_its_hidden_one(tmp_path, monkeypatch, below):
    fill(tmp_path / "out", "one", 10).close()
    with ScriptedServer() as server:
        monkeypatch.setenv("LOSSGUARD_URL", server.url)
        monkeypatch.setenv("LOSSGUARD_TOKEN", "t")
        assert cli.main(["sync", str(tmp_path / "out" / below)]) == 0
        assert server.kept["one"].next_seq == 12  # its last word is that it was killed


def test_sync_says_what_is_left_when_the_server_is_away_or_refuses(tmp_path, monkeypatch, capsys):
    fill(tmp_path, "one", 10).close()
    assert cli.main(["sync", str(tmp_path)]) == 2
    assert "lossguard login" in capsys.readouterr().err
    with ScriptedServer(lambda asked: (403, {}, b"")) as server:
        monkeypatch.setenv("LOSSGUARD_URL", server.url)
        monkeypatch.setenv("LOSSGUARD_TOKEN", "t")
        assert cli.main(["sync", str(tmp_path)]) == 1
    assert cli.main(["sync", str(tmp_path), "--timeout", "0.5"]) == 1
    assert "10 records are left" in capsys.readouterr().out


def test_nothing_to_send_is_not_an_error(tmp_path, capsys):
    assert cli.main(["sync", str(tmp_path)]) == 0
    assert cli.main(["spool", str(tmp_path)]) == 0
    assert "Nothing waits" in capsys.readouterr().out


def test_a_kind_is_said_at_most_once_a_minute():
    now, said = [0.0], []
    voice = Voice(said.append, lambda: now[0])
    for second in range(3600):
        now[0] = second
        voice.say("away", "the server is away\x1b[2J")
        voice.once("page", "watch")
    assert len(said) == 61
    assert not any("\x1b" in line for line in said)

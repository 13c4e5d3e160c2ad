"""`lossguard backtest` against a real server: what it prints, its exit codes, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import backtest_jobs as kit
import pytest
from backtest_kit import until
from served import begin

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "import sys; from trainer_agent.cli import main; sys.exit(main())"


@pytest.fixture
def command(one_served, tmp_path):
    """Runs the command with its exit code and what it said."""

    def run(*arguments, **more):
        process = started(one_served, tmp_path, *arguments, **more)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    return run


def started(served, folder, *arguments, **more):
    given = {"LOSSGUARD_URL": served.url, "LOSSGUARD_OPERATOR_TOKEN": served.tokens["operator"], **more}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
    variables = {**kept, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "PYTHONPATH": str(ROOT), **given}
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "backtest", *map(str, arguments)],
        cwd=folder,
        env={name: value for name, value in variables.items() if value},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def written(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


def test_a_log_is_judged_by_the_pack_and_told_in_a_table(command, tmp_path):
    state = {"log_history": [{"step": at, "loss": 2.0 if at < 50 else float("nan"), "grad_norm": 1.0} for at in range(1, 60)]}
    log = written(tmp_path, "trainer_state.json", json.dumps(state))
    code, out, err = command(log)
    assert (code, err) == (0, "")
    assert "caught 1 of 1 that failed, 0 steps early at the median" in out
    (row,) = [line for line in out.splitlines() if "trainer_state.json" in line]
    assert "dead at 50" in row
    assert "at the very step" in row
    assert "Loss is not finite: 50-" in row


def test_stored_runs_are_judged_by_one_rule_and_given_as_json(one_served, command):
    begin(one_served, "cli-run", {"train/loss": [2.0] * 30, "train/grad_norm": [1.0] * 20 + [50.0] + [1.0] * 9})
    code, out, err = command("--runs", "cli-run", "--rule", "grad-norm-over-10", "--json")
    assert (code, err) == (0, "")
    (run,) = json.loads(out)["result"]["runs"]
    assert [(each["rule_id"], each["firing_step"]) for each in run["episodes"]] == [("grad-norm-over-10", 21)]
    assert run["episodes_before"] == 1


def test_a_rule_in_a_file_need_not_be_saved(command, tmp_path):
    rule = written(
        tmp_path, "rule.json", json.dumps({**kit.THRESHOLD, "rule_id": "grad-norm-over-10", "settings": {"above": 60}})
    )
    log = written(tmp_path, "log.csv", kit.csv_log(200, {100}))
    code, out, _ = command(log, "--rule", rule)
    assert code == 0
    assert "false alarms on 0 of 1 healthy, before 1" in out


def test_a_log_that_cannot_be_read_is_told_with_its_line_and_the_others_are_judged(command, tmp_path):
    good, bad = written(tmp_path, "good.csv", kit.csv_log(50)), written(tmp_path, "bad.csv", "step,loss\n1,2\n2,oops\n")
    code, out, _ = command(good, bad)
    assert code == 1
    assert "line 3: column loss holds 'oops', which is no number" in out
    assert any("good.csv" in line and "quiet" in line for line in out.splitlines())


def test_a_missing_file_and_a_folder_are_told_as_not_judged_and_the_others_are_judged(command, tmp_path):
    good = written(tmp_path, "good.csv", kit.csv_log(50))
    (tmp_path / "folder").mkdir()
    code, out, err = command("missing.csv", good, "folder")
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert (code, err) == (1, "")
    assert "not judged" in rows["missing.csv"]
    assert "No such file" in rows["missing.csv"]
    assert "Is a directory" in rows["folder"]
    assert any("good.csv" in line and "quiet" in line for line in out.splitlines())
    code, out, _ = command("missing.csv", good, "--json")
    runs = json.loads(out)["result"]["runs"]
    assert (code, [run["verdict"] for run in runs], runs[0].keys()) == (1, ["quiet", "not_judged"], runs[1].keys())


def test_a_rule_may_be_given_by_its_name(one_served, command, tmp_path):
    log = written(tmp_path, "log.csv", kit.csv_log(200, {100}))
    with one_served.client("operator") as client:
        rules = {rule["rule_id"]: rule["name"] for rule in client.get("/api/rules").json()["rules"]}
        code, out, _ = command(log, "--rule", rules["grad-norm-over-10"])
        assert (code, "false alarms on 1 of 1 healthy, before 1" in out) == (0, True), out
        made = [client.post("/api/rules", json={**kit.THRESHOLD, "name": "twice"}).json()["rule_id"] for _ in range(2)]
        code, _, err = command(log, "--rule", "twice")
        for rule_id in made:
            client.delete(f"/api/rules/{rule_id}")
    assert (code, all(f"{rule_id} (twice)" in err for rule_id in made)) == (2, True), err


@pytest.mark.parametrize(
    ("arguments", "more", "code", "says"),
    [
        (["missing.csv"], {}, 2, "missing.csv"),
        (["--runs", "none"], {}, 2, "nothing to judge"),
        (["--runs", "30x"], {}, 2, "there is no run 30x"),
        (["--runs", "30x"], {}, 2, "--runs takes a number of days (30d), all, none, or the ids"),
        (["--runs", "0.000001d"], {}, 2, "nothing to judge"),
        (["--rule", "no-such-rule"], {}, 2, "neither a file nor a rule"),
        (["--rule", "no-such-rule"], {}, 2, "loss-not-finite (Loss is not finite)"),
        (["--runs", "all", "--rule", "{rule}"], {}, 2, "settings.abov: is not known"),
        ([], {"LOSSGUARD_URL": ""}, 2, "No server is set"),
        ([], {"LOSSGUARD_OPERATOR_TOKEN": "{agent}"}, 1, "use an operator token"),
        ([], {"LOSSGUARD_URL": "http://127.0.0.1:9"}, 1, "no usable answer"),
    ],
)
def test_what_cannot_be_done_is_told_with_an_exit_code(one_served, command, tmp_path, arguments, more, code, says):
    flawed = {**kit.THRESHOLD, "settings": {"abov": 1, "belo": 2}}
    rule = written(tmp_path, "rule.json", json.dumps(flawed))
    given = [str(rule) if each == "{rule}" else each for each in arguments]
    kept = {name: one_served.tokens["agent"] if value == "{agent}" else value for name, value in more.items()}
    found, out, err = command(*given, **kept)
    assert (found, out, says in err) == (code, "", True), err


def test_ctrl_c_cancels_the_backtest(one_served, tmp_path):
    paths = [written(tmp_path, f"log{number}.csv", kit.csv_log(5_000, {100})) for number in range(40)]
    process = started(one_served, tmp_path, *paths)
    with one_served.client("operator") as client:

        def running():
            found = client.get("/api/backtests").json()["backtests"]
            return next((each for each in found if each["state"] == "running" and each["total"] == 40), None)

        job = until(running, seconds=60)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert (process.returncode, "Cancelled" in err) == (130, True), err
        assert client.get(f"/api/backtests/{job['backtest_id']}").json()["state"] == "cancelled"


def test_a_terminal_is_shown_how_far_it_is(one_served, tmp_path):
    """On a real terminal: the line is written over, and gone in the end."""
    log = written(tmp_path, "log.csv", kit.csv_log(20_000))
    primary, secondary = os.openpty()
    variables = {**os.environ, "LOSSGUARD_URL": one_served.url, "LOSSGUARD_OPERATOR_TOKEN": one_served.tokens["operator"]}
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "backtest", str(log), str(log)],
        cwd=ROOT,
        env=variables,
        stdout=subprocess.DEVNULL,
        stderr=secondary,
    )
    os.close(secondary)
    said = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            part = os.read(primary, 4096)
        except OSError:  # the terminal's other end has closed
            break
        if not part:
            break
        said += part
    os.close(primary)
    assert process.wait(30) == 0
    assert b"\r" in said
    assert said.endswith(b"\r\x1b[K")

"""Where a training may live: a subprocess, children of multiprocessing, pytest, a prompt, two in one process, a process group."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ends_kit import LIMIT_SECONDS, ROOT, RealServer, environment, until

HERE = Path(__file__).parent


PREAMBLE = """
import atexit, json, os, signal, sys, time
place = sys.argv[1]
atexit.register(lambda: print("left", time.monotonic(), file=sys.stderr))
sys.path.insert(0, {here!r})
import ends_plain
job = lambda name, way="end", **more: {{"name": name, "run": "run-" + os.path.basename(place) + "-" + name, "way": way,
    "url": {url!r}, "token": {token!r}, "url_state": {state!r}, **more}}
from pathlib import Path
def train(name, way="end", **more):
    ends_plain.train(job(name, way, **more), Path(place) / name, lambda: print("leaving", time.monotonic(), file=sys.stderr))
def raises(name): train(name, "raise")
def raises_bare(name): train(name, "raise", bare=True)
def exits(name): train(name, "exit")
"""


def write(folder: Path, body: str, url: str, token: str = "t", state: str = "up") -> list[str]:
    script = folder / "script.py"
    script.write_text(PREAMBLE.format(here=str(HERE), url=url, token=token, state=state) + body)
    return [sys.executable, "-W", "error", str(script), str(folder)]


def run(command: list[str], seconds: float = 60.0, **more) -> tuple[int, str, str, float]:
    """Exit status, both outputs, and the seconds from the last way out taken to the end of the process."""
    done = subprocess.run(
        command, env=environment(**more), cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False
    )
    left = time.monotonic()
    marks = [float(line.split()[1]) for line in done.stderr.splitlines() if line.startswith("leaving ")]
    return done.returncode, done.stdout, done.stderr, left - marks[-1] if marks else float("nan")


def said(server: RealServer, folder: Path, name: str) -> tuple[str, str]:
    found = server.run(f"run-{folder.name}-{name}")
    return found["state"], found["state_reason"]


def test_b1_a_training_in_a_subprocess_is_done_and_the_process_leaves(tmp_path, hung, figure):
    """Its pipes are the parent's: whatever kept one of them open would keep the parent waiting."""
    inner = write(tmp_path, 'train("sub")', hung, state="hung")
    status, out, err, seconds = run([sys.executable, "-c", f"import subprocess; subprocess.run({inner!r}, check=True)"])
    assert (status, out) == (0, ""), err
    figure("B1", "exit of a training in a subprocess, server hung", round(seconds, 2), at_most=LIMIT_SECONDS, unit="s")


BODY = """
import multiprocessing
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    for target, name in ((train, "end"), (raises, "raise"), (raises_bare, "bare"), (exits, "exit")):
        child = context.Process(target=target, args=(name,))
        child.start()
        child.join(30)
        print(child.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_of_multiprocessing_says_how_it_ended(server, tmp_path, method):
    """One that was forked leaves past `atexit`, and the errors of both are printed by multiprocessing, not by the interpreter."""
    status, out, err, _ = run(write(tmp_path, BODY.format(method=method), server.url, server.token))
    assert (status, out.split()) == (0, ["0", "1", "1", "3"]), err
    ends = {name: said(server, tmp_path, name) for name in ("end", "raise", "bare", "exit")}
    burst = ("failed", "Burst")
    assert ends == {"end": ("finished", "finished"), "raise": burst, "bare": burst, "exit": ("failed", "SystemExit 3")}
    assert not list(tmp_path.glob("*/.lossguard/spool/*"))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_of_multiprocessing_leaves_though_the_server_hangs(hung, tmp_path, method):
    body = BODY.format(method=method).replace(
        '((train, "end"), (raises, "raise"), (raises_bare, "bare"), (exits, "exit"))', '((raises_bare, "x"),)'
    )
    status, out, err, seconds = run(write(tmp_path, body, hung, state="hung"))
    assert (status, out.split()) == (0, ["1"]), err
    assert seconds < LIMIT_SECONDS


def test_a_training_inside_pytest_says_how_it_ended(server, tmp_path):
    script = Path(
        write(tmp_path, 'def test_ends(): train("end")\ndef test_fails(): raises_bare("bare")\n', server.url, server.token)[3]
    )
    script.write_text(script.read_text().replace("place = sys.argv[1]", f"place = {str(tmp_path)!r}"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path)]
    status, out, _, _ = run([*command, str(script)])
    assert (status, "1 failed, 1 passed" in out) == (1, True), out
    assert said(server, tmp_path, "bare") == ("failed", "Burst")
    assert said(server, tmp_path, "end") == ("finished", "finished")


NOTEBOOK = """
import code
console = code.InteractiveConsole({"train": train, "raises": raises, "raises_bare": raises_bare})
for line in ('raises_bare("cell")', 'train("again")', 'raises_bare("dropped")', "x = 1"):
    console.push(line)
sys.ps1 = ">>> "  # a prompt is there until the end
"""


def test_errors_at_a_prompt_end_nothing_by_themselves_and_the_cell_that_is_run_again_is_a_run_of_its_own(server, tmp_path):
    status, out, err, _ = run(write(tmp_path, NOTEBOOK, server.url, server.token))
    assert (status, out) == (0, ""), err
    assert said(server, tmp_path, "again") == ("finished", "finished")
    for name in ("cell", "dropped"):  # no one can say how these ended; all they logged is there
        assert said(server, tmp_path, name)[0] in ("running", "lost")
        assert server.run(f"run-{tmp_path.name}-{name}")["step"] == 20
    assert not list(tmp_path.glob("*/.lossguard/spool/*"))


TWO = """
import threading
def other():
    try:
        raises("b")
    except ends_plain.Burst:
        pass
thread = threading.Thread(target=other)
thread.start()
train("a", **{})
thread.join()
left_open = [ends_plain.open_monitor(job(name), Path(place) / name) for name in ("c", "d", "e")]
for monitor in left_open:
    monitor.begin()
    ends_plain.steps(monitor)
print("leaving", time.monotonic(), file=sys.stderr)
raise ends_plain.Burst
"""


def test_two_runs_in_one_process_have_each_its_own_end(server, tmp_path):
    status, out, err, _ = run(write(tmp_path, TWO, server.url, server.token))
    assert (status, out) == (1, ""), err
    assert said(server, tmp_path, "a") == ("finished", "finished")
    for name in ("b", "c", "d", "e"):
        assert said(server, tmp_path, name) == ("failed", "Burst")
        points = server.ask(f"/api/runs/run-{tmp_path.name}-{name}/points?series=train/loss")["points"]
        assert [point["step"] for point in points] == list(range(1, 21))


def test_runs_left_open_in_one_process_wait_together_for_a_server_that_hangs(hung, tmp_path):
    names = "cdefghij"  # as many as would take far longer one after the other
    body = TWO[TWO.index("left_open") :].replace('("c", "d", "e")', repr(tuple(names)))
    _, _, err, seconds = run(write(tmp_path, body, hung, state="hung"))
    assert seconds < 3.0 * len(names), "each waited for the one before it"
    assert "23 records" not in err
    for name in names:
        assert f"22 records wait on disk; `lossguard sync {tmp_path}/{name}`" in err or "21 records wait" in err


GROUP = """
handled = sys.argv[2] == "handled"
if handled:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
monitor = ends_plain.open_monitor(job("group"), Path(place))
children = [os.fork() for _ in range(2)]  # as data loaders: they die with the group
if 0 in children:
    time.sleep(60)
    os._exit(0)
try:
    with monitor:
        for step in range(1, 100_000):
            monitor.log({"train/loss": 1.0}, step)
            (Path(place) / "logged").write_text(f"{step}")
            time.sleep(0.002)
finally:
    print("cleaned up", file=sys.stderr)
"""


@pytest.mark.parametrize("way", ["handled", "unhandled"])
def test_a_signal_to_the_whole_process_group_loses_at_most_the_last_moment(server, tmp_path, monkeypatch, figure, way):
    raised, lost = 0, 0
    for turn in range(3):
        place = tmp_path / f"{way}{turn}"
        place.mkdir()
        (place / "logged").write_text("0")
        process = subprocess.Popen(
            [*write(place, GROUP, server.url, server.token), way],
            env=environment(), cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        until(
            "a few steps",
            lambda place=place, least=20 + 7 * turn: int((place / "logged").read_text() or 0) > least,
        )
        os.killpg(process.pid, signal.SIGTERM)
        _, err = process.communicate(timeout=30)
        logged = int((place / "logged").read_text() or 0)
        assert process.returncode == (143 if way == "handled" else -15), err
        raised += "Traceback" in err or "Broken" in err or (way == "handled" and "cleaned up" not in err)
        server.sync(place, monkeypatch)
        run_id = f"run-{way}{turn}-group"
        steps = [point["step"] for point in server.ask(f"/api/runs/{run_id}/points?series=train/loss")["points"]]
        assert steps == list(range(1, len(steps) + 1))
        lost += max(0, logged - len(steps) - (0 if way == "handled" else 50))  # 100 ms of steps of 2 ms
        found = server.run(run_id)
        assert (found["state"], found["state_reason"]) == ("failed", "SystemExit 143" if way == "handled" else "killed")
    figure("F13", f"exceptions in the script's clean-up, SIGTERM to the group, {way}", raised, at_most=0)
    figure("F13", f"records lost beyond the last 100 ms, SIGTERM to the group, {way}", lost, at_most=0)

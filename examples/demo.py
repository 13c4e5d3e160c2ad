"""A GPT-2 in fp16 meets one bad document. Its guarded run is rolled back and ends healthy, its unguarded twin dies.

    python3 dev.py demo                      prints a link, trains for about two minutes, then stays up until Ctrl-C
    python3 dev.py demo --manual             no rule acts: the dead run waits for your click on Roll back
    python3 dev.py demo --headless --json    unattended; the last line of stdout is one JSON object, the exit status the verdict

Real: the text, the document, fp16 with a GradScaler, the HF Trainer, the death, the rollback. Not real: a tiny model whose
optimizer is SGD at a learning rate of 1.0, chosen because it dies, and the rows of the document kept together.
"""

import json
import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from demo_receiver import Receiver, line
from demo_server import ROOT, Api, Children, DemoError, children, free_port, python, wait_for
from demo_story import Narrator
from demo_verdict import Check, Told, checks, figures
from rich.console import Console
from rich.markup import escape

ACTING_RULE = "grad-norm-spike"
COUNTDOWN_SECONDS = 8.0
"""Long enough to see and to cancel it, and for the rest of the document to pass, so that a rollback skips all of it."""
START_SECONDS = 60.0
LONGEST_SECONDS = 900.0
"""A machine ten times slower than the ones this was tried on is still given its time."""
MOST_POINTS = 10_000


@dataclass(frozen=True, slots=True)
class Options:
    """How this demo is run."""

    seed: int
    manual: bool
    headless: bool
    json_line: bool
    directory: Path


@dataclass(frozen=True, slots=True)
class Site:
    """A server that answers."""

    url: str
    link: str
    api: Api
    agent_token: str


def run_demo(options: Options, say: Console) -> int:
    """The whole evening; gives the exit status."""
    began = time.monotonic()
    with children(options.directory / "logs") as processes, _site(options, processes) as site:
        say.print(site.link, highlight=False)
        say.print(
            "[dim]Open it in a browser on this machine; it signs you in once. "
            f"Until the demo ends, everything lies in {options.directory}[/]"
        )
        with closing(Receiver(lambda message, verified: _print_message(say, message, verified))) as receiver:
            hook = _register(site.api, receiver)
            _set_rule(site.api, options, say)
            runs = _train(site, options, processes, say)
            result, verdicts = _judge(site.api, runs, options, receiver, hook)
            result["wall_seconds"] = round(time.monotonic() - began, 1)
            _print_end(say, verdicts, result)
            if options.json_line:
                print(json.dumps(result, allow_nan=False), flush=True)
            if not options.headless:
                _stay(say, site.url)
    return 0 if all(check.ok for check in verdicts) else 1


@contextmanager
def _site(options: Options, processes: Children) -> Iterator[Site]:
    """The server, started, with an operator token for us and the agent token that it made."""
    port = 0 if options.headless else free_port(8787)
    ready_file = options.directory / "ready.json"
    environment = {
        "LOSSGUARD_DATA_DIR": str(options.directory / "server"),
        "LOSSGUARD_ALLOW_PRIVATE_WEBHOOKS": "127.0.0.1",
    }
    serve = python("-m", "server", "serve", "--port", port, "--ready-file", ready_file)
    server = processes.start("server", serve, environment)

    def is_ready() -> dict[str, Any] | None:
        if server.poll() is not None:
            raise DemoError(f"the server ended at once:\n{processes.log('server')}")
        return json.loads(ready_file.read_text()) if ready_file.exists() else None

    ready = wait_for("the server", is_ready, START_SECONDS)
    agent_token = Path(ready["agent_token_file"]).read_text().strip()
    with closing(Api(ready["url"], _operator_token(environment, processes))) as api:
        yield Site(ready["url"], ready["sign_in"], api, agent_token)


def _operator_token(environment: dict[str, str], processes: Children) -> str:
    made = processes.start("token", python("-m", "server", "token", "create", "--role=operator", "--name=demo"), environment)
    made.wait(timeout=START_SECONDS)
    found = re.search(r"lg_operator_[\w-]+", processes.log("token"))
    if made.returncode != 0 or found is None:
        raise DemoError(f"no token could be made:\n{processes.log('token')}")
    return found[0]


def _register(api: Api, receiver: Receiver) -> str:
    body = {"name": "demo receiver", "url": receiver.url, "minimum_severity": "warning"}
    webhook = api.send("POST", "/api/webhooks", body)
    receiver.secret = webhook["secret"]
    return str(webhook["webhook_id"])


def _set_rule(api: Api, options: Options, say: Console) -> None:
    if options.manual:
        say.print("No rule acts: when the run is dead it waits. Open it and click [bold]Roll back[/].")
        return
    action = {"kind": "rollback", "countdown_seconds": COUNTDOWN_SECONDS, "data": "skip"}
    api.send("PUT", f"/api/rules/{ACTING_RULE}", {"action": action})
    say.print(f"Rule {ACTING_RULE}: rolls back after {COUNTDOWN_SECONDS:g} seconds, unless somebody clicks Cancel.")


def _train(site: Site, options: Options, processes: Children, say: Console) -> dict[str, str]:
    """Trains both to the end, telling what happens; gives their run ids."""
    script = ROOT / "examples" / "gpt2_fp16.py"
    common = {"LOSSGUARD_URL": site.url, "LOSSGUARD_TOKEN": site.agent_token, "LOSSGUARD_PROJECT": "demo"}
    common |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    runs = {}
    for name, guard in (("guarded", ["--guard"]), ("twin", [])):
        runs[name] = f"demo-{name}-{secrets.token_hex(4)}"
        command = python(script, *guard, "--seed", options.seed, "--output-dir", options.directory / name, "--run-id", runs[name])
        processes.start(name, command, common | {"LOSSGUARD_NAME": f"gpt2-fp16 {name}"})
    narrator = Narrator(site.api, runs, say)
    limit = None if options.manual else time.monotonic() + LONGEST_SECONDS
    while any(processes.running[name].poll() is None for name in runs):
        narrator.look()
        _check_trainings(processes, runs)
        if limit is not None and time.monotonic() > limit:
            raise DemoError(f"the training did not end within {LONGEST_SECONDS:g} s")
        time.sleep(1)
    _check_trainings(processes, runs)
    wait_for("the runs' last words", lambda: True if narrator.look() else None, 20)
    return runs


def _check_trainings(processes: Children, runs: dict[str, str]) -> None:
    for name in runs:
        if processes.running[name].poll() not in {None, 0}:
            tail = "\n".join(processes.log(name).splitlines()[-30:])
            raise DemoError(f"the {name} training failed:\n{tail}")


def _judge(api: Api, runs: dict[str, str], options: Options, receiver: Receiver, hook: str) -> tuple[dict[str, Any], list[Check]]:
    guarded, twin = (_told(api, runs[name]) for name in ("guarded", "twin"))
    culprit = json.loads((options.directory / "guarded" / "data.json").read_text())["culprit_first_step"]
    result = figures(guarded, twin, culprit, () if options.manual else (ACTING_RULE,))
    seen = set(receiver.ids)  # before the log is read: a message that comes in between is in the log and not missed here
    log = wait_for("the last deliveries", lambda: _settled(api, hook), 30)
    same = seen <= set(log) <= set(receiver.ids) and receiver.refused == 0
    result["receiver_ids_equal_log"] = same
    words = f"the delivery log has {len(log)} messages, the receiver verified {len(receiver.ids)} and refused {receiver.refused}"
    return result, [*checks(result, guarded, twin), Check("webhooks", ok=same and bool(log), words=words)]


def _told(api: Api, run_id: str) -> Told:
    points = {
        series: api.get(f"/api/runs/{run_id}/points", series=series, limit=MOST_POINTS)["points"]
        for series in ("train/loss", "amp/overflow")
    }
    return Told(api.get(f"/api/runs/{run_id}"), points["train/loss"], points["amp/overflow"])


def _settled(api: Api, hook: str) -> list[str] | None:
    """The ids in the delivery log, once none waits any more."""
    deliveries = api.get(f"/api/webhooks/{hook}/deliveries", limit=1000)["deliveries"]
    waiting = [delivery for delivery in deliveries if delivery["state"] == "waiting"]
    return None if waiting else [delivery["delivery_id"] for delivery in deliveries]


def _print_message(say: Console, message: dict[str, Any], verified: bool) -> None:  # noqa: FBT001
    signature = "[green]signature verified[/]" if verified else "[red]refused: the signature is wrong[/]"
    say.print(f"       webhook ({signature}) {escape(line(message))}", highlight=False)


def _print_end(say: Console, verdicts: list[Check], result: dict[str, Any]) -> None:
    say.rule()
    for check in verdicts:
        mark = "[green]yes[/]" if check.ok else "[red]NO [/]"
        say.print(f"{mark} {check.name}: {escape(check.words)}", highlight=False)
    dead = result["dead_step_without_guard"]
    back = result["rolled_back_to"]
    say.print(
        f"With the guard:    step {result['steps']}, loss {result['final_loss']}, "
        f"{'not rolled back' if back is None else f'rolled back to {back}'}."
    )
    say.print(
        f"Without the guard: loss {result['final_loss_unguarded']}, {'alive' if dead is None else f'dead since step {dead}'}."
    )


def _stay(say: Console, url: str) -> None:
    say.print(f"The page stays up at {url} until Ctrl-C.")
    try:
        signal.pause()
    except KeyboardInterrupt:
        say.print("Stopping.")


def _end_on_sigterm(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(143)


def main(
    *,
    seed: Annotated[int, typer.Option(help="Of the weights and of the order of the text.")] = 0,
    manual: Annotated[bool, typer.Option(help="No rule acts: you click.", envvar="MANUAL")] = False,
    headless: Annotated[bool, typer.Option(help="End when the training has ended.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON line on stdout at the end, all else on stderr.")] = False,
    directory: Annotated[Path | None, typer.Option(help="Keep everything here; otherwise it is removed at the end.")] = None,
) -> None:
    """Show a run being saved, beside one that is not."""
    signal.signal(signal.SIGTERM, _end_on_sigterm)
    say = Console(stderr=json_, soft_wrap=True)
    work = directory.resolve() if directory else Path(tempfile.mkdtemp(prefix="lossguard-demo-"))
    try:
        status = run_demo(Options(seed, manual and not headless, headless, json_, work), say)
    except DemoError as error:
        say.print(str(error), style="red", markup=False)
        status = 1
    except KeyboardInterrupt:
        say.print("Stopped.")
        status = 130
    finally:
        if directory is None and not os.environ.get("LOSSGUARD_DEMO_KEEP"):
            shutil.rmtree(work, ignore_errors=True)
    sys.exit(status)


if __name__ == "__main__":
    typer.run(main)

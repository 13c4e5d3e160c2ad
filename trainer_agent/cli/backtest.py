"""`lossguard backtest`: what alert rules would have made of stored runs, and of logs on this machine.

    lossguard backtest LOG...                  judge logs: trainer_state.json, CSV with a step column, JSON lines
    lossguard backtest --runs 30d              judge the stored runs of the last 30 days (the default without logs)
    lossguard backtest --runs all | ID,ID      all of them; or these
    ... --rule ID | NAME                       by this rule alone, instead of by all that are enabled (--pack, the default)
    ... --rule FILE                            by a rule that is not saved: a JSON file with the fields of POST /api/rules; a
                                               `rule_id` in it names the saved rule to compare with
    ... --json                                 one JSON object, as the server's API gives it

It needs an operator's token, which an agent's is not: --token, or LOSSGUARD_OPERATOR_TOKEN, else the one that is set for runs.

Exit code 0: everything was judged, whatever fired. 1: something was not (a log that cannot be read, a server that is away or
refuses, a backtest that failed or was cancelled elsewhere). 2: the request was not usable. 130: cancelled with Ctrl-C.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainer_agent.config import Config, check_token, check_url
from trainer_agent.errors import Declined, LossGuardError, Unanswered, Unusable
from trainer_agent.guest.voice import printable

from .asking import Asking

MAX_LOG_BYTES = 8 << 20
"""What the server takes at once."""
POLL_SECONDS = 0.2
AWAY_SECONDS = 60.0
"""A server that restarts goes on with the backtest: so long it may be away."""
MOST_STRETCHES = 3
UNUSABLE = frozenset({413, 422})
"""What the server answers to a request that will never be usable."""
OUTCOMES = {"dead": "dead at {}", "diverged": "diverged at {}", "healthy": "healthy", "unknown": "not known"}
VERDICTS = {
    "early": "early",
    "late": "late",
    "missed": "missed",
    "false_alarm": "false alarm",
    "quiet": "quiet",
    "not_judged": "not judged",
}


def add_to(commands: Any) -> None:
    """Puts the command to the others of an argument parser."""
    command = commands.add_parser("backtest", help="what alert rules would have made of runs and logs")
    command.add_argument("logs", nargs="*", type=Path, metavar="LOG", help="trainer_state.json, CSV or JSON lines")
    which = command.add_mutually_exclusive_group()
    which.add_argument("--rule", metavar="FILE|RULE_ID", help="by this rule alone")
    which.add_argument("--pack", action="store_true", help="by all rules that are enabled (the default)")
    command.add_argument("--runs", metavar="30d|all|ID,...|none", help="stored runs (default: 30d without logs, none with logs)")
    command.add_argument("--json", action="store_true", help="one JSON object")
    command.add_argument("--url", help="of the server (default: as for runs)")
    command.add_argument("--token", help="an operator's (default: LOSSGUARD_OPERATOR_TOKEN)")
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Asks, waits and prints; the exit code."""
    asking = _server(given)
    try:
        logs, missing = _logs(given.logs)
        job = _Job(asking, _request(given, asking, logs)).follow()
        job["result"]["runs"] += [_not_read(name, why) for name, why in missing]
        return _told(job, as_json=given.json)
    except (Unanswered, Declined, _Stopped) as error:
        sys.stderr.writelines(f"{printable(line, 1000)}\n" for line in _in_words(error))
        return 2 if isinstance(error, Declined) and error.status in UNUSABLE else 1
    finally:
        asking.close()


def _server(given: argparse.Namespace) -> Asking:
    config = Config.load(url=given.url)
    secret = given.token or os.environ.get("LOSSGUARD_OPERATOR_TOKEN")
    token = check_token(secret) if secret else config.token
    if config.url is None or token is None:
        raise Unusable(
            config.problem or "No server is set: give --url and --token, or LOSSGUARD_URL and LOSSGUARD_OPERATOR_TOKEN."
        )
    return Asking(check_url(config.url), token)


# --- what is asked ---


def _request(given: argparse.Namespace, asking: Asking, logs: list[dict[str, str]]) -> dict[str, Any]:
    rule = None if given.rule is None else _rule(given.rule, asking)
    rule_id = None if rule is None else rule.pop("rule_id", None)
    runs = _runs(given.runs or ("none" if given.logs else "30d"))
    return {"rule": rule, "rule_id": rule_id, "pack": rule is None, "runs": runs, "logs": logs}


def _logs(paths: Sequence[Path]) -> tuple[list[dict[str, str]], list[tuple[str, str]]]:
    """The logs as they are sent; and the names of those that cannot be opened, each with the reason."""
    logs, missing, size = list[dict[str, str]](), list[tuple[str, str]](), 0
    for path in paths:
        try:
            size += path.stat().st_size
            if size > MAX_LOG_BYTES:
                raise Unusable(f"The logs are larger than {MAX_LOG_BYTES >> 20} MiB together: give fewer at once.")
            text = path.read_text(encoding="utf-8-sig", errors="replace")
        except OSError as error:
            missing.append((_name(path), error.strerror or str(error)))
        else:
            logs.append({"name": _name(path), "text": text.replace("\x00", "")})
    if missing and not logs:
        raise Unusable(f"No log can be read: {'; '.join(': '.join(each) for each in missing)}.")
    return logs, missing


def _not_read(name: str, why: str) -> dict[str, Any]:
    """The row of a log that never came to the server, as the server says it of one that it cannot read."""
    nothing = dict.fromkeys(("run_id", "log", "ended_step", "ended_segment", "lead_steps", "verdict_before", "episodes_before"))
    counts = dict.fromkeys(("points", "losses", "counted", "episodes_total"), 0)
    said = {"name": name, "project": "", "outcome": "unknown", "verdict": "not_judged", "problem": why}
    return {**nothing, **counts, **said, "episodes": [], "series": []}


def _name(path: Path) -> str:
    """Of a trainer_state.json also the folder: they are all called so."""
    name = str(path) if not path.parent.name else f"{path.parent.name}/{path.name}"
    return printable(name, 256)


def _runs(said: str) -> dict[str, Any]:
    if said in ("all", "none"):
        return {"kind": said}
    if said.endswith("d") and said[:-1].replace(".", "", 1).isdigit():
        return {"kind": "recent", "days": float(said[:-1])}
    return {"kind": "picked", "run_ids": [part.strip() for part in said.split(",") if part.strip()]}


def _rule(said: str, asking: Asking) -> dict[str, Any]:
    path = Path(said)
    if path.is_file():
        try:
            parsed = json.loads(path.read_text(encoding="utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise Unusable(f"{path} is not JSON ({error}).") from None
        if not isinstance(parsed, dict):
            raise Unusable(f"{path} does not hold a rule: it must be one object.")
        return {name: value for name, value in parsed.items() if name not in _OF_THE_SERVER}
    rules = asking.ask("GET", "/api/rules").get("rules", [])
    found = [rule for rule in rules if rule.get("rule_id") == said] or [rule for rule in rules if rule.get("name") == said]
    if len(found) != 1:
        known = ", ".join(f"{rule.get('rule_id')} ({rule.get('name')})" for rule in found or rules)
        what = "is the name of several rules: give the id of one" if found else "is neither a file nor a rule of the server"
        raise Unusable(f"{said} {what}; there are {known}.")
    return {name: value for name, value in found[0].items() if name not in _OF_THE_SERVER}


_OF_THE_SERVER = frozenset({"version", "edited", "is_default", "failure", "never_seen", "too_many_series", "open_alerts"})
"""What the server says of a rule beside what the rule is."""


# --- the job ---


class _Stopped(Exception):  # noqa: N818
    """The backtest ended without a result."""


class _Job:
    """A backtest on the server, from its start to its end."""

    def __init__(self, asking: Asking, request: dict[str, Any]) -> None:
        self._asking, self._request = asking, request
        self._line = _Line()

    def follow(self) -> dict[str, Any]:
        """Starts it and waits for its end; Ctrl-C cancels it. The server's answer."""
        path = f"/api/backtests/{self._asking.ask('POST', '/api/backtests', self._request)['backtest_id']}"
        try:
            return self._wait(path)
        except KeyboardInterrupt:
            with suppress(LossGuardError):
                self._asking.ask("DELETE", path)
            sys.stderr.write("\nCancelled.\n")
            raise
        finally:
            self._line.clear()

    def _wait(self, path: str) -> dict[str, Any]:
        away_since: float | None = None
        while True:
            try:
                job = self._asking.ask("GET", path)
            except Unanswered:
                away_since = away_since or time.monotonic()
                if time.monotonic() - away_since > AWAY_SECONDS:
                    raise
            else:
                away_since = None
                if job["state"] == "succeeded":
                    return job
                if job["state"] in ("failed", "cancelled"):
                    raise _Stopped(f"The backtest was {job['state']}. {job.get('problem') or ''}".strip())
                self._line.show(job)
            time.sleep(POLL_SECONDS)


class _Line:
    """How far it is, in one line that is written over. Only where somebody looks."""

    def __init__(self) -> None:
        self._is_shown = False

    def show(self, job: dict[str, Any]) -> None:
        if not sys.stderr.isatty():
            return
        said = f"{job['done']} of {job['total']} judged, {job['points']:,} points" if job["total"] else job["state"]
        sys.stderr.write(f"\r\x1b[K{said}")
        sys.stderr.flush()
        self._is_shown = True

    def clear(self) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


# --- what came out ---


def _in_words(error: Exception) -> Iterator[str]:
    """The error, and every wrong field of a rule on a line of its own."""
    yield str(error)
    for each in error.problem.get("errors") or [] if isinstance(error, Declined) else []:
        yield f"  {each.get('field')}: {each.get('message')}"
        if str(each.get("field")).startswith("runs"):
            yield "  --runs takes a number of days (30d), all, none, or the ids of runs with commas between them"


def _told(job: dict[str, Any], *, as_json: bool) -> int:
    result = job["result"]
    if as_json:
        sys.stdout.write(json.dumps(job) + "\n")
    else:
        sys.stdout.write("".join(printable(line, 1_000) + "\n" for line in _lines(job, result)))
    if not result["runs"]:  # they were all deleted meanwhile
        sys.stderr.write("Nothing was judged.\n")
        return 2
    return 1 if any(run["verdict"] == "not_judged" for run in result["runs"]) else 0


def _lines(job: dict[str, Any], result: dict[str, Any]) -> Iterator[str]:
    runs = result["runs"]
    yield f"{len(runs)} runs and logs, {job['points']:,} points, {job['seconds']:.1f} s"
    yield from _summary(result["summary"])
    if result["left_out"]:
        yield f"{result['left_out']} older runs were left out"
    if not runs:
        return
    yield ""
    rows = [("Run", "What happened", "Verdict", "Fires"), *(_row(run) for run in runs)]
    widths = [min(60, max(len(row[at]) for row in rows)) for at in range(3)]
    for row in rows:
        yield "  ".join([*(cell[:width].ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]).rstrip()


def _summary(summary: dict[str, Any]) -> Iterator[str]:
    def before(name: str) -> str:
        value = summary[f"{name}_before"]
        return "" if value is None else f", before {value:.3g}"

    median = summary["lead_steps_median"]
    lead = "" if median is None else f", {median:g} steps early at the median"
    yield f"caught {summary['caught']} of {summary['failed_runs']} that failed{before('caught')}{lead}"
    rate = summary["episodes_per_1000"]
    often = "" if rate is None else f"; {rate:.3g} episodes per 1000 points{before('episodes_per_1000')}"
    yield f"false alarms on {summary['false_alarms']} of {summary['healthy_runs']} healthy{before('false_alarms')}{often}"


def _row(run: dict[str, Any]) -> tuple[str, str, str, str]:
    verdict, lead = VERDICTS.get(run["verdict"], run["verdict"]), run["lead_steps"]
    if lead is not None:
        verdict = f"{abs(lead)} steps {verdict}" if lead else "at the very step"
    step = run["ended_step"]
    happened = OUTCOMES.get(run["outcome"], run["outcome"]).format("an unknown step" if step is None else step)
    return run["name"], happened, verdict, run["problem"] or _stretches(run)


def _stretches(run: dict[str, Any]) -> str:
    """Where each rule fires: rule, first to last step, and how often beyond the first ones."""
    by_rule: dict[str, list[dict[str, Any]]] = {}
    for episode in run["episodes"]:
        by_rule.setdefault(episode["rule_name"], []).append(episode)
    said = [f"{name}: {', '.join(map(_stretch, mine[:MOST_STRETCHES]))}{_more(mine)}" for name, mine in by_rule.items()]
    unlisted = run["episodes_total"] - len(run["episodes"])
    return "; ".join([*said, *([f"{unlisted} more episodes"] if unlisted else [])])


def _stretch(episode: dict[str, Any]) -> str:
    end = episode["resolved_step"]
    return f"{episode['firing_step']}-{'' if end is None else end}"


def _more(episodes: Sequence[object]) -> str:
    return f" and {len(episodes) - MOST_STRETCHES} more" if len(episodes) > MOST_STRETCHES else ""

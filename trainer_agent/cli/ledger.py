"""`lossguard ledger`: which samples and documents went into which steps, out of the files of a run.

    lossguard ledger DIR                       what there is: ranks, segments, steps
    lossguard ledger DIR --step N              the samples of a step, on each rank, and the document of each in the same order
    lossguard ledger DIR --sample N            the steps that a sample went into
    lossguard ledger DIR --document ID         the steps that a document went into
    ... --segment S          only of that segment; else --step takes those that count in the end, the others all
    ... --json                                 one JSON object

Exit code 1: nothing was found; stderr says whether there is no folder, no run, or nothing of what was asked for.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from trainer_agent.guest.voice import printable
from trainer_agent.ledger.files import FOLDER, Found, LedgerReader, readers, stretches

MOST_LISTED = 1_000
"""Steps that are listed; the rest is a count."""


def add_to(commands: Any) -> None:
    """Puts the command to the others of an argument parser."""
    ledger = commands.add_parser("ledger", help="show which samples went into which steps")
    ledger.add_argument("directory", nargs="?", default=".", type=Path, help="output folder of a run")
    asked = ledger.add_mutually_exclusive_group()
    asked.add_argument("--step", type=int, metavar="N", help="the samples of this step")
    asked.add_argument("--sample", type=int, metavar="N", help="the steps that this sample went into")
    asked.add_argument("--document", metavar="ID", help="the steps that this document went into")
    ledger.add_argument("--segment", type=int, metavar="S", help="only of this segment")
    ledger.add_argument("--run", dest="run_id", metavar="ID", help="of this run (default: the one that trained last)")
    ledger.add_argument("--json", action="store_true", help="one JSON object")
    ledger.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Looks up and prints; the exit code."""
    directory = given.directory if (given.directory / FOLDER).is_dir() else given.directory / ".lossguard"
    ranks = readers(directory, given.run_id)
    if given.step is None and given.sample is None and given.document is None:
        about = [_about(reader) for reader in ranks]
        return _print(given, {"ranks": about}, [_told(each) for each in about], "" if about else _lacks(given, directory, ranks))
    found = [each for reader in ranks for each in _look(reader, given)]
    shown = [_shown(each, with_samples=given.step is not None) for each in found[:MOST_LISTED]]
    lines = [_line(each) for each in shown]
    if len(found) > len(shown):
        lines.append(f"... and {len(found) - len(shown)} more")
    return _print(given, {"steps": shown, "count": len(found)}, lines, "" if found else _lacks(given, directory, ranks))


def _lacks(given: argparse.Namespace, directory: Path, ranks: list[LedgerReader]) -> str:
    """Why nothing is found."""
    where = given.directory.resolve()
    if not where.is_dir():
        return f"There is no folder {where}."
    if not (directory / FOLDER).is_dir():
        return f"{where} holds no ledger: it is not the output folder of a run that was watched."
    if not ranks:
        return f"No run {given.run_id or ''}".strip() + f" is in the ledger of {where}."
    asked = next(f"{name} {value}" for name in ("step", "sample", "document") if (value := getattr(given, name)) is not None)
    within = f" in segment {given.segment}" if given.segment is not None else ""
    left = _left_behind(ranks, given.step) if given.step is not None and given.segment is None else []
    also = f" It was left behind in segment {left[-1]}: --segment {left[-1]} shows it." if left else ""
    return f"Nothing of {asked}{within} is recorded in {where}; without --step, --sample and --document you see what is.{also}"


def _left_behind(ranks: list[LedgerReader], step: int) -> list[int]:
    """The segments that made a step which none has made since."""
    return sorted({segment for reader in ranks for segment in reader.heads if any(reader.rows(segment, step, step))})


def _look(reader: LedgerReader, given: argparse.Namespace) -> Iterator[Found]:
    if given.step is not None:
        yield from _of_step(reader, given.segment, given.step)
        return
    segments = [given.segment] if given.segment is not None else sorted(reader.heads)
    for segment in segments:
        for row in reader.rows(segment):
            by_number = given.sample is not None
            if given.sample in (row.samples or ()) if by_number else given.document in (row.documents or ()):
                yield Found(segment, reader.rank, row)


def _of_step(reader: LedgerReader, segment: int | None, step: int) -> Iterable[Found]:
    if segment is None:
        return reader.effective(step, step)
    return (Found(segment, reader.rank, row) for row in reader.rows(segment, step, step))


def _about(reader: LedgerReader) -> dict[str, Any]:
    segments = []
    for segment, head in sorted(reader.heads.items()):
        first, last = reader.span(segment) or (None, None)
        about = {"segment": segment, "cause": head.cause.value, "from_step": head.from_step, "parent": head.parent}
        segments.append(about | {"first_step": first, "last_step": last})
    return {"rank": reader.rank, "segments": segments, "counting": [each[0] for each in reversed(stretches(reader.heads))]}


def _shown(each: Found, *, with_samples: bool) -> dict[str, Any]:
    row = each.row
    where: dict[str, Any] = {"segment": each.segment, "rank": each.rank, "step": row.step}
    return where | ({"samples": row.samples, "documents": row.documents} if with_samples else {})


def _line(shown: dict[str, Any]) -> str:
    where = f"step {shown['step']}  segment {shown['segment']}  rank {shown['rank']}"
    if "samples" not in shown:
        return where
    samples = "not known" if shown["samples"] is None else " ".join(map(str, shown["samples"]))
    documents = f"  documents {' '.join(shown['documents'])}" if shown["documents"] else ""
    return f"{where}  samples {samples}{documents}"


def _told(about: dict[str, Any]) -> str:
    parts = [
        f"segment {each['segment']} ({each['cause']} from step {each['from_step']}): "
        f"steps {each['first_step']} to {each['last_step']}"
        for each in about["segments"]
    ]
    return f"rank {about['rank']}  " + "; ".join(parts)


def _print(given: argparse.Namespace, content: dict[str, Any], lines: list[str], lacks: str) -> int:
    is_empty = not (content.get("steps") or content.get("ranks"))
    if given.json:
        sys.stdout.write(json.dumps(content) + "\n")
    elif is_empty:
        sys.stderr.write(lacks + "\n")
    else:
        sys.stdout.write("".join(printable(line, 1_000_000) + "\n" for line in lines))
    return 1 if is_empty else 0

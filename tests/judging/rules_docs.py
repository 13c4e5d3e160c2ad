"""The part of docs/rules.md that is made from the registry of detectors.

python tests/judging/rules_docs.py        writes it anew
"""

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "rules.md"
BEGIN, END = "<!-- conditions: made from the registry -->", "<!-- end of conditions -->"


def conditions() -> str:
    """Every condition with its settings, as Markdown."""
    return "\n\n".join("\n".join(_condition(kind)) for kind in _detectors())


def _detectors():
    from server.domain.detectors import DETECTORS

    return DETECTORS


def _condition(kind) -> Iterator[str]:
    from server.domain.rules import meaning

    detector = _detectors()[kind]
    yield f"### {kind}\n"
    beside = (
        f" Reads {', '.join(f'`{each}`' for each in detector.companions)} beside its own series." if detector.companions else ""
    )
    together = " Looks at all ranks together." if detector.across_ranks else ""
    yield f"{meaning(kind)}{beside}{together}{'' if detector.settings else ' Takes no settings.'}"
    if detector.settings:
        yield "\n| setting | default | from | to | meaning |\n|---|---|---|---|---|"
    for name, setting in detector.settings.items():
        default = "none" if setting.default is None else f"{setting.default:g}"
        whole = ", whole" if setting.whole else ""
        yield f"| `{name}` | {default} | {setting.minimum:g} | {setting.maximum:g}{whole} | {setting.meaning} |"


def written() -> str:
    """What stands in the document."""
    return DOCS.read_text().partition(BEGIN)[2].partition(END)[0].strip()


def write() -> None:
    """Put what the registry says into the document."""
    before, _, rest = DOCS.read_text().partition(BEGIN)
    DOCS.write_text(f"{before}{BEGIN}\n\n{conditions()}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    write()

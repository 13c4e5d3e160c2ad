"""The page's modules: layers, and nothing from another host."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "client"
PURE = (
    "reducers.js",
    "series.js",
    "timeline.js",
    "format.js",
    "commands.js",
    "rollbacks.js",
    "segments.js",
    "checkpoints.js",
    "samples.js",
    "incidents.js",
    "history.js",
    "silences.js",
    "terms.js",
    "clauses.js",
    "backtests.js",
    "rulebook.js",
    "rules.js",
    "sentences.js",
)
RANK = {"views": 0, "widgets": 1, "charts": 1}
"""A folder may import from its own and from those with a higher number; files beside them are lower still, `main.js` on top."""


def modules() -> list[Path]:
    found = sorted(path for path in CLIENT.rglob("*.js") if "node_modules" not in path.parts)
    assert found, "client/ holds no module"
    return found


def imported(path: Path) -> list[Path]:
    names = re.findall(r"""(?:from|import)\s*\(?\s*["'](\.[^"']+)["']""", path.read_text())
    return [(path.parent / name).resolve() for name in names]


def rank(path: Path) -> int:
    first = path.relative_to(CLIENT).parts[0]
    return -1 if first == "main.js" else RANK.get(first, 2)


def test_imports_point_downwards_and_exist():
    for path in modules():
        for target in imported(path):
            assert target.exists(), f"{path.relative_to(ROOT)} imports {target.name}, which is not there"
            assert rank(path) <= rank(target), f"{path.relative_to(ROOT)} imports {target.relative_to(ROOT)}, which is above it"


@pytest.mark.parametrize("name", PURE)
def test_pure_modules_know_neither_document_nor_network(name):
    source = re.sub(r"/\*.*?\*/|//[^\n]*", "", (CLIENT / name).read_text(), flags=re.DOTALL)
    assert not re.search(r"\bdocument[.\[)]|\b(localStorage|EventSource|setTimeout|setInterval)\b|\bwindow\.|\bfetch\(", source)
    assert all(target.name in PURE or "i18n" in target.parts for target in imported(CLIENT / name))


def test_only_the_chart_module_calls_plotly_and_only_its_layout_speaks_its_words():
    knowing = {path.relative_to(CLIENT).as_posix() for path in modules() if re.search(r"\bPlotly\b", path.read_text())}
    assert knowing == {"charts/chart.js", "charts/layout.js"}
    assert "loadLibrary" not in (CLIENT / "charts" / "layout.js").read_text()
    importing = {path.name for path in modules() if any(target.name == "layout.js" for target in imported(path))}
    assert importing == {"chart.js"}


def test_nothing_is_fetched_from_another_host_and_nothing_is_inline():
    for path in [*modules(), *CLIENT.rglob("*.html"), *CLIENT.rglob("*.css")]:
        text = re.sub(r"http://www\.w3\.org/\S+", "", path.read_text())
        assert not re.search(r"""(?:src|href|url\(|from|import)\s*[=(]?\s*["']?(?:https?:)?//""", text), (
            f"{path.relative_to(ROOT)} names another host"
        )
    for path in CLIENT.rglob("*.html"):
        assert not re.search(r"<script(?![^>]*\bsrc=)|\sstyle=|\son\w+=", path.read_text()), (
            f"{path.name} has inline code or style"
        )

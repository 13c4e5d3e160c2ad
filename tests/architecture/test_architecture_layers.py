"""Who may import whom, and the shape of the house: what `pyproject.toml` states as contracts, and what contracts cannot say."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dev import LONG_FORMS

ROOT = Path(__file__).resolve().parents[2]
LONGEST_FILE = 350
NOUNS = ("runs", "points", "rules", "alerts", "checkpoints", "countdowns", "commands", "webhooks", "events")
FLOORS = ("api", "services", "store", "domain")


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports(path: Path) -> list[tuple[str, str]]:
    """(module, name) of every import in a file, wherever it stands; relative ones with their full name."""
    package = list(path.relative_to(ROOT).with_suffix("").parts)
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found += [(module, alias.name) for alias in node.names]
    return found


def is_standard(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] in sys.stdlib_module_names


def test_the_contracts_of_pyproject_are_kept():
    lint = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_wire_imports_the_standard_library_only():
    for path in python_files("trainer_agent/wire"):
        foreign = [
            module for module, _ in imports(path) if not is_standard(module) and not module.startswith("trainer_agent.wire")
        ]
        assert not foreign, f"{name_of(path)}: {foreign}"


def test_the_domain_imports_the_standard_library_and_the_wire_only():
    for path in python_files("server/domain"):
        allowed = ("server.domain", "trainer_agent.wire")
        foreign = [module for module, _ in imports(path) if not is_standard(module) and not module.startswith(allowed)]
        assert not foreign, f"{name_of(path)}: {foreign}"


def test_outside_the_store_nothing_of_sqlalchemy_is_named_but_the_type_of_a_connection():
    for path in python_files("server"):
        if ROOT / "server/store" not in path.parents:
            taken = {name for module, name in imports(path) if module.split(".", maxsplit=1)[0] == "sqlalchemy"}
            assert taken <= {"Connection"}, f"{name_of(path)}: {taken}"


def test_importing_the_agent_or_the_contract_imports_nothing_heavy():
    assert (ROOT / "trainer_agent/__init__.py").read_text().strip() == ""
    heavy = "('torch', 'transformers', 'accelerate', 'numpy', 'pydantic', 'sqlalchemy', 'httpx2')"
    code = f"import sys, trainer_agent.wire.messages, trainer_agent.wire.codec; print([n for n in {heavy} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def modules_of_the_agent() -> list[str]:
    """Their full names; packages are not among them."""
    paths = [path for path in python_files("trainer_agent") if path.name != "__init__.py"]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]


def test_the_half_of_the_agent_that_records_and_sends_runs_without_torch():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (named,) = [contract["source_modules"] for contract in contracts if "torch" in contract.get("forbidden_modules", [])]
    sending = [name for name in modules_of_the_agent() if name.startswith(tuple(f"{whole}." for whole in named)) or name in named]
    assert len(sending) > len(named)
    code = f"import sys, {', '.join(sending)}; print([n for n in ('torch', 'transformers', 'accelerate') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_each_module_of_the_agent_has_its_place_in_the_layers():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["name"].startswith("Agent")]
    placed = {name.strip() for layer in layers for name in layer.split("|")}
    wire = {name for name in modules_of_the_agent() if name.startswith("trainer_agent.wire.")}
    assert set(modules_of_the_agent()) - wire == placed - {"trainer_agent.wire"}


def test_a_package_of_the_agent_says_what_is_in_it_and_imports_nothing_unless_it_is_a_door():
    for path in (ROOT / "trainer_agent").glob("*/__init__.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), name_of(path)
        own = f"trainer_agent.{path.parent.name}."
        foreign = [name for name, _ in imports(path) if path.parent.name not in {"hf", "loop", "cli"} or not name.startswith(own)]
        assert not foreign, f"{name_of(path)}: {foreign}"


@pytest.mark.parametrize("path", python_files("server", "trainer_agent"), ids=name_of)
def test_a_file_is_short_enough_to_be_read_at_once(path):
    lines = len(path.read_text().splitlines())
    assert lines <= LONGEST_FILE, f"{lines} lines: it probably holds two nouns"


def test_a_noun_has_one_file_of_its_name_on_each_floor_and_none_elsewhere():
    for path in python_files("server"):
        if path.stem in NOUNS:
            floor = path.parent.name
            assert floor in {*FLOORS, "outbound"}, f"{name_of(path)}: {path.stem} belongs on a floor"


def test_only_the_writer_commits():
    for path in python_files("server"):
        if path.name in {"writer.py", "database.py", "migrating.py", "visiting.py"} and path.parent.name == "store":
            continue
        calls = [
            n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
        ]
        committing = [call.lineno for call in calls if call.func.attr in {"commit", "rollback", "begin"}]
        assert not committing, f"{name_of(path)} line {committing}"


def test_only_settings_and_clock_read_the_environment_and_the_time():
    for path in python_files("server"):
        if path.name in {"settings.py", "clock.py"}:
            continue
        source = path.read_text()
        assert not re.search(r"os\.environ|os\.getenv", source), f"{name_of(path)} reads the environment"
        assert not re.search(r"datetime\.(now|utcnow)\(|date\.today\(", source), f"{name_of(path)} reads the clock"


def test_no_test_is_skipped_or_expected_to_fail():
    word = re.compile(r"pytest\.(skip|importorskip|xfail)|mark\.(skip|skipif|xfail)")
    for path in python_files("tests"):
        if path.resolve() != Path(__file__).resolve():
            assert not word.search(path.read_text()), f"{name_of(path)}: a missing part is a failure, never a skip"


def test_test_modules_have_names_of_their_own():
    names = [path.name for path in python_files("tests") if path.name != "conftest.py"]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_the_soak_has_every_folder_whose_tests_have_a_long_form():
    """Or a limit that `patience` stretches would be held to nowhere."""
    asks = re.compile(r"LOSSGUARD_SOAK|import patience")
    asking = {
        path.parent.name for path in python_files("tests") if path != Path(__file__).resolve() and asks.search(path.read_text())
    }
    assert asking - {"tests"} <= set(LONG_FORMS)

"""The wheel that goes into other people's training environments."""

import os
import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UV = str(Path(sys.executable).parent / "uv")


def run(*command: str, **options) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LOSSGUARD_", "PIP_CONSTRAINT"))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, **options)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(UV, "build", "--wheel", "--quiet", "--out-dir", str(folder), cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_contains_the_trainer_agent_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"trainer_agent", f"{wheel.name.rsplit('-', 3)[0]}.dist-info"}
    assert "trainer_agent/wire/messages.py" in names


def test_a_bare_install_brings_three_light_packages_and_no_torch(wheel):
    archive = zipfile.ZipFile(wheel)
    metadata = Parser().parsestr(archive.read(next(n for n in archive.namelist() if n.endswith("METADATA"))).decode())
    bare = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert sorted(re.match(r"[\w-]+", line)[0] for line in bare) == ["httpx2", "nvidia-ml-py", "psutil"]
    assert not [line for line in metadata.get_all("Requires-Dist") if line.startswith("torch")]


def test_the_command_works_in_a_fresh_environment(wheel, tmp_path):
    run(UV, "venv", "--quiet", "--python", sys.executable, str(tmp_path / "venv"))
    python = str(tmp_path / "venv" / "bin" / "python")
    run(UV, "pip", "install", "--quiet", "--python", python, "-c", str(ROOT / "constraints.txt"), str(wheel))
    assert "login" in run(str(tmp_path / "venv" / "bin" / "lossguard"), "--help", cwd=tmp_path).stdout
    code = "import importlib.util as u; print([n for n in ('server', 'client', 'torch', 'sqlalchemy') if u.find_spec(n)])"
    assert run(python, "-c", code, cwd=tmp_path).stdout.strip() == "[]"

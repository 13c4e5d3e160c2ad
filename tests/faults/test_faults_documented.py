"""`docs/faults.md` has every row, and each names a test that prints its figure."""

import re

import pytest
from faults_kit import ROOT

TEXT = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
ROWS = [*(f"F{number}" for number in (*range(1, 25), *range(27, 31), *range(41, 55))), *(f"B{number}" for number in range(1, 10))]


@pytest.mark.parametrize("row", ROWS)
def test_each_row_is_described_and_its_test_is_there(row):
    (line,) = [line for line in TEXT.splitlines() if line.startswith(f"| {row} |")]
    (name,) = re.findall(r"`(tests/[\w/]+\.py)`", line)
    assert (ROOT / name).is_file(), f"{row}: {name} is not there"
    assert re.search(rf"[\"']{row}[\"']", (ROOT / name).read_text(encoding="utf-8")), f"{name} prints no figure {row}"

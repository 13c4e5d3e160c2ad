"""Shared with the tests of judging: a trainer as the services hear it."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "services"))

"""The servers of `tests/api` and `tests/faults` and the trainer of `tests/services`, for the tests of this folder."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("api", "faults", "services")]

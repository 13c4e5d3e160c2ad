"""The trainer of the services' tests, and the real server of the tests of faults."""

import sys
from pathlib import Path

for neighbour in ("services", "faults"):
    sys.path.insert(0, str(Path(__file__).parents[1] / neighbour))

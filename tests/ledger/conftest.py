import sys
from pathlib import Path

for _name in ("agent", "api"):
    sys.path.append(str(Path(__file__).parents[1] / _name))  # their kits: a tiny Trainer, a server on loopback

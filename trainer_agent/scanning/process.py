"""The pass over a checkpoint's files in a process of its own; started by `far`, and by nothing else.

One line of JSON comes in, one for each file goes out, `null` for a file that could not be read through. When the starter closes
the pipe, or is gone, this is over between two pieces.
"""

import json
import select
import sys
from pathlib import Path

from .float_bits import Floats
from .one_pass import Cancelled, CutShort, Region, scan


def main() -> None:
    """Reads the jobs, does them, and leaves."""
    for path, regions in json.loads(sys.stdin.buffer.readline()):
        try:
            found = scan(Path(path), [Region(offset, size, Floats(*floats)) for offset, size, floats in regions], _is_left)
            answer = [found.size_bytes, found.sha256, found.nonfinite]
        except (OSError, CutShort):
            answer = None
        except Cancelled:
            return
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _is_left() -> bool:
    """Nothing more comes in by this pipe, so there is something to read only when it is closed."""
    return bool(select.select([sys.stdin], [], [], 0)[0])

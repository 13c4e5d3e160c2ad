"""What can go wrong on the agent's side of the wire. A docstring is the message.

    LossGuardError
      BadAddress      BadToken
      SpoolInUse      NotASpool
      Unanswered      Declined        Unusable

None of these reaches a training script: `Config.load` and `Monitor` turn them into one line on stderr. The command line
prints them and leaves with exit code 2.
"""

from collections.abc import Mapping
from typing import Any


class LossGuardError(Exception):
    """Something of LossGuard's went wrong."""

    def __init__(self, detail: str = "") -> None:
        super().__init__(f"{type(self).__doc__} {detail}".strip())


class BadAddress(LossGuardError):  # noqa: N818  the name is the finding, as in `FileNotFound`
    """The server's address must look like http://host:port."""


class BadToken(LossGuardError):  # noqa: N818
    """A token is one word of printable ASCII, as the server printed it."""


class SpoolInUse(LossGuardError):  # noqa: N818
    """Another process is sending this spool; it will send all of it."""


class NotASpool(LossGuardError):  # noqa: N818
    """There is no readable spool in this folder."""


class Unanswered(LossGuardError):  # noqa: N818
    """There is no usable answer from the server."""


class Declined(LossGuardError):  # noqa: N818
    """The server says no."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        """`status` is HTTP's, `problem` its problem document."""
        self.status, self.problem = status, problem
        said = "; ".join(part for key in ("detail", "fix") if isinstance(part := problem.get(key), str))
        super().__init__(f"{status}: {said}"[:1000])


class Unusable(LossGuardError):  # noqa: N818
    """Nothing can be asked so."""

"""What can go wrong on the agent's side of the wire. A docstring is the message.

    LossGuardError
      BadAddress      BadToken
      SpoolInUse      NotASpool

None of these reaches a training script: `Config.load` and `Monitor` turn them into one line on stderr. The command line
prints them and leaves with exit code 2.
"""


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

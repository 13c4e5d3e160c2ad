"""The `lossguard` command: the door. It reads what lies on this machine and asks the server; torch it never needs."""

from .command import main

__all__ = ["main"]

"""Manners in a process that belongs to a script: little is said, no error of ours gets out, no trace is left, files stay whole.

Begin with `harmless`. Refuses to know runs and servers, and torch.
"""

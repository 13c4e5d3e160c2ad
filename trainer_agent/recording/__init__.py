"""From the training thread to the disk: entries in memory, numbered, in the files of the spool.

Begin with `writer` (the thread) and `spool` (the files). Refuses to know the server, and torch.
"""

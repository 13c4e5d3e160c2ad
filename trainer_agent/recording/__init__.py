"""From the training thread to the disk: entries in memory, numbered, in the files of the spool.

Refuses to know the server, and torch.
"""

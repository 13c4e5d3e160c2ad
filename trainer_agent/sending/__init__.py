"""From the spool to the server, and what comes back with the answers. Only `transport` knows HTTP.

Begin with `sender`. Refuses to know the training, and torch.
"""

"""The numbers of a step and of the machine, taken without disturbing the training, and whether a run with such numbers is dead.

Begin with `probes`; `guard` says when a run is dead. Refuses to know what follows from that, and where the numbers go.
"""

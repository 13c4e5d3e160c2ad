"""The data of a training: of which samples a batch is made, and what of them a run passes over.

Begin with `samples` (ids of a batch) and `plan` (what is passed over). Refuses to know who runs the loop, and whose order it is.
"""

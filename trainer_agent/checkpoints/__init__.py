"""The checkpoints of a run, from before the save to their end: are they whole, which may go, which one may be gone back to.

Begin with `saves` (what is done at each save) and `inspector` (the thread that looks at it).

States facts, and never a verdict, which is the server's. Refuses to know who writes them, and when.
"""

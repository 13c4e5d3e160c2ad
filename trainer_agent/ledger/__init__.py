"""Which samples and documents went into which steps, in files beside the run; and whether a resumed run goes on as it was.

Refuses to know how a loop gets its batches: `data` puts the ids to them.
"""

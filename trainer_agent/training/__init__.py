"""One training under watch, whatever runs its loop: how it begins on all ranks, its step boundaries, its segments, its last word.

`session` holds the rest together. Refuses to know `hf` and `loop`, which call it.
"""

"""What a training is told, and what becomes of it: taken in, decided on, agreed on by all ranks, written down, done, answered.

`orders` holds the rest together; `journal` outlives the process. Refuses to know who runs the loop, and how anything is sent.
"""

"""The bytes of a checkpoint's files: their digests, and how many of the numbers in them are not finite.

Begin with `one_pass`. Knows files and formats of tensors; refuses to know checkpoints, runs and torch.
"""

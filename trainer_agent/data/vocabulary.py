"""What the token ids of a training mean: the size of the tokenizer's vocabulary and a digest of it, as a line to compare.

Weights that were trained on one vocabulary are noise on another, and nothing else shows it: shapes fit as long as the sizes do.
"""

import hashlib
from typing import Any

from trainer_agent.guest.interrupts import let_pass


def describe(tokenizer: Any) -> str:
    """The line; empty where there is no tokenizer, or one that does not tell. A tenth of a second for a large vocabulary.

    Args:
        tokenizer: of transformers, or a processor that has one. Its settings (padding, cutting off) make no difference.
    """
    try:
        vocabulary = getattr(tokenizer, "tokenizer", tokenizer).get_vocab()
        pairs = sorted((int(number), str(token)) for token, number in vocabulary.items())
    except Exception as error:
        let_pass(error)
        return ""
    digest = hashlib.sha256()
    for number, token in pairs:
        digest.update(f"{number}\0{token}\0".encode("utf-8", "surrogatepass"))
    return f"{len(pairs)} tokens, {digest.hexdigest()[:16]}"

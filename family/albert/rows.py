"""Makes pairs of consecutive spans with a label for whether they are swapped.

These are ALBERT's instances, with the features of its release.
"""

import numpy as np

from text.instances import pairs
from text.records.schema import Feature
from text.tokenizers.vocabulary import Vocabulary


class SentenceOrder(pairs.Pairs):
    """`[CLS] a [SEP] b [SEP]`, and 1 if b comes before a in the text.

    Differs from the release: all pairs are consecutive. A chunk has at least two sentences,
    tokens beyond a row are cut off, and a lone last sentence is left out. In the
    release, a chunk of one sentence is paired with random text, and also labeled 1.

    Source: google-research/albert@b772393 create_pretraining_data.py:255-386.
    """

    sentence_task = "sentence_order"
    released = {"ngram": 3}
    none_planned = "no document has two sentences, which a pair needs"

    random_next = False
    swapped_share = 0.5

    def labels(self) -> tuple[Feature, ...]:
        if not self.masks.are_drawn:
            return super().labels()
        # Nothing that was released reads it, but it is part of the release's records.
        length = self.options.max_seq_length
        return (Feature("token_boundary", "int64", length, 2), *super().labels())

    def pack(self, corpus, planned, tokens, vocabulary):
        batch, is_text = super().pack(corpus, planned, tokens, vocabulary)
        if self.masks.are_drawn:
            is_token = batch["input_mask"] > 0
            begins = boundaries(batch["input_ids"], is_token, vocabulary)
            batch["token_boundary"] = begins.view(np.uint8)
        return batch, is_text


def boundaries(
    ids: np.ndarray, is_token: np.ndarray, vocabulary: Vocabulary
) -> np.ndarray:
    """bool [batch, seq_length]: special tokens, and the first piece of each word."""
    # Broken records may have ids that are in no vocabulary.
    return is_token & ~vocabulary.is_continuation.take(ids, mode="clip")

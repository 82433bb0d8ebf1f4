"""Packs a pair of texts as two sequences, one for each order.

A model that reads from left to right judges so whether texts are alike.
"""

from text.instances import packing
from text.tokenizers.vocabulary import Vocabulary


def pack(
    vocabulary: Vocabulary, a: list[int], b: list[int], max_seq_length: int
) -> tuple[tuple[list[int], ...], tuple[list[int], ...], bool]:
    """Joins the ids of two texts in both orders; see `packing.pack`.

    Returns:
        input_ids and segment_ids of both sequences, and whether tokens were lost.
    Source: Improving Language Understanding by Generative Pre-Training, section 3.3.
    """
    ids, segments, was_cut = zip(
        *(packing.pack(vocabulary, *pair, max_seq_length) for pair in ((a, b), (b, a))),
        strict=True,
    )
    return ids, segments, any(was_cut)

"""Packs ids as `[CLS] a [SEP] b [SEP]`, with padding.

The vocabulary says how many [SEP] are between a and b, which tokens are before and after
them, and which segment b is. Padding is always on the right.
"""

from collections.abc import Sequence

import numpy as np

from text.tokenizers.vocabulary import Vocabulary

NUM_SPECIAL_TOKENS = 3  # in BERT's pairs: [CLS], and a [SEP] after each side


def truncated_lengths(
    a_lengths: np.ndarray, b_lengths: np.ndarray, max_num_tokens: int
) -> tuple[np.ndarray, np.ndarray]:
    """The lengths that remain when the longer side loses tokens until both fit.

    Lengths are int64 [batch], or ints; on a tie, the second side loses first.

    Source: google-research/bert@eedf571 create_pretraining_data.py, truncate_seq_pair.
    """
    surplus = np.maximum(a_lengths + b_lengths - max_num_tokens, 0)
    # First the longer side shrinks to the shorter, then b and a in turn.
    from_a = np.minimum(surplus, np.maximum(a_lengths - b_lengths, 0))
    from_b = np.minimum(surplus, np.maximum(b_lengths - a_lengths, 0))
    rest = surplus - from_a - from_b
    return a_lengths - from_a - rest // 2, b_lengths - from_b - (rest + 1) // 2


def pack_pairs(
    tokens: np.ndarray,
    a_lengths: np.ndarray,
    b_lengths: np.ndarray,
    vocabulary: Vocabulary,
    max_seq_length: int,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Lays span pairs out as the three encoder inputs.

    Args:
        tokens: int [sum of all lengths], the concatenated spans: a, b of the first row, a,
            b of the second ...
        a_lengths, b_lengths: int64 [batch]; each pair fits into max_seq_length.
    Returns:
        dict of `input_ids` int32, `input_mask` uint8, `segment_ids` uint8, each
        [batch, max_seq_length]; and bool [batch, max_seq_length]: which positions are
        tokens of the spans, all others being [CLS], [SEP] or padding.
    """
    columns = np.arange(max_seq_length, dtype=np.int32)
    begin = len(vocabulary.head)
    first_sep = (a_lengths[:, None] + begin).astype(np.int32)
    b_begin = first_sep + np.int32(vocabulary.separators)
    b_end = b_begin + b_lengths[:, None].astype(np.int32)
    last = b_end + np.int32(len(vocabulary.tail) - 1)
    in_b = columns >= b_begin
    input_mask = columns <= last
    is_text = (columns < first_sep) | in_b & (columns < b_end)
    is_text[:, :begin] = False
    # Differs from the release: it pads with 0, the id of [PAD] in all of its vocabularies.
    input_ids = np.where(
        input_mask, np.int32(vocabulary.sep_id), np.int32(vocabulary.pad_id)
    )
    input_ids[columns == last] = vocabulary.end_id
    input_ids[:, :begin] = vocabulary.head
    input_ids[is_text] = tokens
    batch = {
        "input_ids": input_ids,
        "input_mask": input_mask.view(np.uint8),
        "segment_ids": segments(in_b & input_mask, columns == last, vocabulary),
    }
    return batch, is_text


def segments(
    in_b: np.ndarray, is_last: np.ndarray, vocabulary: Vocabulary
) -> np.ndarray:
    """uint8 [batch, seq_length]: the segment ids of rows.

    Args:
        in_b: bool [batch, seq_length], the second text and the special tokens after it.
        is_last: bool [batch, seq_length], the last token of each row.
    """
    ids = in_b * np.uint8(vocabulary.second_segment)
    if vocabulary.last_segment is not None:
        ids[is_last] = vocabulary.last_segment
    return ids


def ranks(rows: np.ndarray, num_rows: int) -> np.ndarray:
    """int64 [elements]: each element's place among those of its row.

    `rows`, int [elements], ascend and are below `num_rows`.
    """
    counts = np.bincount(rows, minlength=num_rows)
    return np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]


def pack(
    vocabulary: Vocabulary, a: list[int], b: list[int] | None, max_seq_length: int
) -> tuple[list[int], list[int], bool]:
    """Joins the ids of one text or two, unpadded: input_ids, segment_ids, whether some
    were cut.

    The longer side loses tokens from its end until both fit in max_seq_length.

    Source: google-research/bert@eedf571 run_classifier.py:398-457, 557-571.
    """
    if b is None:
        kept = a[: max_seq_length - 2]
        return *join(vocabulary, kept), len(kept) < len(a)
    a_length, b_length = truncated_lengths(
        len(a), len(b), max_seq_length - vocabulary.num_special_tokens
    )
    was_cut = bool(a_length + b_length < len(a) + len(b))
    return *join(vocabulary, a[:a_length], b[:b_length]), was_cut


def both_orders(
    vocabulary: Vocabulary, a: list[int], b: list[int], max_seq_length: int
) -> tuple[tuple[list[int], ...], tuple[list[int], ...], bool]:
    """Joins the ids of two texts in both orders; see `pack`.

    A model that reads from left to right compares texts this way.

    Source: Improving Language Understanding by Generative Pre-Training, section 3.3.
    """
    ids, segments, was_cut = zip(
        *(pack(vocabulary, *pair, max_seq_length) for pair in ((a, b), (b, a))),
        strict=True,
    )
    return ids, segments, any(was_cut)


def join(
    vocabulary: Vocabulary, a: Sequence[int], b: Sequence[int] | None = None
) -> tuple[list[int], list[int]]:
    """The ids of one text or two with special ids, and their segment ids."""
    first, second = [*vocabulary.head, *a], list(vocabulary.tail)
    segments = [0] * (len(first) + len(second))
    if b is not None:
        first += vocabulary.between
        second = [*b, *second]
        segments = [0] * len(first) + [vocabulary.second_segment] * len(second)
    if vocabulary.last_segment is not None:
        segments[-1] = vocabulary.last_segment
    return first + second, segments

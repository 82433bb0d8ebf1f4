"""Masks batches of rows: the 15 %, the 80/10/10, whole words."""

import dataclasses

import numpy as np

from text.tokenizers.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Masking:
    """How tokens are chosen for prediction and what stands in their place.

    Attributes:
        masked_lm_prob: share of a row's tokens to predict, [CLS] and [SEP] counted in.
        max_predictions_per_seq: the most predictions of a row, and their array length.
        mask_share, random_share: shares of the chosen that become [MASK] or any line of
            the vocabulary; the others stay.
        whole_words: choose all pieces of a word or none.
    """

    masked_lm_prob: float
    max_predictions_per_seq: int
    mask_share: float = 0.8
    random_share: float = 0.1
    whole_words: bool = False


def prediction_counts(lengths: np.ndarray, masked_lm_prob: float) -> np.ndarray:
    """How many tokens of a row to predict, before max_predictions_per_seq caps it.

    Args:
        lengths: int [batch], tokens of each row with [CLS] and [SEP].
    Returns:
        int64 [batch], at least 1; halves go to the even number, as Python's round does.
    Source: google-research/bert@eedf571 create_pretraining_data.py:369-370.
    """
    return np.maximum(1, np.rint(lengths * masked_lm_prob)).astype(np.int64)


def mask(
    input_ids: np.ndarray,
    candidates: np.ndarray,
    lengths: np.ndarray,
    word_starts: np.ndarray | None,
    masking: Masking,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Chooses the tokens to predict and corrupts them.

    Args:
        input_ids: int32 [batch, seq_length]; not modified.
        candidates: bool [batch, seq_length], true where a token may be chosen.
        lengths: int [batch], tokens of each row with [CLS] and [SEP].
        word_starts: bool [batch, seq_length], true at the first piece of each word; used,
            and then required, with `masking.whole_words` alone.
        rng: the only source of chance.
    Returns:
        dict of `input_ids` int32 [batch, seq_length] with the chosen corrupted,
        `masked_lm_positions`, `masked_lm_ids` int32 and `masked_lm_weights` float32, each
        [batch, max_predictions_per_seq], by rising position, padded with 0;
        and int64 [3]: how many chosen became [MASK], stayed, became a random token.
    Source: google-research/bert@eedf571 create_pretraining_data.py:342-415.
    """
    counts = np.minimum(
        prediction_counts(lengths, masking.masked_lm_prob),
        masking.max_predictions_per_seq,
    )
    if masking.whole_words:
        chosen = _choose_words(candidates, word_starts, counts, rng)
    else:
        chosen = _choose_tokens(candidates, counts, rng)
    rows, positions = np.nonzero(chosen)
    originals = input_ids[rows, positions]

    # Drawn for each piece by itself, in whole-word mode too, as the release does.
    draws = rng.random(len(rows))
    random_tokens = rng.integers(0, len(vocabulary), len(rows), dtype=np.int32)
    is_mask = draws < masking.mask_share
    is_random = draws >= 1 - masking.random_share
    is_random &= ~is_mask  # the shares may miss 1 by a rounding error
    corrupted = input_ids.copy()
    corrupted[rows, positions] = np.where(
        is_mask, vocabulary.mask_id, np.where(is_random, random_tokens, originals)
    )

    shape = (len(input_ids), masking.max_predictions_per_seq)
    slots = np.arange(len(rows)) - np.searchsorted(rows, rows)
    batch = {
        "input_ids": corrupted,
        "masked_lm_positions": np.zeros(shape, np.int32),
        "masked_lm_ids": np.zeros(shape, np.int32),
        "masked_lm_weights": np.zeros(shape, np.float32),
    }
    batch["masked_lm_positions"][rows, slots] = positions
    batch["masked_lm_ids"][rows, slots] = originals
    batch["masked_lm_weights"][rows, slots] = 1.0
    outcomes = is_mask.sum(), (~is_mask & ~is_random).sum(), is_random.sum()
    return batch, np.array(outcomes, np.int64)


def _choose_tokens(candidates, counts, rng):
    """bool [batch, seq_length]: `counts` candidates of each row, any set as likely."""
    # A random number above the position, in one integer: the smallest of a row are its
    # choice, and no two are equal.
    keys = rng.integers(0, 1 << 32, candidates.shape, dtype=np.uint32).astype(np.int64)
    keys = (keys << 16) | np.arange(candidates.shape[1])
    keys[~candidates] = np.iinfo(np.int64).max
    limit = min(int(counts.max()), candidates.shape[1])
    smallest = np.partition(keys, limit - 1, axis=1)[:, :limit]
    smallest.sort(axis=1)
    is_wanted = np.arange(limit) < counts[:, None]
    is_wanted &= smallest != np.iinfo(np.int64).max
    chosen = np.zeros(candidates.shape, bool)
    chosen[np.nonzero(is_wanted)[0], smallest[is_wanted] & 0xFFFF] = True
    return chosen


def _choose_words(candidates, word_starts, counts, rng):
    """bool [batch, seq_length]: whole words in random order, those too long passed over."""
    # Differs from the release: a piece that continues a word cut off in front of it is a
    # word of its own; there it joins the last word of the other side.
    word_starts = candidates & (word_starts | ~np.roll(candidates, 1, axis=1))
    rows, starts = np.nonzero(word_starts)
    # A word ends where the next begins or where no candidate stands; the last column,
    # [SEP] or padding, is never a candidate, so every word has an end in its own row.
    bounds = np.flatnonzero(word_starts | ~candidates)
    flat_starts = rows * candidates.shape[1] + starts
    lengths = bounds[np.searchsorted(bounds, flat_starts) + 1] - flat_starts
    order = np.lexsort((rng.random(len(rows)), rows))
    ranks = np.arange(len(rows)) - np.searchsorted(rows, rows)
    flat_starts, lengths = flat_starts[order], lengths[order]

    taken = np.zeros(len(rows), bool)
    totals = np.zeros(len(candidates), np.int64)
    by_rank = np.argsort(ranks, kind="stable")  # all rows' first words, then all second
    ends = np.cumsum(np.bincount(ranks))
    for words in np.split(by_rank, ends[:-1]):
        fits = totals[rows[words]] + lengths[words] <= counts[rows[words]]
        taken[words] = fits
        totals[rows[words]] += lengths[words] * fits
    chosen = np.zeros(candidates.size, bool)
    lengths = lengths[taken]
    firsts = np.repeat(flat_starts[taken] - np.cumsum(lengths) + lengths, lengths)
    chosen[firsts + np.arange(lengths.sum())] = True
    return chosen.reshape(candidates.shape)

"""Masks batches of rows: 15% of the tokens, 80/10/10, whole words, n-grams.

Or leaves that to training, which draws new masks in every epoch, as in RoBERTa; see
modeling/masks/draw_masks.py.
"""

import numpy as np

from text.instances.instances import Masks, RecordOptions
from text.instances.ngrams import choose_ngrams, ngram_shares
from text.instances.packing import ranks
from text.records.schema import Feature
from text.tokenizers.vocabulary import Vocabulary


class StaticMasks(Masks):
    """Positions, originals and weights of the tokens to predict, and corrupted input.

    Source: google-research/bert@eedf571 create_pretraining_data.py:133-140, 342-415.
    """

    are_drawn = True
    passes_differ = True

    def schema(self) -> tuple[Feature, ...]:
        most, length = self.options.max_predictions_per_seq, self.options.max_seq_length
        return (
            Feature("masked_lm_positions", "int64", most, length),
            Feature("masked_lm_ids", "int64", most, "vocab_size"),
            Feature("masked_lm_weights", "float32", most, 2),
        )

    def apply(self, batch, candidates, word_starts, vocabulary, rng):
        lengths = batch["input_mask"].sum(axis=1, dtype=np.int64)
        masked, outcomes = mask(
            batch["input_ids"],
            candidates,
            lengths,
            word_starts,
            self.options,
            vocabulary,
            rng,
        )
        most = self.options.max_predictions_per_seq
        wanted = prediction_counts(lengths, self.options.masked_lm_prob)
        return masked, {
            "predictions": int(outcomes.sum()),
            "predictions_to_mask": int(outcomes[0]),
            "predictions_kept": int(outcomes[1]),
            "predictions_to_random": int(outcomes[2]),
            "predictions_over_maximum": int(np.maximum(wanted - most, 0).sum()),
        }


class MasksInTraining(Masks):
    """Where words begin, if whole words are to be masked; otherwise nothing."""

    are_drawn = False
    passes_differ = False

    def schema(self) -> tuple[Feature, ...]:
        if not self.options.do_whole_word_mask:
            return ()
        return (Feature("word_starts", "int64", self.options.max_seq_length, 2),)

    def apply(self, batch, candidates, word_starts, vocabulary, rng):
        if word_starts is None:
            return {}, {}
        starts = _word_starts(candidates, word_starts)
        return {"word_starts": starts.view(np.uint8)}, {}


def prediction_counts(lengths: np.ndarray, masked_lm_prob: float) -> np.ndarray:
    """How many tokens of a row to predict, before max_predictions_per_seq caps it.

    Args:
        lengths: int [batch], tokens of each row with [CLS] and [SEP].
    Returns:
        int64 [batch], at least 1; halves round to even, as in Python's round.
    Source: google-research/bert@eedf571 create_pretraining_data.py:369-370.
    """
    return np.maximum(1, np.rint(lengths * masked_lm_prob)).astype(np.int64)


def mask(
    input_ids: np.ndarray,
    candidates: np.ndarray,
    lengths: np.ndarray,
    word_starts: np.ndarray | None,
    options: RecordOptions,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Chooses the tokens to predict and corrupts them.

    Args:
        input_ids: int32 [batch, seq_length]; not modified.
        candidates: bool [batch, seq_length], true where a token may be chosen.
        lengths: int [batch], tokens of each row with [CLS] and [SEP].
        word_starts: bool [batch, seq_length], true at the first piece of each word;
            required to mask whole words, otherwise unused.
        rng: the only source of randomness.
    Returns:
        dict of `input_ids` int32 [batch, seq_length] with the chosen tokens corrupted,
        `masked_lm_positions`, `masked_lm_ids` int32 and `masked_lm_weights` float32, each
        [batch, max_predictions_per_seq], by ascending position, padded with 0;
        and int64 [3]: how many became [MASK], stayed, became a random token.
    Source: google-research/bert@eedf571 create_pretraining_data.py:342-415; for n-grams,
        google-research/albert@b772393 create_pretraining_data.py:455-538.
    """
    chosen = _choose(candidates, lengths, word_starts, options, rng)
    places = np.flatnonzero(chosen)  # much faster than np.nonzero of two axes
    rows, positions = np.divmod(places, chosen.shape[1])
    originals = input_ids.ravel()[places]

    # Drawn separately for each piece, even in whole-word mode, as in the release.
    draws = rng.random(len(rows))
    random_tokens = rng.integers(0, len(vocabulary), len(rows), dtype=np.int32)
    is_mask = draws < options.mask_share
    # The shares may miss 1 by a rounding error.
    is_random = ~is_mask & (draws >= 1 - options.random_share)
    corrupted = input_ids.copy()
    corrupted.ravel()[places] = np.where(
        is_mask, vocabulary.mask_id, np.where(is_random, random_tokens, originals)
    )
    shape = len(input_ids), options.max_predictions_per_seq
    batch = {
        "input_ids": corrupted,
        "masked_lm_positions": np.zeros(shape, np.int32),
        "masked_lm_ids": np.zeros(shape, np.int32),
        "masked_lm_weights": np.zeros(shape, np.float32),
    }
    slots = rows, ranks(rows, len(input_ids))
    batch["masked_lm_positions"][slots] = positions
    batch["masked_lm_ids"][slots] = originals
    batch["masked_lm_weights"][slots] = 1.0
    outcomes = is_mask.sum(), (~is_mask & ~is_random).sum(), is_random.sum()
    return batch, np.array(outcomes, np.int64)


def _choose(candidates, lengths, word_starts, options, rng):
    """bool [batch, seq_length]: the tokens to predict."""
    counts = np.minimum(
        prediction_counts(lengths, options.masked_lm_prob),
        options.max_predictions_per_seq,
    )
    if options.ngram > 1:
        starts = candidates
        if options.do_whole_word_mask:
            starts = _word_starts(candidates, word_starts)
        shares = ngram_shares(options.ngram)
        return choose_ngrams(candidates, starts, counts, shares, rng)
    if options.do_whole_word_mask:
        return _choose_words(candidates, word_starts, counts, rng)
    return _choose_tokens(candidates, counts, rng)


def _choose_tokens(candidates, counts, rng):
    """bool [batch, seq_length]: `counts` candidates per row, all sets equally likely."""
    # One integer has random high bits and the position in its low bits: a row's smallest
    # are chosen, and no two are equal.
    keys = rng.integers(0, 1 << 32, candidates.shape, dtype=np.uint32).astype(np.int64)
    keys <<= 16
    keys |= np.arange(candidates.shape[1])
    keys = np.where(candidates, keys, np.iinfo(np.int64).max)
    limit = min(int(counts.max()), candidates.shape[1])
    smallest = np.partition(keys, limit - 1, axis=1)[:, :limit]
    smallest.sort(axis=1)
    is_wanted = np.arange(limit) < counts[:, None]
    is_wanted &= smallest != np.iinfo(np.int64).max
    chosen = np.zeros(candidates.shape, bool)
    rows = np.flatnonzero(is_wanted) // limit
    chosen[rows, smallest[is_wanted] & 0xFFFF] = True
    return chosen


def _word_starts(candidates, word_starts):
    """bool [batch, seq_length]: where each word among the candidates begins."""
    # Differs from the release: a piece whose word was cut off before it is its own word;
    # there, it joins the last word of the other side.
    return candidates & (word_starts | ~np.roll(candidates, 1, axis=1))


def _choose_words(candidates, word_starts, counts, rng):
    """bool [batch, seq_length]: whole words in random order, skipping those too long."""
    word_starts = _word_starts(candidates, word_starts)
    rows, starts = np.nonzero(word_starts)
    # A word ends at the next word or at a token that is not a candidate. The last column,
    # [SEP] or padding, is never a candidate, so every word ends in its own row.
    bounds = np.flatnonzero(word_starts | ~candidates)
    flat_starts = rows * candidates.shape[1] + starts
    lengths = bounds[np.searchsorted(bounds, flat_starts) + 1] - flat_starts
    order = np.lexsort((rng.random(len(rows)), rows))
    order_in_row = ranks(rows, len(candidates))
    flat_starts, lengths = flat_starts[order], lengths[order]

    is_taken = np.zeros(len(rows), bool)
    totals = np.zeros(len(candidates), np.int64)
    # All rows' first words, then all second ones.
    by_rank = np.argsort(order_in_row, kind="stable")
    ends = np.cumsum(np.bincount(order_in_row))
    for words in np.split(by_rank, ends[:-1]):
        fits = totals[rows[words]] + lengths[words] <= counts[rows[words]]
        is_taken[words] = fits
        totals[rows[words]] += lengths[words] * fits
    chosen = np.zeros(candidates.size, bool)
    lengths = lengths[is_taken]
    firsts = np.repeat(flat_starts[is_taken] - np.cumsum(lengths) + lengths, lengths)
    chosen[firsts + np.arange(lengths.sum())] = True
    return chosen.reshape(candidates.shape)

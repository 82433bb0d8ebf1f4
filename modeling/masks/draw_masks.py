"""Draws new masks on the device in every epoch: RoBERTa's dynamic masking.

They depend on the run's seed and the number of a row in the run, so that replicas,
micro-batches and resumed runs see the masks that one uninterrupted device would.
"""

from collections.abc import Sequence

import numpy as np
from keras import ops

from modeling import row_random
from modeling.masks import mask_ngrams

_CHOICE, _OUTCOME, _TOKEN, _LENGTH = range(4)  # what random numbers are for


class DrawMasks:
    """A step before the network: masks tokens of records that hold the text whole.

    The rules are those of text/instances/masking.py: which tokens may be chosen, how many,
    whole words, n-grams, 80/10/10.

    Args:
        counts: int [longest row + 1]: how many tokens to predict in a row of each length,
            before max_predictions_per_seq caps it.
        max_predictions_per_seq: the most predictions per row, and their array length.
        mask_share, random_share: shares of the chosen tokens that become [MASK] or a
            random token; the rest stay.
        whole_words: choose all pieces of a word or none; records then have word_starts.
        ngram_shares: the chance of a run of 1, 2, ... words, or tokens without
            `whole_words`; one that touches another is skipped.
        vocab_size: random ids are below it.
        mask_id: of [MASK].
        special_ids: of [CLS] and [SEP], which are never chosen.
    """

    def __init__(
        self,
        *,
        counts: Sequence[int],
        max_predictions_per_seq: int,
        mask_share: float,
        random_share: float,
        whole_words: bool,
        vocab_size: int,
        mask_id: int,
        special_ids: Sequence[int],
        ngram_shares: Sequence[float] = (1.0,),
    ):
        self.features = ("word_starts",) if whole_words else ()
        self._counts = np.minimum(counts, max_predictions_per_seq).astype(np.int32)
        self._most = max_predictions_per_seq
        self._mask_share, self._random_share = mask_share, random_share
        self._whole_words = whole_words
        self._ngram_shares = tuple(map(float, ngram_shares))
        self._vocab_size, self._mask_id = vocab_size, mask_id
        self._special_ids = tuple(special_ids)

    def __call__(self, batch, seed) -> dict:
        """Adds masks to a batch.

        Args:
            batch: dict of int32 tensors: input_ids, input_mask [b, s], row_numbers [b],
                and word_starts [b, s] for whole words.
        Returns:
            the batch with input_ids corrupted; masked_lm_positions, masked_lm_ids int32
            and masked_lm_weights float32, each [b, max_predictions_per_seq], in order of
            position, padded with 0.
        """
        ids, rows = batch["input_ids"], batch["row_numbers"]
        width = ids.shape[1]
        candidates = batch["input_mask"] > 0
        for special in self._special_ids:
            candidates = ops.logical_and(candidates, ids != special)
        counts = ops.take(self._counts, ops.sum(batch["input_mask"], axis=1), axis=0)
        keys = row_random.uniform(seed, _CHOICE, rows, width)
        starts = candidates
        if self._whole_words:
            starts = ops.logical_and(candidates, batch["word_starts"] > 0)
        if len(self._ngram_shares) > 1:
            draws = row_random.uniform(seed, _LENGTH, rows, width)
            chosen = mask_ngrams.choose(
                keys, draws, candidates, starts, counts, self._ngram_shares
            )
        elif self._whole_words:
            chosen = _choose_words(keys, candidates, starts, counts)
        else:
            keys = ops.where(candidates, keys, 2.0)
            chosen = _ranks(ops.argsort(keys, axis=1)) < counts[:, None]
            chosen = ops.logical_and(chosen, candidates)
        return {
            **batch,
            "input_ids": ops.where(chosen, self._corrupt(ids, rows, seed), ids),
            **self.predictions(ids, chosen),
        }

    def predictions(self, ids, chosen) -> dict:
        """The features of these tokens, bool [b, s]; see `__call__`."""
        width = ids.shape[1]
        positions = ops.sort(ops.where(chosen, ops.arange(width), width), axis=1)
        positions = fit_columns(positions, self._most, width)
        is_prediction = positions < width
        positions = ops.where(is_prediction, positions, 0)
        originals = ops.take_along_axis(ids, positions, axis=1)
        return {
            "masked_lm_positions": ops.cast(positions, "int32"),
            "masked_lm_ids": ops.where(is_prediction, originals, 0),
            "masked_lm_weights": ops.cast(is_prediction, "float32"),
        }

    def _corrupt(self, ids, rows, seed):
        """What replaces each token if it is chosen."""
        width = ids.shape[1]
        draws = row_random.uniform(seed, _OUTCOME, rows, width)
        bits = row_random.bits(seed, _TOKEN, rows, width)
        # 31 bits, because not every device divides unsigned integers.
        bits = ops.cast(ops.right_shift(bits, ops.cast(1, "uint32")), "int32")
        tokens = ops.where(
            draws >= 1 - self._random_share, ops.mod(bits, self._vocab_size), ids
        )
        return ops.where(draws < self._mask_share, self._mask_id, tokens)


def _ranks(order):
    """The place of each column in an order of columns: int [b, s]."""
    return ops.argsort(order, axis=1)


def fit_columns(values, width, filler):
    """The first `width` columns, padded with `filler` if there are fewer."""
    missing = max(0, width - values.shape[1])
    return ops.pad(values[:, :width], ((0, 0), (0, missing)), constant_values=filler)


def _choose_words(keys, candidates, starts, counts):
    """bool [b, s]: takes whole words in random order, skipping those that are too long.

    Args:
        keys: float32 [b, s], random; those of their starts order the words.
        candidates, starts: bool [b, s]; each run of candidates begins with a start.
        counts: int32 [b], the most tokens to choose.
    """
    width = keys.shape[1]
    columns = ops.arange(width)
    # A word ends at the start of the next, or at a token that is not a candidate.
    is_bound = ops.logical_or(starts, ops.logical_not(candidates))
    bounds = ops.sort(ops.where(is_bound, columns, width), axis=1)
    bounds = fit_columns(bounds, width + 1, width)
    number = ops.cumsum(ops.cast(is_bound, "int32"), axis=1) - 1
    ends = ops.take_along_axis(bounds, number + 1, axis=1)
    lengths = ops.where(starts, ends - columns, width + 1)  # not a word: never fits
    order = ops.argsort(ops.where(starts, keys, 2.0), axis=1)

    def take(total, length):
        fits = ops.cast(total + length <= counts, "int32")
        return total + fits * length, fits

    in_order = ops.transpose(ops.take_along_axis(lengths, order, axis=1))
    _, taken = ops.scan(take, ops.zeros_like(counts), in_order)
    taken = ops.take_along_axis(ops.transpose(taken), _ranks(order), axis=1)
    # Back from a word's start to all of its pieces.
    own_start = ops.take_along_axis(bounds, ops.maximum(number, 0), axis=1)
    own_start = ops.minimum(own_start, width - 1)
    chosen = ops.take_along_axis(taken, own_start, axis=1) > 0
    return ops.logical_and(candidates, chosen)

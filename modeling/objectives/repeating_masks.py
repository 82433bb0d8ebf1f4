"""ELECTRA's masks as its release draws them: with replacement."""

from keras import ops

from modeling import row_random
from modeling.objectives.dynamic_masks import DynamicMasks

_POSITION, _OUTCOME = 17, 18  # what random numbers are for


def update(ids, positions, tokens):
    """Writes tokens at positions, but never at position 0, which empty slots name.

    Args:
        ids: int32 [b, s].
        positions, tokens: int32 [b, p].
    Returns:
        int32 [b, s]. Several tokens for one position give the mean of their ids, rounded
        down, as in the release.
    Source: google-research/electra@8a46635 pretrain/pretrain_helpers.py, scatter_update.
    """
    places = ops.arange(1, ops.shape(ids)[1], dtype="int32")
    hits = ops.cast(positions[..., None] == places, "int32")  # [b, p, s - 1]
    counts = ops.sum(hits, axis=1)
    sums = ops.sum(hits * tokens[..., None], axis=1)
    means = ops.floor_divide(sums, ops.maximum(counts, 1))
    rest = ops.where(counts > 0, means, ids[:, 1:])
    return ops.concatenate([ids[:, :1], rest], axis=1)


class RepeatingMasks(DynamicMasks):
    """Draws each position anew, so that some are drawn twice and count twice.

    The arguments are those of `DynamicMasks`, without whole words or random tokens.

    Source: google-research/electra@8a46635 pretrain/pretrain_helpers.py, mask.
    """

    @classmethod
    def refusal(cls, objective, recipe):
        if not recipe.do_whole_word_mask and recipe.ngram == 1:
            return None
        return (
            "these records ask for masks of whole words or n-grams, but "
            "--repeat_positions draws single tokens; remove it, or write records "
            "without --do_whole_word_mask and --ngram"
        )

    def prepare(self, batch, seed) -> dict:
        """Like `DynamicMasks.prepare`, but in the order of the drawings."""
        rows, width = batch["row_numbers"], self._most
        candidates = batch["input_mask"] > 0
        for special in (*self._special_ids, self._mask_id):
            candidates = ops.logical_and(candidates, batch["input_ids"] != special)
        seen = ops.cumsum(ops.cast(candidates, "int32"), axis=1)
        number = seen[:, -1:]
        draws = row_random.uniform(seed, _POSITION, rows, width)
        drawn = ops.cast(draws * ops.cast(number, "float32"), "int32")
        drawn = ops.minimum(drawn, number - 1)  # the product is rounded
        passed = ops.cast(seen[:, None] <= drawn[..., None], "int32")
        positions = ops.where(number > 0, ops.sum(passed, axis=-1), 0)
        outcomes = row_random.uniform(seed, _OUTCOME, rows, width)
        prepared = self.masked(batch, positions, outcomes)
        return self.objective.prepare(prepared, seed)

    def masked(self, batch, positions, outcomes) -> dict:
        """The batch with masks at drawn positions, of which short rows use the first.

        Args:
            positions: int32 [b, p]; 0 if a row has no token to mask.
            outcomes: float32 [b, p], below mask_share for a token that becomes [MASK].
        """
        ids = batch["input_ids"]
        counts = ops.take(self._counts, ops.sum(batch["input_mask"], axis=1), axis=0)
        slots = ops.arange(self._most, dtype="int32")
        used = ops.logical_and(slots < counts[:, None], positions > 0)
        positions = ops.where(used, positions, 0)
        originals = ops.take_along_axis(ids, positions, axis=1)
        hidden = ops.where(outcomes < self._mask_share, positions, 0)
        masks = ops.zeros_like(positions) + self._mask_id
        return {
            **batch,
            "input_ids": update(ids, hidden, masks),
            "masked_lm_positions": positions,
            "masked_lm_ids": ops.where(used, originals, 0),
            "masked_lm_weights": ops.cast(used, "float32"),
        }

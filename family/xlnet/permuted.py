"""Spans of tokens, predicted in a random order of the row's tokens: XLNet's objective.

Axes: b batch, s seq_length, p predictions, h hidden_size, v vocab_size.
"""

import numpy as np
from keras import ops

from errors import UserError
from family.xlnet import mask_spans
from modeling import layers, row_random
from modeling.masks.draw_masks import DrawMasks
from modeling.objectives.masked_lm import MaskedLM, MaskedLMModel, masked_tokens
from modeling.objectives.objective import Needs, RowState, perplexity_of

_LENGTH, _OFFSET, _FILL, _ORDER = range(19, 23)  # what random numbers are for
_LONGEST = 5  # span, in the release


class PermutedModel(MaskedLMModel):
    """An encoder of two streams, with the table of words as its head.

    Args:
        mem_len, reuse_len: what to remember of a batch that has a memory; see
            `XlnetEncoder.encode`.
    """

    def __init__(self, config, mem_len: int = 0, reuse_len: int = 0, **settings):
        super().__init__(config, **settings)
        self.mem_len, self.reuse_len = mem_len, reuse_len

    @property
    def encoders(self):
        return self.encoder, self.encoder  # once for each stream

    def leave_pooler(self) -> None:
        """Keeps the summary as it is, which is for heads; the release has none here."""
        for variable in self.encoder.stages[-1]:
            variable.trainable = False

    def encode(self, batch, dropouts=layers.no_dropout, return_all=False):
        """See `MaskedLMModel.encode`; for the keys of the batch, `DrawSpans`."""
        settings = {}
        if "memory" in batch:
            settings = {"mem_len": self.mem_len, "reuse_len": self.reuse_len}
        targets = ops.cast(batch["masked_lm_weights"], "float32")
        width = batch["input_ids"].shape[1]
        mapping = ops.one_hot(batch["masked_lm_positions"], width) * targets[..., None]
        names = ("input_ids", "input_mask", "segment_ids")
        inputs = {name: batch[name] for name in names} | {
            "hidden_pairs": hidden_pairs(batch["query_places"], batch["key_places"]),
            "target_mapping": mapping,
            "input_q": ops.sum(mapping, axis=1),
        }
        if "memory" in batch:
            inputs["memory"] = batch["memory"]
        return self.encoder(
            inputs, dropouts=dropouts, return_all=return_all, **settings
        )

    def answer(self, encoded, batch, dropouts=layers.no_dropout):
        """-> dict of permuted_lm_logits [b, p, v], float32, and the content stream; and
        the memory, if the batch has one.
        """
        del dropouts, batch
        table = ops.cast(self.encoder.word_embeddings, encoded["query_output"].dtype)
        logits = ops.matmul(encoded["query_output"], ops.transpose(table))
        bias = ops.copy(self.masked_lm.output_bias)
        kept = ("sequence_output", "memory")
        return {
            "permuted_lm_logits": layers.add_wide(logits, bias),
            **{
                name: ops.cast(encoded[name], "float32")
                for name in kept
                if name in encoded
            },
        }


def hidden_pairs(query_places, key_places):
    """int [b, s (from), s (to)]: 1 where a position does not see another.

    Args:
        query_places, key_places: see `places`.
    """
    hidden = query_places[:, :, None] <= key_places[:, None, :]
    return ops.cast(hidden, "int32")


def places(order, chosen, specials, parts):
    """When each token is predicted, as numbers to compare.

    A token sees those whose key is below its query. What is not to be predicted comes
    first, and sees only what is not either. [CLS] and [SEP] are part of the order, but see
    themselves. What is to be predicted does not. A part sees all of those before it.

    Args:
        order: int32 [b, s], the place of each token in the order of its part.
        chosen: bool [b, s].
        specials: bool [b, s], [CLS] and [SEP].
        parts: int32 [s], the number of each token's part, in ascending order.
    Returns:
        int32 [b, s]: of queries and of keys.
    Source: zihangdai/xlnet@bbaa3a6 data_utils.py, _local_perm and parser in get_dataset.
    """
    plain = ops.logical_not(ops.logical_or(chosen, specials))
    keys = ops.where(plain, -1, order)
    targets = ops.logical_and(chosen, ops.logical_not(specials))
    queries = ops.where(targets, keys, keys + 1)
    apart = (order.shape[1] + 2) * parts[None]
    return queries + apart, keys + apart


class DrawSpans(DrawMasks):
    """A step before the network: draws spans and the order of their prediction.

    How many tokens are predicted follows the flags of the records, as for other masks.
    With whole words, records have word_starts, and a span begins at one.

    Args:
        alpha, beta: a span of n has a context of n * alpha // beta tokens.
        reuse_len: the first tokens of a row, a part that does not see the rest, and
            that the rest sees whole; 0: a row has one part.
        settings: see `DrawMasks`.
    """

    def __init__(self, *, alpha: int, beta: int, reuse_len: int = 0, **settings):
        super().__init__(**settings)
        self._alpha, self._beta, self._reuse_len = alpha, beta, reuse_len

    def __call__(self, batch, seed) -> dict:
        """Adds to a batch what to predict and in which order.

        Args:
            batch: dict of int32 tensors: input_ids, input_mask [b, s], row_numbers [b],
                and word_starts [b, s] for whole words.
        Returns:
            the batch with query_places and key_places, see `places`; and
            masked_lm_positions, masked_lm_ids int32 and masked_lm_weights float32, each
            [b, max_predictions_per_seq].
        """
        ids, is_token = batch["input_ids"], batch["input_mask"] > 0
        specials = ops.zeros_like(is_token)
        for special in self._special_ids:
            specials = ops.logical_or(specials, ids == special)
        specials = ops.logical_and(specials, is_token)
        starts = ops.logical_and(is_token, ops.logical_not(specials))
        if "word_starts" in batch:
            starts = ops.logical_and(starts, batch["word_starts"] > 0)
        width = ids.shape[1]
        draws = [
            row_random.uniform(seed, purpose, batch["row_numbers"], width)
            for purpose in (_LENGTH, _OFFSET, _FILL, _ORDER)
        ]
        goals = ops.take(self._counts, ops.sum(batch["input_mask"], axis=1), axis=0)
        bounds = self._parts(width)
        goals = [goals] if len(bounds) == 1 else [goals - goals // 2, goals // 2]
        parts = []
        for goal, (begin, end) in zip(goals, bounds, strict=True):
            arrays = (is_token, specials, starts, *draws)
            parts.append(self._draw_part(goal, *(x[:, begin:end] for x in arrays)))
        chosen, order = (
            ops.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True)
        )
        return {**batch, **self.make_inputs(ids, order, chosen, specials)}

    def make_inputs(self, ids, order, chosen, specials) -> dict:
        """What it adds, from what was drawn; arguments as for `places`."""
        width = ids.shape[1]
        parts = np.concatenate(
            [
                np.full(end - begin, n)
                for n, (begin, end) in enumerate(self._parts(width))
            ]
        )
        queries, keys = places(order, chosen, specials, parts.astype(np.int32))
        targets = ops.logical_and(chosen, ops.logical_not(specials))
        return {
            "query_places": queries,
            "key_places": keys,
            **self.predictions(ids, targets),
        }

    def _parts(self, width):
        """Where the parts of a row begin and end."""
        first = self._reuse_len
        return [(0, first), (first, width)] if first else [(0, width)]

    def _draw_part(
        self, goals, is_token, specials, starts, length, offset, fill, order
    ):
        """bool [b, s]: what is chosen in a part; and int32 [b, s]: its order."""
        width = is_token.shape[1]
        shares = self._ngram_shares
        if len(shares) == 1:  # the flags of the records do not say
            shares = ngram_shares(_LONGEST)
        steps = mask_spans.most_steps(width, self._alpha, self._beta)
        chosen = mask_spans.draw(
            *(length[:, :steps], offset[:, :steps]),
            ops.logical_or(starts, specials),
            ops.sum(ops.cast(is_token, "int32"), axis=1),
            goals,
            shares=shares,
            alpha=self._alpha,
            beta=self._beta,
        )
        chosen = mask_spans.fill(fill, chosen, is_token, goals)
        return chosen, ops.cast(ops.argsort(order, axis=1), "int32")


def ngram_shares(longest: int) -> tuple[float, ...]:
    """The chance of a span of 1, 2, ...: the shorter, the likelier."""
    total = sum(1.0 / n for n in range(1, longest + 1))
    return tuple(1.0 / n / total for n in range(1, longest + 1))


class Permuted(MaskedLM):
    """The tokens of spans, each from those before it in a random order of the row.

    A batch contains what `DrawSpans` adds, and optionally is_real_example [b].

    Args:
        mask_alpha, mask_beta: a span of n has a context of n * alpha // beta tokens.
        mem_len: how many positions of the rows before a row are remembered; for records
            that continue each other. At first they are zeros. Evaluations have none.
        reuse_len: of the records; see `DrawSpans`.
    Source: arXiv:1906.08237; zihangdai/xlnet@bbaa3a6 function_builder.py,
    two_stream_loss.
    """

    loss_weights = {"permuted_lm_loss": 1.0}
    metric_names = ("permuted_lm_accuracy",)
    needs = Needs(masks="drawn", rows=("reuse_len",))
    exporter = comparison = None
    summary = perplexity_of("permuted_lm_loss")

    def __init__(
        self,
        mask_alpha: int = 6,
        mask_beta: int = 1,
        mem_len: int = 0,
        reuse_len: int = 0,
    ):
        self._memory = {"mem_len": mem_len, "reuse_len": reuse_len}
        self._spans = {"alpha": mask_alpha, "beta": mask_beta, "reuse_len": reuse_len}
        if mem_len:
            self.state = RowState(self._shapes, "mem_len")

    def mask_step(self, **settings) -> DrawSpans:
        return DrawSpans(**self._spans, **settings)

    def check(self, config) -> None:
        super().check(config)
        if "query_stream" not in config.capabilities:
            raise UserError(
                f"the architecture {config.architecture!r} has no second stream, which "
                'predicts a token without seeing it; use "xlnet"'
            )

    def _shapes(self, config):
        sizes = config.num_hidden_layers, self._memory["mem_len"], config.hidden_size
        return {"memory": sizes}

    def network(self, config, *, seed=0, dtype="float32") -> PermutedModel:
        model = PermutedModel(config, **self._memory, seed=seed, dtype=dtype)
        model.leave_pooler()
        return model

    def targets(self, batch) -> dict:
        return {"permuted_lm": masked_tokens(batch)}

"""Spans of tokens, predicted in a random order of the row's tokens: XLNet's objective.

Axes: b batch, s seq_length, p predictions, h hidden_size, v vocab_size.
"""

import math

import numpy as np
from keras import ops

from modeling import layers, row_random
from modeling.masks import mask_spans
from modeling.objectives.dynamic_masks import DynamicMasks
from modeling.objectives.masked_lm import MaskedLM, MaskedLMModel

_LENGTH, _OFFSET, _FILL, _ORDER = range(19, 23)  # what random numbers are for
_LONGEST = 5  # span, in the release


class PermutedModel(MaskedLMModel):
    """An encoder of two streams, with the table of words as its head.

    Attributes:
        mem_len, reuse_len: what to remember of a batch that has a memory; see
            `XlnetEncoder.call`. Set them.
    """

    mem_len = reuse_len = 0

    def leave_pooler(self) -> None:
        """Keeps the summary as it is, which is for heads; the release has none here."""
        for variable in self.encoder.stages[-1]:
            variable.trainable = False

    def encode(self, batch, dropouts=layers.no_dropout, return_all=False):
        """See `MaskedLMModel.encode`; for the keys of the batch, `PermutedSpans`."""
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
        more = ("memory", "is_backward")
        inputs |= {name: batch[name] for name in more if name in batch}
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


class PermutedSpans(DynamicMasks):
    """Draws spans and the order of their prediction, for `Permuted`.

    How many tokens are predicted follows the flags of the records, as for other masks.
    With whole words, records have word_starts, and a span begins at one. Records may also
    have is_masked, as the release's do: then these tokens are predicted.

    Args:
        reuse_len: the first tokens of a row, a part that does not see the rest, and of
            which the rest sees everything; 0: a row has one part.
        rows_per_batch: of records in whose batches the second half of the rows is text in
            reverse order; 0 for others.
        settings: see `DynamicMasks`.
    """

    def __init__(self, objective, *, reuse_len=0, rows_per_batch=0, **settings):
        super().__init__(objective, **settings)
        self._reuse_len, self._rows_per_batch = reuse_len, rows_per_batch

    @classmethod
    def made_for(cls, objective, recipe, **settings):
        rows = recipe.make()
        if rows.in_order:
            settings["reuse_len"] = rows.reuse
        if rows.has_backward_half:
            settings["rows_per_batch"] = recipe.rows_per_batch
        return cls(objective, **settings)

    @classmethod
    def refusal(cls, objective, recipe) -> str | None:
        rows, length = recipe.make(), recipe.max_seq_length
        first = rows.reuse if rows.in_order else 0
        for part in filter(None, (first, length - first)):
            if objective.perm_size and part % objective.perm_size:
                return (
                    f"--perm_size={objective.perm_size}: must divide the {part} tokens of "
                    "a row, or of its parts, evenly"
                )
        if objective.mem_len and not rows.in_order:
            return (
                f"--mem_len={objective.mem_len}: is for records of which each row "
                "continues that of the batch before; write them with "
                "--instances=contiguous, or leave the flag out"
            )
        return None

    def network(self, config, *, seed=0, dtype="float32"):
        model = super().network(config, seed=seed, dtype=dtype)
        model.mem_len, model.reuse_len = self.objective.mem_len, self._reuse_len
        return model

    def prepare(self, batch, seed) -> dict:
        """Adds to a batch what to predict and in which order.

        Args:
            batch: dict of int32 tensors: input_ids, input_mask [b, s], row_numbers [b],
                and word_starts [b, s] for whole words, or is_masked [b, s].
        Returns:
            the batch with query_places and key_places, see `places`; and
            masked_lm_positions, masked_lm_ids int32 and masked_lm_weights float32, each
            [b, max_predictions_per_seq]; and is_backward [b] for records that have such
            rows.
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
        found = []
        for goal, (begin, end) in zip(goals, bounds, strict=True):
            arrays = (is_token, specials, starts, *draws)
            found.append(self._drawn(goal, *(x[:, begin:end] for x in arrays)))
        chosen, order = (
            ops.concatenate(arrays, axis=1) for arrays in zip(*found, strict=True)
        )
        if "is_masked" in batch:
            chosen = batch["is_masked"] > 0
        prepared = {**batch, **self.arranged(ids, order, chosen, specials)}
        if self._rows_per_batch:
            place = ops.mod(batch["row_numbers"], self._rows_per_batch)
            is_backward = place >= self._rows_per_batch // 2
            prepared["is_backward"] = ops.cast(is_backward, "int32")
        return self.objective.prepare(prepared, seed)

    def arranged(self, ids, order, chosen, specials) -> dict:
        """What `prepare` adds, from what was drawn; arguments as for `places`."""
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

    def _drawn(self, goals, is_token, specials, starts, length, offset, fill, order):
        """bool [b, s]: what is chosen in a part; and int32 [b, s]: its order."""
        objective, width = self.objective, is_token.shape[1]
        released = objective.released_spans
        shares = self._ngram_shares
        if len(shares) == 1:  # the flags of the records do not say
            shares = ngram_shares(_LONGEST)
        steps = mask_spans.most_steps(width, objective.mask_alpha, objective.mask_beta)
        chosen = mask_spans.draw(
            *(length[:, :steps], offset[:, :steps]),
            ops.logical_or(starts, specials) if released else starts,
            specials,
            ops.sum(ops.cast(is_token, "int32"), axis=1),
            goals,
            shares=shares,
            alpha=objective.mask_alpha,
            beta=objective.mask_beta,
            whole_words=not released,
        )
        candidates = is_token
        if not released:
            candidates = ops.logical_and(is_token, ops.logical_not(specials))
        chosen = mask_spans.fill(fill, chosen, candidates, goals)
        size = objective.perm_size or width
        shuffle = ops.cast(ops.argsort(order[:, :size], axis=1), "int32")
        return chosen, in_blocks(shuffle, width)


def in_blocks(shuffle, width):
    """Repeats an order: int32 [b, n] -> [b, s], one block after the other."""
    size = shuffle.shape[1]
    blocks = np.repeat(np.arange(0, width, size, dtype=np.int32), size)
    return ops.tile(shuffle, (1, width // size)) + blocks[None]


def ngram_shares(longest: int) -> tuple[float, ...]:
    """The chance of a span of 1, 2, ...: the shorter, the likelier."""
    total = sum(1.0 / n for n in range(1, longest + 1))
    return tuple(1.0 / n / total for n in range(1, longest + 1))


class Permuted(MaskedLM):
    """The tokens of spans, each from those before it in a random order of the row.

    A batch contains what `PermutedSpans` adds, and optionally is_real_example [b].

    Args:
        released_spans: choose spans as the release does; see `spans.draw`. They have n
            tokens and may end within a word, and [CLS] and [SEP] may be chosen, which then
            count as predictions without a loss. If not, they have n whole words, and
            only tokens of the text are chosen.
        mask_alpha, mask_beta: a span of n has a context of n * alpha // beta tokens.
        perm_size: the tokens of a row are permuted in blocks of this many, all of them
            alike; 0 means the whole row, or each of its parts.
        mem_len: how many positions of the rows before a row are remembered; for records
            that continue each other. At first they are zeros. Evaluations have none.
    Source: arXiv:1906.08237; zihangdai/xlnet@bbaa3a6 function_builder.py,
    two_stream_loss.
    """

    loss_weights = {"permuted_lm_loss": 1.0}
    metric_names = ("permuted_lm_accuracy",)
    fits_masked_records = fills_masks = False
    masked_by = PermutedSpans
    compared = ()

    def __init__(
        self,
        released_spans: bool = True,
        mask_alpha: int = 6,
        mask_beta: int = 1,
        perm_size: int = 0,
        mem_len: int = 0,
    ):
        self.released_spans = released_spans
        self.mask_alpha, self.mask_beta = mask_alpha, mask_beta
        self.perm_size, self.mem_len = perm_size, mem_len

    def check(self, config) -> None:
        super().check(config)
        if not config.has_query_stream:
            raise ValueError(
                f"the architecture {config.architecture!r} has no second stream, which "
                'predicts a token without seeing it; use "xlnet"'
            )

    def check_export(self, config) -> None:
        raise ValueError(
            "--objective=permuted has no export: its network fills no masks and continues "
            "no texts; export a fine-tuned model"
        )

    def encoders(self, config):
        return (config, config)  # once for each stream

    def carried(self, config):
        if not self.mem_len:
            return {}
        size = (config.num_hidden_layers, self.mem_len, config.hidden_size)
        return {"memory": size}

    def network(self, config, *, seed=0, dtype="float32") -> PermutedModel:
        model = PermutedModel(config, seed=seed, dtype=dtype)
        model.leave_pooler()
        return model

    def targets(self, batch) -> dict:
        return {"permuted_lm": super().targets(batch)["masked_lm"]}

    def derived(self, values, counts=()) -> dict:
        del counts
        return {"perplexity": math.exp(min(values["permuted_lm_loss"], 700.0))}

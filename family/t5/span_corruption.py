"""Spans of a text, given the rest: the objective with which T5 is pre-trained.

The spans that a row loses follow from the run's seed and the row's number, so that
replicas, micro-batches and resumed runs see those that one uninterrupted device would.

Axes: b batch, s tokens of a row.
"""

import numpy as np
from keras import ops

from family.t5.text_to_text import TextToText
from modeling import row_random
from modeling.masks.draw_masks import fit_columns
from modeling.objectives.objective import Needs, Tokens

_HIDDEN, _KEPT = 32, 33  # what random numbers are for


def noise_counts(lengths, density: float, mean_length: float) -> tuple:
    """How many tokens a row loses, and in how many spans.

    Args:
        lengths: int array, of rows.
        density: the share of its tokens.
        mean_length: of a span.
    Returns:
        two int32 arrays, 0 for rows of fewer than 2 tokens.
    Source: google-research/text-to-text-transfer-transformer@e081111
        t5/data/preprocessors.py, random_spans_noise_mask.
    """
    lengths = np.asarray(lengths)
    tokens = np.rint(lengths.astype(np.float32) * np.float32(density))
    tokens = np.minimum(np.maximum(tokens, 1), lengths - 1)
    spans = np.rint(tokens.astype(np.float32) / np.float32(mean_length))
    # There is something in each span, and something before it.
    spans = np.minimum(np.maximum(spans, 1), np.minimum(tokens, lengths - tokens))
    return tuple(
        np.where(lengths < 2, 0, number).astype(np.int32) for number in (tokens, spans)
    )


class SpanCorruption(TextToText):
    """The spans that a row lacks, each after the sentinel that is in its place.

        row        a b c d e f g h
        inputs     a b <0> e f g <1> END
        targets    <0> c d <1> h END

    A row is the text of a record, without [CLS] and [SEP]; so the ends of documents are
    not marked. Its first token is always in the inputs, its last in the targets.

    Differs from the paper, whose figure has one more sentinel at the end of the targets;
    its code does not.

    Args:
        noise_density: the share of tokens in the targets.
        mean_noise_span_length: tokens per span.
    Source: arXiv:1910.10683, 3.1.4; google-research/text-to-text-transfer-transformer@
        e081111 t5/data/preprocessors.py, span_corruption.
    """

    needs = Needs(rows=("tokens", "width"))

    def __init__(
        self,
        noise_density: float = 0.15,
        mean_noise_span_length: float = 3.0,
        tokens: Tokens | None = None,
        width: int = 0,
    ):
        self._tokens = tokens
        left_out = tokens.left_out if tokens else ()
        # Whatever is left out is at least once in a row.
        self._width = max(width - len(set(left_out)), 1)
        lengths = np.arange(self._width + 1)
        hidden, spans = noise_counts(lengths, noise_density, mean_noise_span_length)
        self._counts = hidden, spans
        self._most = int(hidden.max()), int(spans.max())
        inputs, targets = lengths - hidden + spans + 1, hidden + spans + 1
        self.sizes = int(inputs.max()), int(max(targets.max(), 2))
        if tokens and self._most[1] > len(tokens.sentinels):
            raise ValueError(
                f"rows of {width} tokens lose up to {self._most[1]} spans, but the "
                f"vocabulary has only {len(tokens.sentinels)} tokens that can stand for "
                "one; use shorter rows, a larger mean_noise_span_length, or a vocabulary "
                "with more"
            )

    def prepare(self, batch, seed) -> dict:
        """Turns rows into inputs and targets.

        Args:
            batch: dict of int32 tensors input_ids, input_mask [b, s], row_numbers [b].
        Returns:
            dict of int32 tensors input_ids, input_mask, target_ids, target_mask, whose
            widths are `sizes`, and whatever else has no place for each token.
        """
        tokens = self._tokens
        is_text = batch["input_mask"] > 0
        for id in tokens.left_out:
            is_text = ops.logical_and(is_text, batch["input_ids"] != id)
        text, lengths = _pack(batch["input_ids"], is_text, self._width)
        hidden, spans = (ops.take(numbers, lengths, axis=0) for numbers in self._counts)
        noise = random_spans(
            seed, batch["row_numbers"], lengths, hidden, spans, self._width, self._most
        )
        kept = {
            name: value
            for name, value in batch.items()
            if name not in ("input_ids", "input_mask", "segment_ids", "word_starts")
        }
        inputs, targets = self.sizes
        return {
            **kept,
            **_side("input", text, noise, lengths, tokens, inputs),
            **_side("target", text, ops.logical_not(noise), lengths, tokens, targets),
        }


def random_spans(
    seed: int, rows, lengths, hidden, spans, width: int, most: tuple[int, int]
):
    """The tokens that each row loses; the first is never among them, the last always.

    What is lost and what is kept are each cut into as many parts, with the same chance for
    every way to do so, and the parts alternate.

    Args:
        seed: of the run.
        rows: int tensor [b], numbers of rows.
        lengths: int tensor [b], of these rows; at most `width`.
        hidden, spans: int tensors [b], how many tokens and spans to lose.
        width: of the result.
        most: the largest numbers of both.
    Returns:
        bool tensor [b, width].
    Source: that of `noise_counts`.
    """
    ends_of_kept = _cut(seed, _KEPT, rows, lengths - hidden, spans, width, most[1])
    ends_of_hidden = _cut(seed, _HIDDEN, rows, hidden, spans, most[0], most[1])
    ends = ends_of_kept + ends_of_hidden
    starts = ends_of_kept + ops.pad(ends_of_hidden[:, :-1], ((0, 0), (1, 0)))
    columns = ops.arange(width)
    after, before = columns >= starts[..., None], columns < ends[..., None]
    return ops.any(ops.logical_and(after, before), axis=1)


def _cut(seed, purpose, rows, numbers, parts, width, most):
    """Where the parts end of `numbers` things, at most `width`, in `parts`, at most `most`.

    Returns:
        int32 [b, most]: a number of things, all of them for what has no part.
    """
    keys = row_random.uniform(seed, purpose, rows, width)
    keys = ops.where(ops.arange(width) < numbers[:, None] - 1, keys, 2.0)
    ranks = ops.argsort(ops.argsort(keys, axis=1), axis=1)
    chosen = ranks < parts[:, None] - 1
    ends = ops.where(chosen, ops.arange(1, width + 1), width)
    ends = fit_columns(ops.sort(ends, axis=1), most, width)
    has_next = ops.arange(most) < parts[:, None] - 1
    return ops.cast(ops.where(has_next, ends, numbers[:, None]), "int32")


def corrupt(tokens, hidden, lengths, vocabulary: Tokens, width: int) -> tuple:
    """Rows with a sentinel in place of each span of hidden tokens, and an end.

    Args:
        tokens: int tensor [b, s].
        hidden: bool tensor [b, s].
        lengths: int tensor [b], of the rows.
        width: of the results; longer rows are cut.
    Returns:
        int32 tensors [b, width]: ids, and 1 where there is one.
    Source: google-research/text-to-text-transfer-transformer@e081111
        t5/data/preprocessors.py, noise_span_to_unique_sentinel.
    """
    is_text = ops.arange(tokens.shape[1]) < lengths[:, None]
    hidden = ops.logical_and(hidden, is_text)
    shown = ops.logical_not(hidden)
    after_shown = ops.pad(shown[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    begins = ops.logical_and(hidden, after_shown)
    numbers = ops.cumsum(ops.cast(begins, "int32"), axis=1) - 1
    sentinels = ops.convert_to_tensor(np.array(vocabulary.sentinels, np.int32))
    last = len(vocabulary.sentinels) - 1
    sentinel = ops.take(sentinels, ops.clip(numbers, 0, last), axis=0)
    values = ops.where(begins, sentinel, ops.cast(tokens, "int32"))
    stays = ops.logical_and(is_text, ops.logical_or(shown, begins))
    ids, counts = _pack(values, stays, width - 1)
    ids, counts = ops.pad(ids, ((0, 0), (0, 1))), counts[:, None]
    columns = ops.arange(width)
    ids = ops.where(columns < counts, ids, vocabulary.pad_id)
    ids = ops.where(columns == counts, vocabulary.end_id, ids)
    return ids, ops.cast(columns <= counts, "int32")


def _side(name, *args):
    ids, mask = corrupt(*args)
    return {f"{name}_ids": ids, f"{name}_mask": mask}


def _pack(values, stays, width):
    """The values that stay, without gaps: [b, width], and how many, int32 [b]."""
    columns = values.shape[1]
    places = ops.sort(ops.where(stays, ops.arange(columns), columns), axis=1)
    places = ops.minimum(fit_columns(places, width, columns), columns - 1)
    counts = ops.sum(ops.cast(stays, "int32"), axis=1)
    packed = ops.take_along_axis(values, places, axis=1)
    return packed, ops.minimum(counts, width)

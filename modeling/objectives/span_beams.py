"""Heads for questions that try several starts and ends, and may find no answer.

The end depends on the start. Each is described by a `SpanHead`, as a release has it.

Axes: b batch, s seq_length, h hidden_size, n starts, m ends.
"""

import dataclasses

import keras
from keras import ops

from errors import UserError, setting
from modeling import layers, losses
from modeling.architectures.network import Network
from modeling.architectures.table import make_encoder
from modeling.objectives import tasks
from modeling.objectives.objective import row_weights
from modeling.objectives.span_head import SpanHead

# Finite, as scores are written and compared.
_IMPOSSIBLE = -1e30


class SpanBeams(tasks.Span):
    """Where an answer begins and ends, and whether there is one.

    A batch to train or to evaluate on also has is_impossible, int [b]. Its losses, and the
    accuracy, take the end that follows the given start. Predictions try the best starts,
    and the best ends for each; see `text.tasks.answer_spans.TopSpans`.

    Args:
        head: what a release has.
        num_starts, num_ends: how many to try instead of the release's.
        document_first: whether the text comes before the question, in segment 0.
        cls_last: whether [CLS] is the last token of a row.
    """

    # The end's logits depend on a start, which teacher and student choose themselves.
    comparison = None

    def __init__(
        self,
        head: SpanHead,
        num_starts: int | None = None,
        num_ends: int | None = None,
        *,
        document_first: bool = False,
        cls_last: bool = False,
    ):
        self.rows = _Rows(document_first, cls_last, head.final_sep)
        self.head = dataclasses.replace(
            head,
            num_starts=num_starts or head.num_starts,
            num_ends=num_ends or head.num_ends,
        )

    def check(self, config) -> None:
        super().check(config)
        if self.lstm:
            raise UserError(
                f"this head reads the encoder itself; remove {setting('lstm_layers')} and "
                f"{setting('features')}, or use {setting('span_head', 'independent')}"
            )
        if not config.has_segments:
            raise UserError(
                f"the {config.architecture} does not tell question and text apart, which "
                f"this head needs; use {setting('span_head', 'independent')}"
            )

    def network(self, config, *, seed=0, dtype="float32") -> "_BeamModel":
        return _BeamModel(self.head, self.rows, config, seed=seed, dtype=dtype)

    def losses(self, batch, outputs) -> dict:
        of_span, weight = super().losses(batch, outputs)["loss"]
        impossible = ops.cast(batch["is_impossible"], "bool")
        if self.head.impossible_windows:
            # Of a window with the answer, no token of it is [CLS].
            places = self.rows.cls_places(batch)[:, 0]
            missing = ops.equal(ops.cast(batch["start_positions"], "int32"), places)
            impossible = ops.logical_or(impossible, missing)
        entropy = ops.binary_crossentropy(
            ops.cast(impossible, "float32"),
            outputs["no_answer_logit"],
            from_logits=True,
        )
        of_answer, _ = losses.weighted_sum(entropy, row_weights(batch))
        return {"loss": (of_span + self.head.answer_weight * of_answer, weight)}


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Where the text and [CLS] are; see `SpanBeams`."""

    document_first: bool
    cls_last: bool
    final_sep: bool

    def cls_places(self, batch):
        """int32 [b, 1]"""
        if self.cls_last:
            return ops.max(_places(_mask(batch)), axis=1, keepdims=True)
        return ops.zeros_like(_mask(batch)[:, :1])

    def candidate_places(self, batch):
        """bool [b, s]: the text and [CLS], which stands for no answer."""
        mask = _mask(batch)
        places = ops.arange(ops.shape(mask)[1], dtype="int32")[None]
        segment = 0 if self.document_first else 1
        is_text = ops.logical_and(ops.equal(batch["segment_ids"], segment), mask > 0)
        last = ops.max(ops.where(is_text, places, -1), axis=1, keepdims=True)  # [SEP]
        last = last + 1 if self.final_sep else last
        allowed = ops.logical_and(is_text, places < last)
        return ops.logical_or(allowed, ops.equal(places, self.cls_places(batch)))

    def cls(self, hidden, batch):
        """float32 [b, h]: the vector of [CLS]."""
        if self.cls_last:
            return layers.last_token(hidden, _mask(batch))
        return hidden[:, 0]


def _places(mask):
    """int32 [b, s]: the place of each token; 0 for padding, on either side of them."""
    places = ops.arange(ops.shape(mask)[1], dtype="int32")[None]
    return ops.where(mask > 0, places, 0)


def _mask(batch):
    mask = batch.get("input_mask")
    if mask is None:
        mask = ops.ones_like(batch["input_ids"])
    return ops.cast(mask, "int32")


class _BeamModel(Network):
    """An encoder with such a head, which computes in float32."""

    sequence_outputs = ("start_logits", "end_logits")
    # Two numbers that differ by rounding alone may change places.
    ranked_outputs = ("start_top", "start_top_scores", "end_top", "end_top_scores")

    def __init__(self, head, rows, config, *, seed, dtype):
        super().__init__(name="task", dtype=dtype, autocast=False)
        self.config, self.head, self.rows = config, head, rows
        self.encoder = make_encoder(config, seed=seed, dtype=dtype)
        initializers = layers.weight_initializers(
            config.initializer_range, f"task head {seed}", config.truncated_weights
        )
        width = self.encoder.hidden_size
        units = head.units or width
        hidden = {"units": units, "activation": layers.activation(head.activation)}
        self.start = self._dense("start", width, initializers)
        self.end_hidden = self._dense("end_hidden", 2 * width, initializers, **hidden)
        self.end_norm = None
        if "end_norm" in head.names:
            scope, _, name = head.names["end_norm"].rpartition("/")
            self.end_norm = layers.LayerNorm(config.layer_norm_eps, "float32", name)
            with layers.name_scopes(scope):
                self.end_norm.build((None, units))
        self.end = self._dense("end", units, initializers)
        self.answer_hidden = self._dense(
            "answer_hidden", 2 * width, initializers, **hidden
        )
        self.answer_logit = self._dense(
            "answer", units, initializers, use_bias=head.answer_bias
        )
        self.built = True

    def _dense(self, role, num_inputs, initializers, units=1, **arguments):
        scope, _, name = self.head.names[role].rpartition("/")
        draw = layers.glorot_uniform if self.head.glorot else next
        layer = keras.layers.Dense(
            units,
            kernel_initializer=draw(initializers),
            dtype="float32",
            name=name,
            **arguments,
        )
        # Outside this layer's own name scope, as the released names have none.
        with layers.name_scopes(scope):
            layer.build((None, num_inputs))
        return layer

    def outputs_of(self, batch, dropouts):
        """-> dict of start_logits [b, s] and no_answer_logit [b]; for a batch that has
        start_positions, end_logits [b, s] given those; and except in training, start_top
        int [b, n], start_top_scores [b, n], end_top int [b, n, m], end_top_scores
        [b, n, m], best first. Impossible places have very low scores.
        """
        hidden = self.encoder(batch, dropouts=dropouts)["sequence_output"]
        hidden = ops.cast(hidden, "float32")
        allowed = self.rows.candidate_places(batch)
        start = ops.where(allowed, self.start(hidden)[..., 0], _IMPOSSIBLE)
        outputs = {
            "start_logits": start,
            "no_answer_logit": self._no_answer(
                hidden, self.rows.cls(hidden, batch), start, dropouts
            ),
        }
        if "start_positions" in batch:
            gold = batch["start_positions"][:, None]
            outputs["end_logits"] = self._ends(hidden, allowed, gold)[:, 0]
        if dropouts is not layers.no_dropout:
            return outputs
        scores, starts = _top(ops.log_softmax(start), self.head.num_starts)
        outputs |= {"start_top": starts, "start_top_scores": scores}
        ends = ops.log_softmax(self._ends(hidden, allowed, starts))
        scores, ends = _top(ends, self.head.num_ends)
        return outputs | {"end_top": ends, "end_top_scores": scores}

    def _ends(self, hidden, allowed, starts):
        """[b, n, s]: the logits of all ends, given each start, int [b, n]."""
        places = ops.arange(ops.shape(hidden)[1])
        is_start = ops.equal(ops.cast(starts, "int32")[..., None], places)
        # A product, because the gradient of a lookup would scatter.
        started = ops.matmul(ops.cast(is_start, "float32"), hidden)  # [b, n, h]
        # The product of their concatenation, without making that for each pair.
        width = hidden.shape[-1]
        parts = self.end_hidden.kernel[:width], self.end_hidden.kernel[width:]
        of_start, of_end = parts if self.head.start_first else reversed(parts)
        inner = ops.matmul(started, of_start)[:, :, None]
        inner = inner + ops.matmul(hidden, of_end)[:, None]
        inner = self.end_hidden.activation(inner + self.end_hidden.bias)
        if self.end_norm:
            inner = self.end_norm(inner)
        return ops.where(allowed[:, None], self.end(inner)[..., 0], _IMPOSSIBLE)

    def _no_answer(self, hidden, cls, start, dropouts):
        """[b]: the logit that the text has no answer."""
        started = ops.matmul(ops.softmax(start)[:, None], hidden)[:, 0]
        parts = [cls, started]
        parts = parts if self.head.start_first else parts[::-1]
        inner = self.answer_hidden(ops.concatenate(parts, axis=-1))
        inner = dropouts(inner, self.head.answer_dropout)
        return self.answer_logit(inner)[:, 0]


def _top(scores, count):
    """The `count` best of the last axis, which may be shorter, and their places."""
    padding = [(0, 0)] * (len(scores.shape) - 1) + [(0, count)]
    scores = ops.pad(scores, padding, constant_values=2 * _IMPOSSIBLE)
    scores, places = ops.top_k(scores, count)
    return scores, ops.cast(places, "int32")

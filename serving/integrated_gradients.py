"""Explains numbers that a network predicts, by integrated gradients (arXiv:1703.01365).

What is explained is how far a number, such as the logit of a label, is from that of a text
that says nothing: all its tokens are [MASK], or padding where a vocabulary has no mask,
while special tokens stay as they are. The word vectors move from there to those of the
text on a straight line; the gradient, integrated along the line, tells what each token
contributes. By the fundamental theorem of calculus, contributions add up to the difference.

The integral is a sum by Gauss and Legendre. Its error is known: it is what is missing in
that sum. Where more than `TOLERANCE` is, it is computed anew with twice as many points.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from errors import UserError
from modeling import layers
from text.graphs.numbered_tokens import NumberedTokens, numbers_of
from text.graphs.row_chunks import not_empty, run_in_chunks

TOLERANCE = 0.005  # of the difference
_SMALL = 0.01  # a difference below which the error may be that of this
_POINTS = (16, 32, 64, 128, 256, 512, 1024, 2048)
_MOST_IN_A_PART = 256  # points; with more, the line is cut into equal parts
_MOST_TOKENS = 1 << 11  # at once; gradients keep what every layer computed


class Scores(NamedTuple):
    """Numbers in a network's outputs, n of them, which are to be explained.

    Attributes:
        batch: the network's input; input_ids as packed by a `NumberedTokens`.
        rows: int32 [n], the row of the batch that each is predicted for.
        places: output -> int32 [n, axes], where in a row of this output it is; if there are
            several outputs, their numbers are added.
        shares: float32 [n], by which it is multiplied.
        owners: int32 [n, axes], the request, or the request and the word, that each is part
            of the answer for.
        words: int32 [tokens, 2], the request and the word that each token is a part of;
            None if requests consist of texts.
        labels: string, what is predicted by each owner, such as the label; maybe none.
    """

    batch: Mapping[str, tf.Tensor]
    rows: tf.Tensor
    places: Mapping[str, tf.Tensor]
    shares: tf.Tensor
    owners: tf.Tensor
    words: tf.Tensor | None = None
    labels: Mapping[str, tf.Tensor] = {}


class Attributions(NamedTuple):
    """Of n scores: float32 [n, ..., s], like their rows; [n], of text and baseline."""

    tokens: tf.Tensor
    logits: tf.Tensor
    baseline_logits: tf.Tensor


def signature(model: Callable, scores_of: Callable[..., Scores]) -> Callable:
    """A function from requests to attributions, as `export.Product.more` has them.

    Args:
        model: the network, in float32.
        scores_of: see `ServedTask.scores_to_explain`.
    """

    def explain(tokenizer, predict, **texts) -> dict[str, tf.Tensor]:
        numbered = NumberedTokens(tokenizer)

        def predict_numbered(batch):
            ids = numbered.ids_of(batch["input_ids"])
            return predict({**batch, "input_ids": ids})

        scores = scores_of(numbered, predict_numbered, **texts)
        baseline = tokenizer.pad_id if tokenizer.mask is None else tokenizer.mask_id
        found = attribute(model, numbered, scores, baseline)
        write = _of_texts if scores.words is None else _of_words
        return {**scores.labels, **write(numbered, scores, found, texts)}

    return explain


# === The integral ====================================================================


def attribute(
    model: Callable, tokens: NumberedTokens, scores: Scores, baseline_id: int
) -> Attributions:
    """Explains scores, each by the tokens of its row.

    Args:
        model: from a dict of int32 tensors to a dict of float32 tensors.
        tokens: by which the rows of the scores are packed.
        baseline_id: of the token that replaces each.
    """
    along = _trace(model, tokens, scores, baseline_id)
    rows = scores.batch["input_ids"]
    most_rows = tf.maximum(_MOST_TOKENS // tf.maximum(tf.size(rows[:1]), 1), 1)
    rules = [_rule(number) for number in _POINTS]
    sizes = tf.constant([len(nodes) for nodes, _ in rules])
    widest = max(len(nodes) for nodes, _ in rules)
    padded = [np.pad(rule, [(0, 0), (0, widest - len(rule[0]))]) for rule in rules]
    table = tf.constant(np.array(padded), tf.float32)  # [rules, 2, widest]

    def refine(level, found):
        numbers = tf.cast(tf.where(_is_inexact(found))[:, 0], tf.int32)
        nodes, weights = tf.unstack(table[level, :, : sizes[level]])
        number, points = tf.size(numbers), tf.size(nodes)
        inputs = {
            "number": tf.repeat(numbers, points),
            "place": tf.tile(nodes, [number]),
        }
        outputs = run_in_chunks(along, inputs, most_rows=most_rows)
        values = tf.reshape(outputs["value"], [number, points])
        shape = tf.concat([[number, points], tf.shape(rows)[1:]], axis=0)
        slopes = tf.tensordot(weights, tf.reshape(outputs["slopes"], shape), [[0], [1]])
        new = Attributions(slopes, values[:, 1], values[:, 0])
        return level + 1, tf.nest.map_structure(
            lambda old, new: tf.tensor_scatter_nd_update(old, numbers[:, None], new),
            found,
            new,
        )

    number = tf.size(scores.rows)
    shape = tf.concat([[number], tf.shape(rows)[1:]], axis=0)
    nothing = Attributions(
        tf.zeros(shape),
        tf.ones([number]),
        tf.zeros([number]),  # not exact
    )
    _, found = tf.while_loop(
        lambda level, found: (level < len(rules)) & tf.reduce_any(_is_inexact(found)),
        refine,
        (0, nothing),
        shape_invariants=(
            tf.TensorShape([]),
            Attributions(
                tf.TensorShape([None] * rows.shape.rank), *[tf.TensorShape([None])] * 2
            ),
        ),
    )
    return found


def _rule(number):
    """Places from 0 to 1 and their weights; the first two are both ends, without weight."""
    parts = -(-number // _MOST_IN_A_PART)
    nodes, weights = np.polynomial.legendre.leggauss(number // parts)
    places = (np.arange(parts)[:, None] + (nodes + 1) / 2) / parts
    weights = np.tile(weights / 2 / parts, parts)
    return np.array([[0, 1, *places.flat], [0, 0, *weights]])


def _is_inexact(found: Attributions):
    """bool [n]: whether attributions do not add up to the difference."""
    difference = found.logits - found.baseline_logits
    axes = list(range(1, found.tokens.shape.rank))
    error = tf.abs(tf.reduce_sum(found.tokens, axes) - difference)
    return error > TOLERANCE * tf.maximum(tf.abs(difference), _SMALL)


def _trace(model, tokens, scores, baseline_id):
    """From numbers of scores, int32 [m], and places on their lines, float32 [m], to the
    values there, [m], and the slopes by each token, [m, ..., s].
    """
    table = model.encoder.word_embeddings
    scores = tf.nest.map_structure(not_empty, scores._replace(words=(), labels={}))
    numbered = scores.batch["input_ids"]
    batch = {**scores.batch, "input_ids": tokens.ids_of(numbered)}

    def along(inputs):
        number, place = inputs["number"], inputs["place"]
        row = tf.gather(scores.rows, number)
        is_token = tf.gather(numbered, row) < 0
        points = []

        def move(vectors):  # [sequences, s, width], maybe several for a row
            sequences = tf.shape(vectors)[0]
            is_moved = tf.reshape(is_token, tf.shape(vectors)[:2])[..., None]
            way = vectors - tf.gather(tf.convert_to_tensor(table), baseline_id)
            way = tf.where(is_moved, way, 0.0)
            left = 1 - tf.repeat(place, sequences // tf.size(place))
            point = vectors - left[:, None, None] * way
            tape.watch(point)
            points.append((point, way))
            return point

        with (
            tf.GradientTape(watch_accessed_variables=False) as tape,
            layers.change_vectors(table, move),
        ):
            outputs = model({k: tf.gather(v, row) for k, v in batch.items()})
            value = tf.gather(scores.shares, number) * sum(
                tf.gather_nd(outputs[name], tf.gather(where, number), batch_dims=1)
                for name, where in scores.places.items()
            )
        if not points:
            raise UserError(
                f"{type(model.encoder).__name__} looks up no words that could be scaled, "
                "so its answers cannot be explained; leave out --export_attributions"
            )
        gradients = tape.gradient(value, [point for point, _ in points])
        slopes = sum(
            tf.reduce_sum(gradient * way, axis=-1)
            for gradient, (_, way) in zip(gradients, points, strict=True)
        )
        return {
            "value": tf.reshape(value, tf.shape(place)),
            "slopes": tf.reshape(slopes, tf.shape(is_token)),
        }

    specs = {
        "number": tf.TensorSpec([None], tf.int32),
        "place": tf.TensorSpec([None], tf.float32),
    }
    # Traced here, once for all that run it.
    return tf.function(along, autograph=False).get_concrete_function(specs)


# === Outputs =========================================================================


def _of_texts(numbered, scores, found, texts):
    """What is told of each token of a request that was read, padded; [b, longest]."""
    numbers, columns = numbered.columns(scores.batch["input_ids"])
    shape = tf.shape(numbers.to_tensor(), tf.int32)
    attributions, logits = _by_owner(
        scores,
        found,
        lambda number: tf.gather(not_empty(columns), number)[..., None],
        shape,
    )
    parts = [
        (ids, starts, ends, tf.ones_like(ids) * part)
        for part, (ids, starts, ends) in enumerate(numbered.encoded)
    ]
    ids, *places = (
        tf.gather(tf.concat([v.flat_values for v in values], 0), numbers.flat_values)
        for values in zip(*parts, strict=True)
    )
    starts, ends, parts = (numbers.with_flat_values(x).to_tensor(-1) for x in places)
    return {
        "tokens": numbers.with_flat_values(numbered.tokens(ids)).to_tensor(""),
        "parts": parts,
        "starts": starts,
        "ends": ends,
        "attributions": attributions,
        **logits,
    }


def _of_words(numbered, scores, found, texts):
    """What each word of a request contributes to the tag of each, [b, words, words + 1];
    the last is what the words around those of the request do.
    """
    width = tf.shape(texts["words"])[1]
    column = tf.where(
        (scores.words[:, 1] >= 0) & (scores.words[:, 1] < width),
        scores.words[:, 1],
        width,
    )
    shape = tf.concat([tf.shape(texts["words"]), [width + 1]], axis=0)
    attributions, logits = _by_owner(
        scores,
        found,
        lambda number: tf.gather(not_empty(column), number)[..., None],
        shape,
    )
    return {"attributions": attributions, **logits}


def _by_owner(scores, found, columns_of, shape):
    """Sums up what is told of each score.

    Args:
        columns_of: from numbers of tokens to their places, [..., 1].
        shape: of the attributions.
    """
    places = tf.gather(scores.batch["input_ids"], scores.rows)  # [n, ..., s]
    is_token = places < 0
    cells = tf.concat(
        [
            tf.gather(scores.owners, tf.cast(tf.where(is_token)[:, 0], tf.int32)),
            columns_of(numbers_of(tf.boolean_mask(places, is_token))),
        ],
        axis=1,
    )
    sums = tf.scatter_nd(cells, tf.boolean_mask(found.tokens, is_token), shape)
    names = {"logit": found.logits, "baseline_logit": found.baseline_logits}
    return sums, {
        name: tf.scatter_nd(scores.owners, values, shape[:-1])
        for name, values in names.items()
    }

"""Tags words and finds entities in a TensorFlow graph, for SavedModels.

It decides which words share a row, and which entities and tags follow from a network's
labels. It equals text/tasks/tag_rows.py and tags.py, which give the reasons.

Words are a string tensor [b, n] with one request per row. An empty word ends a sentence,
and pads a request. The sentences of a request form one document.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from text.graphs import packing_graph, row_chunks
from text.graphs.graph_tokenizer import GraphTokenizer
from text.tasks import tags

# === Rows ============================================================================


class Context(NamedTuple):
    """The text around the words in their document, string [b]; spaces separate words."""

    before: tf.Tensor
    after: tf.Tensor


class Sentences(NamedTuple):
    """int32 [sentences] each: word numbers as in `tag_rows.windows`, but counted through
    all documents, like `edges`, instead of within one."""

    own_start: tf.Tensor
    own_stop: tf.Tensor
    lowest: tf.Tensor
    highest: tf.Tensor


def label(
    tokenizer: GraphTokenizer,
    predict: Callable[[dict], dict],
    words: tf.Tensor,
    max_seq_length: int,
    context: Context | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The network's label for each word, taken from its first piece.

    Args:
        predict: input_ids, input_mask, segment_ids, int32 [rows, s] -> logits, float32
            [rows, s, labels].
        words: string [b, n].
        context: rows are filled with words around a sentence, from its request and from
            these, which are not labeled; None: every sentence is alone in its rows.
    Returns:
        labels int32 [b, n], 0 for empty words; their probabilities float32 [b, n].
    """
    asked = place(tokenizer, words, max_seq_length, context)
    logits = row_chunks.run_in_chunks(predict, asked.batch)["logits"]
    logits = tf.cast(tf.gather_nd(logits, asked.places), tf.float64)  # [words, labels]
    shape = tf.shape(words, tf.int64)
    labels = tf.argmax(logits, axis=1, output_type=tf.int32)
    probabilities = tf.cast(tf.reduce_max(tf.nn.softmax(logits), axis=1), tf.float32)
    return tuple(tf.scatter_nd(asked.cells, x, shape) for x in (labels, probabilities))


class PlacedWords(NamedTuple):
    """Rows in which words are to be labeled.

    Attributes:
        batch: the rows, int32 [rows, s].
        places: int32 [asked words, 2], the row and the position of each.
        cells: int64 [asked words, 2], request and column of each.
        every_cell: int64 [w, 2], those of all that was encoded; columns of the context lie
            outside the request.
    """

    batch: dict[str, tf.Tensor]
    places: tf.Tensor
    cells: tf.Tensor
    every_cell: tf.Tensor


def place(
    tokenizer: GraphTokenizer,
    words: tf.Tensor,
    max_seq_length: int,
    context: Context | None = None,
) -> PlacedWords:
    """Lays words out in rows; arguments as for `label`."""
    first, document = 0, words
    if context is not None:
        # A row takes no more words on either side, because each has at least one piece.
        before = _split(context.before)[:, 2 - max_seq_length :].to_tensor()
        after = _split(context.after)[:, : max_seq_length - 2].to_tensor()
        end = tf.fill([tf.shape(words)[0], 1], "")
        first = tf.shape(before)[1] + 1
        document = tf.concat([before, end, words, end, after], axis=1)
    cells = tf.where(document != "")  # [w, 2]: request, column
    pieces = encode(tokenizer, tf.gather_nd(document, cells), max_seq_length)
    column = cells[:, 1] - tf.cast(first, tf.int64)
    asked = (column >= 0) & (column < tf.shape(words, tf.int64)[1])
    rows_of_words = windows(
        tf.cast(pieces.row_splits, tf.int32),
        sentences(document, cells, asked, in_context=context is not None),
        max_seq_length - 2,
    )
    batch, places = rows(tokenizer, pieces, rows_of_words, max_seq_length)
    cells = tf.stack([cells[:, 0], column], axis=1)
    return PlacedWords(batch, places, tf.boolean_mask(cells, asked), cells)


def _split(texts):
    """string [b] -> string [b, (words)]"""
    words = tf.strings.split(texts, " ")
    return tf.ragged.boolean_mask(words, words != "")


def encode(tokenizer, words, max_seq_length) -> tf.RaggedTensor:
    """string [w] -> int32 [w, (pieces)]: at least [UNK], and at most a row's capacity."""
    words = tf.strings.join([" ", words])
    pieces = tokenizer.encode(words)[:, : max_seq_length - 2]
    without = tf.cast(pieces.row_lengths() == 0, tf.int64)
    unknown = tf.fill([tf.reduce_sum(without)], tokenizer.unk_id)
    unknown = tf.RaggedTensor.from_row_lengths(unknown, without, validate=False)
    return tf.concat([pieces, unknown], axis=1)


def sentences(document, cells, asked, in_context) -> Sentences:
    """The sentences to label, and how far around them rows may reach.

    Args:
        document: string [b, columns].
        cells: int64 [w, 2], request and column of the words.
        asked: bool [w], whether a word is to be labeled.
        in_context: rows may contain the whole document.
    """
    ends = tf.cumsum(tf.cast(document == "", tf.int32), axis=1)
    key = tf.stack([tf.cast(cells[:, 0], tf.int32), tf.gather_nd(ends, cells)], axis=1)
    is_first = tf.reduce_any(key[1:] != key[:-1], axis=1)
    is_first = tf.concat([tf.ones_like(asked[:1]), is_first], axis=0)
    starts = tf.cast(tf.where(is_first)[:, 0], tf.int32)
    stops = tf.concat([starts[1:], tf.shape(asked)], axis=0)[: tf.size(starts)]
    bounds = starts, stops
    if in_context:
        counts = tf.math.count_nonzero(document != "", axis=1, dtype=tf.int32)
        request = tf.gather(key[:, 0], starts)
        last = tf.gather(tf.cumsum(counts), request)
        bounds = last - tf.gather(counts, request), last
    asked = tf.gather(asked, starts)
    return Sentences(*(tf.boolean_mask(x, asked) for x in (starts, stops, *bounds)))


def windows(edges: tf.Tensor, of: Sentences, capacity: int) -> tf.Tensor:
    """Rows that together label each word of some sentences once, like `tag_rows.windows`.

    Args:
        edges: int32 [words + 1], the number of pieces before each word, and in total.
        capacity: pieces per row.
    Returns:
        int32 [rows, 4]: the fields of `tag_rows.TagWindow`, in the order of the words.
    """
    pieces = tf.gather(edges, of.own_stop) - tf.gather(edges, of.own_start)
    at_once = tf.where(pieces > capacity, capacity // 2, capacity)

    def step(waiting, made):
        own_start, own_stop, lowest, highest, at_once = tf.unstack(waiting, axis=1)
        begin = tf.gather(edges, own_start)
        last = tf.searchsorted(edges, begin + at_once, side="right") - 1
        part_stop = tf.minimum(tf.maximum(last, own_start + 1), own_stop)
        end = tf.gather(edges, part_stop)
        spare = capacity - (end - begin)
        left, right = begin - tf.gather(edges, lowest), tf.gather(edges, highest) - end
        left = tf.minimum(left, tf.maximum(spare // 2, spare - right))
        right = tf.minimum(right, spare - left)
        start = tf.searchsorted(edges, begin - left)
        stop = tf.searchsorted(edges, end + right, side="right") - 1
        window = tf.stack([start, own_start, part_stop, stop], axis=1)
        waiting = tf.concat([part_stop[:, None], waiting[:, 1:]], axis=1)
        waiting = tf.boolean_mask(waiting, part_stop < own_stop)
        return waiting, tf.concat([made, window], axis=0)

    _, made = tf.while_loop(
        lambda waiting, made: tf.shape(waiting)[0] > 0,
        step,
        (tf.stack([*of, at_once], axis=1), tf.zeros([0, 4], tf.int32)),
        shape_invariants=(tf.TensorShape([None, 5]), tf.TensorShape([None, 4])),
    )
    return tf.gather(made, tf.argsort(made[:, 1]))


def rows(
    tokenizer, pieces: tf.RaggedTensor, windows: tf.Tensor, max_seq_length: int
) -> tuple[dict, tf.Tensor]:
    """Windows as inputs of the encoder, and the positions of the words to label.

    Args:
        pieces: int32 [w, (pieces)].
        windows: the result of `windows`.
    Returns:
        input_ids, input_mask, segment_ids, int32 [rows, longest]; and int32 [asked words,
        2], row and position of the first piece, in the order of the words.
    """
    edges = tf.cast(pieces.row_splits, tf.int32)
    start, own_start, own_stop, stop = tf.unstack(windows, axis=1)
    first = tf.gather(edges, start)
    ids = tf.ragged.range(first, tf.gather(edges, stop))
    ids = ids.with_flat_values(tf.gather(pieces.flat_values, ids.flat_values))
    word = tf.ragged.range(own_start, own_stop)
    row = tf.cast(word.value_rowids(), tf.int32)
    place = tf.gather(edges, word.flat_values) - tf.gather(first, row)
    place += len(tokenizer.head)
    batch = packing_graph.pack(tokenizer, ids, None, max_seq_length)
    return batch, tf.stack([row, place], axis=1)


# === Plain tags ======================================================================


def plain(
    words: tf.Tensor, labels: tf.Tensor, names: Sequence[str]
) -> dict[str, tf.Tensor]:
    """The tags that mark no entities.

    Args:
        words: string [b, n].
        labels: int32 [b, n].
        names: of the labels.
    Returns:
        dict of tags, string [b, n], "" for empty words.
    """
    return {"tags": tf.where(words == "", "", tf.gather(tf.constant(names), labels))}


# === Entities ========================================================================

_LETTERS = "BIES"


def read(
    words: tf.Tensor,
    labels: tf.Tensor,
    types: Sequence[str],
    scheme: str,
    separator: str = " ",
) -> dict[str, tf.Tensor]:
    """The entities that labels mark, and their tags in a scheme.

    Args:
        words: string [b, n]; invalid UTF-8 is replaced.
        labels: int32 [b, n]; 0 is outside, then B and I of each type in IOB2. 0 for empty
            words, so that no entity continues beyond a sentence.
        types: of entities.
        scheme: one of `tags.SCHEMES`.
        separator: between the words of an entity.
    Returns:
        dict of tags, string [b, n], "" for empty words; and [b, e], where e is the largest
        number of entities in a request: entities, the words of each joined;
        entity_types; entity_starts and entity_stops, int32 word numbers. Padded with "" and
        -1.
    """
    words = tf.strings.unicode_transcode(words, "UTF-8", "UTF-8")
    kinds = tf.where(labels > 0, (labels - 1) // 2, -1)
    before = tf.pad(kinds, [[0, 0], [1, 0]], constant_values=-1)[:, :-1]
    follows = (kinds >= 0) & (kinds == before)  # a word of its type
    goes_on = follows & (labels % 2 == 0)  # I
    begins = (kinds >= 0) & ~goes_on
    ends = (kinds >= 0) & ~tf.pad(goes_on, [[0, 0], [0, 1]])[:, 1:]
    marks = _marks(kinds, begins, ends, follows, types, scheme)
    first, last = tf.where(begins), tf.where(ends)  # [entities, 2], as many of both
    width = tf.shape(words, tf.int64)[1]
    places = tf.ragged.range(
        first[:, 0] * width + first[:, 1], last[:, 0] * width + last[:, 1] + 1
    )
    inside = places.with_flat_values(
        tf.gather(tf.reshape(words, [-1]), places.flat_values)
    )
    requests = tf.shape(words, tf.int64)[0]

    def pad(values, padding):
        ragged = tf.RaggedTensor.from_value_rowids(values, first[:, 0], requests)
        return ragged.to_tensor(padding)

    return {
        "tags": tf.where(words == "", "", marks),
        "entities": pad(
            tf.strings.reduce_join(inside, axis=1, separator=separator), ""
        ),
        "entity_types": pad(tf.gather(types, tf.gather_nd(kinds, first)), ""),
        "entity_starts": pad(tf.cast(first[:, 1], tf.int32), -1),
        "entity_stops": pad(tf.cast(last[:, 1], tf.int32) + 1, -1),
    }


def _marks(kinds, begins, ends, follows, types, scheme):
    """Tags like those of `tags.mark`; arguments [b, n]."""
    letters = tf.fill(tf.shape(kinds), _LETTERS.index("I"))
    is_b = begins & follows if scheme == "iob1" else begins
    letters = tf.where(is_b, _LETTERS.index("B"), letters)
    if scheme == "iobes":
        single = tf.where(begins, _LETTERS.index("S"), _LETTERS.index("E"))
        letters = tf.where(ends, single, letters)
    table = [
        f"{letter}-{kind}" if kind else letter for kind in types for letter in _LETTERS
    ]
    numbers = kinds * len(_LETTERS) + letters
    return tf.where(kinds < 0, tags.OUTSIDE, tf.gather(table, tf.maximum(numbers, 0)))

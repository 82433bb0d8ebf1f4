"""Tokenizes text into ModernBERT's pieces in a TensorFlow graph, for SavedModels.

It equals family/modern_bert/tokenizer.py. Form C comes from TensorFlow Text, so a program
must `import tensorflow_text` before it loads a graph with this.
"""

import functools
import re

import numpy as np
import tensorflow as tf
import tensorflow_text

from family.modern_bert import normal_form
from family.modern_bert.tokenizer import ModernBertBpe
from text.graphs.bpe_graph import ByteBpeGraph
from text.graphs.graph_tokenizer import begins, by_rows, row_numbers

# In the place of characters that TensorFlow Text moves marks past and the tokenizer does
# not, because its tables are older. It begins a cluster, and no mark is composed with it.
_FIXED = ord("1")
_MARK = b"\xff"  # is in no UTF-8
_MARKED = _MARK + rb"\1" + _MARK


class ModernBertGraph(ByteBpeGraph):
    """Turns text into pieces in a graph."""

    libraries = ("tensorflow_text",)

    def __init__(self, tokenizer: ModernBertBpe, folder: str):
        super().__init__(tokenizer, folder)
        self._follows = tf.constant(normal_form.continuing())
        self._changes = tf.constant(normal_form.changing())
        self._is_newer = tf.constant(_newer())
        # The longest first, because the first one that fits is taken.
        cut_out = sorted(tokenizer.cut_out, key=len, reverse=True)
        self._pattern = "|".join(map(re.escape, cut_out))
        self._cut_out = tf.constant(cut_out, tf.string)
        ids = [tokenizer.vocabulary.ids[token] for token in cut_out]
        self._cut_out_ids = tf.constant(ids, tf.int32)

    def pieces_with_offsets(self, texts):
        normal, starts, ends = self._normalize(texts)
        characters = tf.RaggedTensor.from_row_splits(
            tf.range(tf.size(normal.flat_values)), normal.row_splits, validate=False
        )
        texts = tf.strings.unicode_encode(tf.cast(normal, tf.int32), "UTF-8")
        ids, firsts, lasts = self._encode_normal(texts)
        # Of all texts together; what is empty is where the next piece starts.
        offset = tf.gather(
            tf.cast(characters.row_starts(), tf.int32), ids.value_rowids()
        )
        limit = tf.gather(tf.cast(normal.row_limits(), tf.int32), ids.value_rowids())
        first, last = firsts.flat_values + offset, lasts.flat_values + offset
        length = tf.gather(self._lengths(normal, ends), ids.value_rowids())

        def start_of(place):
            found = tf.gather(starts, tf.minimum(place, tf.maximum(limit - 1, 0)))
            return tf.where(place < limit, found, length)

        end = tf.where(last > first, tf.gather(ends, tf.maximum(last - 1, 0)), 0)
        end = tf.where(last > first, end, start_of(last))
        return (
            ids,
            ids.with_flat_values(start_of(first)),
            ids.with_flat_values(end),
        )

    @staticmethod
    def _lengths(normal, ends):
        """int32 [n]: where the last character of each text ends."""
        last = tf.cast(normal.row_limits(), tf.int32) - 1
        found = tf.gather(tf.concat([ends, [0]], 0), tf.maximum(last, 0))
        return tf.where(normal.row_lengths() > 0, found, 0)

    # --- Form C ----------------------------------------------------------------------

    def _normalize(self, texts):
        """string [n] -> code points in form C, int32 [n, (characters)]; and of each, where
        it comes from in its text: starts and ends, int32 [characters].
        """
        decoded = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
        points = decoded.flat_values
        rows = row_numbers(decoded.row_limits())
        follows = tf.gather(self._follows, points) & ~begins(rows)
        first = tf.cast(tf.where(~follows)[:, 0], tf.int32)
        limits = tf.concat([first[1:], tf.shape(points)], 0)[: tf.size(first)]
        clusters = tf.RaggedTensor.from_row_limits(
            points, tf.cast(limits, tf.int64), validate=False
        )
        new, is_changed = self._normalize_clusters(clusters, first, limits)
        own = new.value_rowids()  # of a new character: its cluster, and its place there
        place = tf.range(tf.size(own, tf.int64)) - tf.gather(new.row_starts(), own)
        row = tf.gather(rows, tf.gather(first, own))
        begin = tf.gather(tf.cast(decoded.row_starts(), tf.int32), row)
        changed = tf.gather(is_changed, own)
        start = tf.gather(first, own) + tf.where(changed, 0, tf.cast(place, tf.int32))
        end = tf.where(changed, tf.gather(limits, own), start + 1)
        normal = by_rows(new.flat_values, row, decoded.nrows())
        return normal, start - begin, end - begin

    def _normalize_clusters(self, clusters, first, limits):
        """int32 [clusters, (characters)] -> the same in form C, and which are changed."""
        heads = tf.gather(clusters.flat_values, first)
        may_change = (limits - first > 1) | tf.gather(self._changes, heads)
        old = tf.ragged.boolean_mask(clusters, may_change)
        heads = tf.boolean_mask(heads, may_change)
        is_newer = tf.gather(self._is_newer, heads)
        fixed = self._with_heads(old, tf.where(is_newer, _FIXED, heads))
        made = tensorflow_text.normalize_utf8(
            tf.strings.unicode_encode(fixed, "UTF-8"), "NFC"
        )
        made = tf.strings.unicode_decode(made, "UTF-8")
        made_heads = tf.gather(made.flat_values, made.row_starts())
        made = self._with_heads(made, tf.where(is_newer, heads, made_heads))
        differs = tf.strings.unicode_encode(made, "UTF-8") != tf.strings.unicode_encode(
            old, "UTF-8"
        )
        places = tf.cumsum(tf.cast(may_change, tf.int32)) - 1
        number = tf.size(first)
        order = tf.where(may_change, number + places, tf.range(number))
        is_changed = tf.concat([tf.zeros([number], tf.bool), differs], 0)
        both = tf.concat([clusters, made], 0)
        return tf.gather(both, order), tf.gather(is_changed, order)

    @staticmethod
    def _with_heads(clusters, heads):
        """Puts these characters first."""
        places = tf.cast(clusters.row_starts(), tf.int32)[:, None]
        values = tf.tensor_scatter_nd_update(clusters.flat_values, places, heads)
        return clusters.with_flat_values(values)

    # --- Tokens that are cut out -----------------------------------------------------

    def _encode_normal(self, texts):
        """Of texts in form C: ids, starts and ends, each int32 [n, (tokens)]."""
        if not self._pattern:
            return super().pieces_with_offsets(texts)
        marked = tf.strings.regex_replace(texts, f"({self._pattern})", _MARKED)
        parts = tf.strings.split(marked, _MARK)
        flat = parts.flat_values
        matches = flat[:, None] == self._cut_out[None]
        is_cut_out = tf.reduce_any(matches, 1)
        number = tf.argmax(tf.cast(matches, tf.int32), 1)
        columns = super().pieces_with_offsets(tf.where(is_cut_out, "", flat))
        sizes = tf.strings.length(flat, unit="UTF8_CHAR")
        is_spaces = tf.strings.substr(flat, 0, 1) == " "
        own = (
            tf.gather(self._cut_out_ids, number),
            tf.where(is_spaces, sizes, 0),  # of spaces alone: empty, at their end
            sizes,
        )
        before = tf.cumsum(sizes, exclusive=True)
        before -= tf.gather(before, tf.gather(parts.row_starts(), parts.value_rowids()))
        made = []
        for column, cut, moves in zip(columns, own, (False, True, True), strict=True):
            cut = tf.ragged.boolean_mask(cut[:, None], is_cut_out[:, None])
            column = tf.concat([column, cut], 1)
            if moves:
                column += before[:, None]
            made.append(parts.with_values(column).merge_dims(1, 2))
        return tuple(made)


@functools.cache
def _newer() -> np.ndarray:
    """bool [NUM_POINTS]: what TensorFlow Text moves or composes, and the tokenizer does
    not.
    """

    def by_graph(form):
        return lambda text: tensorflow_text.normalize_utf8(text, form).numpy().decode()

    found = normal_form.combining(by_graph("NFC"))
    found &= ~normal_form.combining(normal_form.normalize)
    return found

"""Cuts and compares pieces of texts, by their characters, in a TensorFlow graph."""

import tensorflow as tf

# By code point, what str.split treats as whitespace; the last is not, nor is any beyond.
_IS_SPACE = [chr(point).isspace() for point in range(0x3002)]


class Texts:
    """Texts by their characters.

    Args:
        texts: string [b].
    """

    def __init__(self, texts):
        decoded = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
        self.points = decoded.flat_values  # of all texts, concatenated
        self.begin = tf.cast(decoded.row_starts(), tf.int32)
        last = len(_IS_SPACE) - 1
        self.is_space = tf.gather(_IS_SPACE, tf.minimum(self.points, last))

    def cut(self, text, start, end):
        """string [n]: the characters from `start` up to `end`; all int32 [n]."""
        begin = tf.gather(self.begin, text)
        return _joined(self.points, begin + start, begin + end)

    def stripped(self, text, start, end):
        """Start and end without the white space there; equal if there is nothing else."""
        solid = tf.cast(tf.where(~self.is_space)[:, 0], tf.int32)
        begin = tf.gather(self.begin, text)
        first = tf.searchsorted(solid, begin + start)
        stop = tf.searchsorted(solid, begin + end)
        bounds = tf.concat([solid, tf.shape(self.points)], 0)
        start = tf.minimum(tf.gather(bounds, first) - begin, end)
        end = tf.gather(tf.concat([[0], solid + 1], 0), stop) - begin
        return start, tf.maximum(start, end)

    def distinct(self, text, start, end):
        """bool [n]: whether no earlier piece of the same text is equal.

        Whitespace is collapsed. Pieces do not begin or end with whitespace, so a piece of
        the collapsed text is the collapsed piece.
        """
        is_space = self.is_space
        is_kept = ~(is_space & tf.concat([[False], is_space[:-1]], 0))
        collapsed = tf.boolean_mask(tf.where(is_space, ord(" "), self.points), is_kept)
        kept_before = tf.cumsum(tf.concat([[0], tf.cast(is_kept, tf.int32)], 0))
        begin = tf.gather(self.begin, text)
        pieces = _joined(
            collapsed,
            tf.gather(kept_before, begin + start),
            tf.gather(kept_before, begin + end),
        )
        keys = tf.strings.join([tf.strings.as_string(text), pieces], ":")
        _, same = tf.unique(keys)
        place = tf.range(tf.size(same))
        earliest = tf.math.unsorted_segment_min(place, same, tf.size(same))
        return tf.equal(place, tf.gather(earliest, same))


def _joined(points, start, stop):
    """string [n]: the code points from each start to its stop."""
    places = tf.ragged.range(start, stop)
    return tf.strings.unicode_encode(
        places.with_flat_values(tf.gather(points, places.flat_values)), "UTF-8"
    )

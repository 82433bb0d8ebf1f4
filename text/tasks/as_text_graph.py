"""Writes inputs as T5 reads them in a TensorFlow graph, for SavedModels.

It equals text/tasks/as_text.py, which names its source.
"""

from collections.abc import Mapping

import tensorflow as tf

from text.tasks.as_text import Wording

# RE2's \s lacks \v, as in T5's preprocessing.
_PUNCTUATION, _SPACES = "([[:punct:]])", r"\s+"


def inputs(wording: Wording, texts: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """string [b] by feature -> string [b]; equal to `Wording.input`."""
    parts = [wording.prefix] if wording.prefix else []
    for name in wording.features:
        text = texts[name]
        if wording.pads_punctuation:
            text = tf.strings.regex_replace(text, _PUNCTUATION, r" \1 ")
        parts += [f"{name}:", text]
    written = tf.strings.join(parts, " ")
    if wording.pads_punctuation:
        written = tf.strings.regex_replace(written, _SPACES, " ")
    return written

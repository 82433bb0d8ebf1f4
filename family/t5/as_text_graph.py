"""Writes inputs as T5 reads them in a TensorFlow graph, for SavedModels.

It equals family/t5/as_text.py, which names its source.
"""

from collections.abc import Mapping

import tensorflow as tf

from family.t5.as_text import Wording
from text.graphs.graph_tokenizer import GraphTokenizer

# RE2's \s lacks \v, as in T5's preprocessing.
_PUNCTUATION, _SPACES = "([[:punct:]])", r"\s+"


def inputs(wording: Wording, texts: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """string [b] by feature -> string [b]; equal to `Wording.input`."""
    parts = [wording.prefix] if wording.prefix else []
    for name in wording.features:
        text = texts[name]
        if wording.pads_punctuation:
            text = tf.strings.regex_replace(text, _PUNCTUATION, r" \1 ")
        parts += [f"{name}:"] * wording.names_features
        parts.append(text)
    written = tf.strings.join(parts, " ")
    if wording.pads_punctuation:
        written = tf.strings.regex_replace(written, _SPACES, " ")
    return written


def rows(
    tokenizer: GraphTokenizer, ids: tf.RaggedTensor, max_length: int
) -> dict[str, tf.Tensor]:
    """int32 [n, (tokens)] as rows of a network, [n, longest row]; equal to
    `as_text.row`.
    """
    ids = ids[:, : max_length - 1]
    ends = tf.fill([ids.nrows(), 1], tokenizer.end_id)
    ids = tf.concat([ids, tf.RaggedTensor.from_tensor(ends)], axis=1)
    padded = ids.to_tensor(tokenizer.pad_id)
    mask = tf.sequence_mask(ids.row_lengths(), tf.shape(padded)[1], tf.int32)
    return {
        "input_ids": padded,
        "input_mask": mask,
        "segment_ids": tf.zeros_like(padded),
    }

"""Small exports for tests: SavedModels of every form whose answers a person can tell.

number   how many characters the longest text of the batch has
label    positive where the text has "good"
labels   every label that the text contains
choice   the longer an ending, the more probable
span     where the question stands in the context; nothing where it does not
tags     capitalized words are persons
word_tags capitalized words are names, all others nouns
masks    Paris or Rome for every [MASK]
replaced capitalized words were replaced
text     the same in capitals; nothing of "nothing"
vector   how often each letter from a to p occurs, more or less than their mean
rating   how many letters from a to p two texts have in common
pair     whether two texts are the same, as labels
"""

import functools
import json
import pathlib

from training.backend import tf
from serving import checksums, forms

TEXT = tf.TensorSpec([None], tf.string)
LIST = tf.TensorSpec([None, None], tf.string)


def number(text_a):
    longest = tf.reduce_max(tf.strings.length(text_a, "UTF8_CHAR"))
    return {"predicted": tf.fill(tf.shape(text_a), tf.cast(longest, tf.float32))}


def label(text_a):
    is_good = tf.strings.regex_full_match(text_a, "(?s).*good.*")
    probabilities = tf.where(is_good[:, tf.newaxis], [0.1, 0.9], [0.8, 0.2])
    return {
        "predicted": tf.where(is_good, "positive", "negative"),
        "labels": tf.tile([["negative", "positive"]], [tf.size(text_a), 1]),
        "probabilities": probabilities,
    }


def labels(text_a):
    names = ("sport", "money")
    has = [tf.strings.regex_full_match(text_a, f"(?s).*{name}.*") for name in names]
    has = tf.stack(has, axis=1)
    every = tf.tile([names], [tf.size(text_a), 1])
    return {
        "predicted": tf.where(has, every, ""),
        "labels": every,
        "probabilities": tf.where(has, 0.75, 0.25),
    }


def choice(context, endings):
    sizes = tf.cast(tf.strings.length(endings), tf.float32)
    return {
        "predicted": tf.argmax(sizes, axis=1, output_type=tf.int32),
        "probabilities": sizes / tf.reduce_sum(sizes, axis=1, keepdims=True),
    }


def span(question, context):
    def place(pair):
        parts = tf.strings.split(pair[1:], sep=pair[0])[0]
        before = tf.strings.length(parts[0], "UTF8_CHAR")
        return tf.where(tf.size(parts) > 1, before, -1)

    pairs = tf.stack([question, context], axis=1)
    start = tf.map_fn(place, pairs, fn_output_signature=tf.int32)
    found = start >= 0
    size = tf.strings.length(question, "UTF8_CHAR")
    return {
        "answer": tf.where(found, question, ""),
        "start": tf.where(found, start, 0),
        "end": tf.where(found, start + size, 0),
        "probability": tf.where(found, 0.8, 0.3),
        "score": tf.where(found, 11.5, 2.0),
        "null_odds": tf.where(found, -3.0, 4.0),
    }


def tags(words):
    is_name = tf.strings.regex_full_match(words, "[A-Z].*")
    is_place = tf.strings.regex_full_match(words, "[A-Z].*burg")
    kinds = tf.where(is_place, "LOC", "PER")
    starts = tf.ones_like(words, tf.int32) * tf.range(tf.shape(words)[1])
    starts = tf.ragged.boolean_mask(starts, is_name)
    return {
        "tags": tf.where(words == "", "", tf.where(is_name, "B-" + kinds, "O")),
        "probabilities": tf.where(words == "", 0.0, tf.where(is_name, 0.9, 0.6)),
        "entities": tf.ragged.boolean_mask(words, is_name).to_tensor(""),
        "entity_types": tf.ragged.boolean_mask(kinds, is_name).to_tensor(""),
        "entity_starts": starts.to_tensor(-1),
        "entity_stops": (starts + 1).to_tensor(-1),
    }


def word_tags(words):
    is_name = tf.strings.regex_full_match(words, "[A-Z].*")
    return {
        "tags": tf.where(words == "", "", tf.where(is_name, "PROPN", "NOUN")),
        "probabilities": tf.where(words == "", 0.0, tf.where(is_name, 0.9, 0.6)),
    }


def masks(text):
    counts = tf.strings.split(text, sep="[MASK]").row_lengths() - 1
    is_there = tf.sequence_mask(counts)[:, :, tf.newaxis]
    return {
        "tokens": tf.where(is_there, [[["Paris", "Rome"]]], ""),
        "probabilities": tf.where(is_there, [[[0.6, 0.3]]], 0.0),
    }


def following(text):
    rows = tf.shape(text)[:1]
    return {
        "tokens": tf.tile([["Paris", ""]], tf.concat([rows, [1]], 0)),
        "probabilities": tf.tile([[0.6, 0.3]], tf.concat([rows, [1]], 0)),
    }


following.__name__ = "next"  # which is a function of Python


def replaced(text):
    words = tf.strings.split(text)
    sizes = tf.strings.length(words.flat_values, "UTF8_CHAR") + 1
    sizes = words.with_flat_values(sizes)
    ends = sizes.with_flat_values(tf.cumsum(sizes.flat_values))
    first = tf.gather(tf.concat([[0], ends.flat_values], 0), ends.row_starts())
    ends = ends - first[:, tf.newaxis]
    is_name = tf.strings.regex_full_match(words.flat_values, "[A-Z].*")
    chances = words.with_flat_values(tf.where(is_name, 0.9, 0.1))
    return {
        "starts": (ends - sizes).to_tensor(-1),
        "ends": (ends - 1).to_tensor(-1),
        "probabilities": chances.to_tensor(),
    }


def text(text_a):
    return {"predicted": tf.where(text_a == "nothing", "", tf.strings.upper(text_a))}


LETTERS = "abcdefghijklmnop"


def letter_counts(text):
    others = (tf.strings.regex_replace(text, f"[^{letter}]", "") for letter in LETTERS)
    counts = [tf.strings.length(each) for each in others]
    return tf.cast(tf.stack(counts, axis=1), tf.float32)


def vector(text):
    counts = letter_counts(text) + 0.01 * tf.range(16.0)
    counts -= tf.reduce_mean(counts, axis=1, keepdims=True)
    return {"vector": tf.nn.l2_normalize(counts, axis=1)}


def rating(text_a, text_b):
    common = tf.minimum(letter_counts(text_a), letter_counts(text_b))
    return {"predicted": tf.reduce_sum(common, axis=1)}


def pair(text_a, text_b):
    are_same = (text_a == text_b)[:, tf.newaxis]
    return {
        "predicted": tf.where(text_a == text_b, "same", "other"),
        "labels": tf.tile([["other", "same"]], [tf.size(text_a), 1]),
        "probabilities": tf.where(are_same, [[0.1, 0.9]], [[0.8, 0.2]]),
    }


INPUTS = {
    number: {"text_a": TEXT},
    label: {"text_a": TEXT},
    labels: {"text_a": TEXT},
    choice: {"context": TEXT, "endings": LIST},
    span: {"question": TEXT, "context": TEXT},
    tags: {"words": LIST},
    word_tags: {"words": LIST},
    masks: {"text": TEXT},
    following: {"text": TEXT},
    replaced: {"text": TEXT},
    text: {"text_a": TEXT},
    vector: {"text": TEXT},
    rating: {"text_a": TEXT, "text_b": TEXT},
    pair: {"text_a": TEXT, "text_b": TEXT},
}
# Whose answers have another form than their name.
ANSWERS = {"rating": "number", "pair": "label"}
# Those of relatives only where these are; a pair's is that of a label.
FORMS = tuple(
    name
    for name in (function.__name__ for function in INPUTS if function is not pair)
    if ANSWERS.get(name, name) in forms.FORMS
)


def write(folder: pathlib.Path, form: str, **more) -> str:
    """Writes the export of a form; returns its folder.

    Args:
        more: that its description says.
    """
    (function,) = (f for f in INPUTS if f.__name__ == form)
    inputs = INPUTS[function]
    module = tf.Module()
    module.serve = tf.function(function).get_concrete_function(
        **{name: tf.TensorSpec(x.shape, x.dtype, name) for name, x in inputs.items()}
    )
    tf.saved_model.save(
        module, str(folder / "text" / "1"), signatures={"serving_default": module.serve}
    )
    kinds = {name: "text" if x is TEXT else "list" for name, x in inputs.items()}
    described = {
        "form": ANSWERS.get(form, form),
        "inputs": kinds,
        "max_seq_length": 128,
    }
    describe(folder, described | more)
    return str(folder)


def describe(folder: pathlib.Path, description: dict, names=()) -> None:
    """Writes an export.json, with the checksums of these files."""
    sums = checksums.of_files(str(folder), names)
    content = checksums.seal(description | {"checksums": sums})
    (folder / "export.json").write_text(json.dumps(content))


def maker(tmp_path_factory):
    """Maps a form to the folder of its export, which is written at the first call."""
    return functools.cache(lambda form: write(tmp_path_factory.mktemp(form), form))

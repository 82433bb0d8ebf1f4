"""Writes the examples of tasks as T5 reads them, and reads its answers.

An input begins with the name of the task, and every text in it with its own name:
"mnli hypothesis: It rains. premise: It is wet." The answer is a word for the label, a
number, or any text.

Source: google-research/text-to-text-transfer-transformer@e081111 t5/data/preprocessors.py,
    glue, stsb, squad; glue_utils.py, get_glue_text_preprocessor.
"""

import string
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from text.tokenizers.vocabulary import Vocabulary

UNLABELLED = "<unk>"  # the target of an example without a label
WRONG_NUMBER = -1.0  # what an answer counts as that is not a number
# To the library that T5's preprocessing uses, \v and no-break spaces are not white space.
_SPACES = "\t\n\f\r "
_PUNCTUATION = str.maketrans({mark: f" {mark} " for mark in string.punctuation})
_SPACE_OUT = str.maketrans(dict.fromkeys(_SPACES, " "))


class Wording(NamedTuple):
    """How the examples of a task are written.

    Attributes:
        prefix: what inputs begin with; may be empty.
        features: the names of the texts, in the order in which they are written.
        words: label to its word; empty for numbers and other texts.
        are_numbers: whether the answers are numbers.
        names_features: whether the name of a text is written before it.
        pads_punctuation: whether there is a space on both sides of punctuation.
    """

    prefix: str
    features: tuple[str, ...]
    words: Mapping[str, str] = {}
    are_numbers: bool = False
    names_features: bool = True
    pads_punctuation: bool = False

    def input(self, texts: Mapping[str, str]) -> str:
        """The input for texts by the names of the features."""
        parts = [self.prefix] if self.prefix else []
        for name in self.features:
            parts += [f"{name}:"] * self.names_features
            parts.append(
                pad_marks(texts[name]) if self.pads_punctuation else texts[name]
            )
        written = " ".join(parts)
        return collapse_spaces(written) if self.pads_punctuation else written

    def target(self, label: str | float | None) -> str:
        """The target for a label, a number or an answer; None is an unknown one."""
        if label is None:
            return UNLABELLED
        if self.words:
            return self.words[label]
        if self.are_numbers:
            return round_score(label)
        return pad_marks(label) if self.pads_punctuation else label

    def reader(
        self, spell: Callable[[str], str]
    ) -> Callable[[str], str | float | None]:
        """Makes the function from an output of the model to the label or number.

        It returns None for any text that is not exactly one of the words, and WRONG_NUMBER
        for one that is not a number.

        Args:
            spell: a text to what the vocabulary makes of it, from text to ids and back; an
                uncased one, for example, cannot give "U.S." back.
        Source: t5/data/postprocessors.py@e081111, string_label_to_class_id,
            string_to_float.
        """
        if self.words:
            labels = {spell(word): label for label, word in self.words.items()}
            return labels.get
        if not self.are_numbers:
            return lambda text: text
        written = {
            spell(round_score(n / 5)): float(round_score(n / 5)) for n in range(26)
        }
        return lambda text: written[text] if text in written else _number(text)


def round_score(score: float) -> str:
    """A score to the nearest 0.2 in float32, half to even: 1.1 is 1.2, and 2.5 is 2.4."""
    return f"{np.round(np.float32(score) * np.float32(5)) / np.float32(5):.1f}"


def pad_marks(text: str) -> str:
    """Text with a space on both sides of every ASCII punctuation mark."""
    return collapse_spaces(text.translate(_PUNCTUATION))


def collapse_spaces(text: str) -> str:
    """Text in which white space is single spaces, also at its beginning and end."""
    parts = text.translate(_SPACE_OUT).split(" ")
    first, last = (" " if not part else "" for part in (parts[0], parts[-1]))
    inside = " ".join(filter(None, parts))
    return f"{first}{inside}{last}" if inside else " " * bool(text)


def answer_in_context(answer: str, context: str) -> str:
    """The part of a text that an answer is, without the spaces that `pad_marks` added.

    An uncased vocabulary gives the words of `pad_marks(context)` in lower case. It is the
    first such part, if possible one of the same case; the answer as it is if there is
    none.
    """
    for spell in (str, str.lower):
        if part := _part(answer, context, spell):
            return part
    return answer


def _part(answer, context, spell):
    """The first part that is the answer once `spell` has changed the letters of both."""
    words = spell(pad_marks(answer)).split()
    answer_letters = "".join(words)
    # Only white space is added, so an answer is a part of the text if it is one of the
    # texts' other characters that begins and ends where words do.
    solid = [
        (letter, place)
        for place, character in enumerate(context)
        for letter in spell(character)
        if not letter.isspace()
    ]
    letters = "".join(letter for letter, _ in solid)
    start = letters.find(answer_letters) if answer_letters else -1
    while start >= 0:
        first, last = solid[start][1], solid[start + len(answer_letters) - 1][1]
        part = context[first : last + 1]
        if spell(pad_marks(part)).split() == words:
            return part
        start = letters.find(answer_letters, start + 1)
    return None


def _number(text):
    try:
        number = float(text)
    except ValueError:
        return WRONG_NUMBER
    return number if np.isfinite(number) else WRONG_NUMBER


_NLI = {name: name for name in ("contradiction", "entailment", "neutral")}
_ENTAILMENT = {name: name for name in ("entailment", "not_entailment")}
_PAIR = ("sentence1", "sentence2")
_MNLI = Wording("mnli", ("hypothesis", "premise"), _NLI)


def _binary(prefix, features, first, second):
    """Of labels 0 and 1."""
    return Wording(prefix, features, {"0": first, "1": second})


# By the names of glue.TASKS.
GLUE = {
    "cola": _binary("cola", ("sentence",), "unacceptable", "acceptable"),
    "sst-2": _binary("sst2", ("sentence",), "negative", "positive"),
    "mrpc": _binary("mrpc", _PAIR, "not_equivalent", "equivalent"),
    "sts-b": Wording("stsb", _PAIR, are_numbers=True),
    "qqp": _binary("qqp", ("question1", "question2"), "not_duplicate", "duplicate"),
    "mnli": _MNLI,
    "qnli": Wording("qnli", ("question", "sentence"), _ENTAILMENT),
    "rte": Wording("rte", _PAIR, _ENTAILMENT),
    "wnli": _binary("wnli", _PAIR, "not_entailment", "entailment"),
    "ax": _MNLI,
}
SQUAD = Wording("", ("question", "context"), pads_punctuation=True)
PLAIN = Wording("", ("input",), names_features=False)


def row(
    vocabulary: Vocabulary, ids: list[int], max_length: int
) -> tuple[list[int], bool]:
    """The ids of a text with the one that ends it; and whether some were cut off.

    Source: google/seqio@b898b9f seqio/preprocessors.py, append_eos_after_trim.
    """
    return [*ids[: max_length - 1], vocabulary.end_id], len(ids) > max_length - 1


def features_of(name: str, text_a: str, text_b: str | None) -> dict[str, str]:
    """The texts of an example of GLUE, in the order of its files, by the features'
    names.
    """
    features = GLUE[name].features
    if text_b is None:
        return {features[0]: text_a}
    # Of the pairs, only those of MNLI are in another order than their names.
    texts = (text_b, text_a) if features == _MNLI.features else (text_a, text_b)
    return dict(zip(features, texts, strict=True))

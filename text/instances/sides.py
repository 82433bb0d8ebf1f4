"""Counts the two sides of pairs of spans, and their labels."""

from collections.abc import Iterator

import numpy as np

from text.instances import figures

MOST_RANDOM = 0.9


def find_first_seps(layout, vocabulary):
    """int64 [batch, 1]: the position of the first [SEP]."""
    return vocabulary.is_separator(layout.text).argmax(axis=1)[:, None]


class Sides(figures.Figures):
    """Counts lengths of the two sides, and labels.

    Attributes:
        title, names, question, note: what labels mean, in the words of the report.
        rule: what must hold for the share of labels that are 1.
        advice: what to do if it does not.
    """

    title, names = "Next sentence", ("next sentence", "random")
    question = "Is B the next sentence?"
    note = "half are random by choice; so are spans without a next sentence"
    rule = "half or somewhat more of the second sides must be random"
    advice = (
        "; if lines or documents are too long or too short to have a next sentence, "
        "split them differently"
    )

    def __init__(self, max_seq_length, vocabulary):
        self._vocabulary = vocabulary
        self._lengths = np.zeros((2, max_seq_length + 1), np.int64)
        self._labels = np.zeros(2, np.int64)
        self._pairs = self._random = 0  # where labels are drawn
        self._most = 0.5

    def add(self, batch, layout, recipe) -> None:
        labels = batch["next_sentence_labels"][:, 0]
        seps = find_first_seps(layout, self._vocabulary)[:, 0]
        figures.count(self._lengths[0], seps - len(self._vocabulary.head))
        others = self._vocabulary.separators + len(self._vocabulary.tail)
        figures.count(self._lengths[1], layout.lengths - seps - others)
        figures.count(self._labels, labels)
        if most := self.most(recipe):
            self._pairs += len(labels)
            self._random += int(labels.sum())
            self._most = max(self._most, most)

    def most(self, recipe) -> float | None:
        """The largest plausible share of labels that are 1; None if they are not drawn."""
        return MOST_RANDOM if recipe.random_next_sentences else None

    def implausible(self) -> Iterator[tuple[str, str]]:
        if not self._pairs:
            return
        share = self._random / self._pairs
        least, most = (
            bound
            + sign * figures.DEVIATIONS * np.sqrt(bound * (1 - bound) / self._pairs)
            for bound, sign in ((0.5, -1), (self._most, 1))
        )
        if not least <= share <= most:
            yield self.rule, f"{share:.1%} are{self.advice}"

    def lines(self) -> list[tuple[str, str]]:
        a, b = self._lengths
        share = self._labels[1] / max(1, self._labels.sum())
        return [
            (
                "Sides",
                f"A {figures.mean(a):.1f} and B {figures.mean(b):.1f} tokens, median "
                f"{figures.median(a)} and {figures.median(b)}",
            ),
            (self.title, f"{share:.1%} {self.names[1]}"),
        ]

    def plots(self) -> list[figures.Histogram | figures.Bars]:
        shares = self._labels / max(1, self._labels.sum())
        labels = [
            (name, share, f"{share:.2%}")
            for name, share in zip(self.names, shares, strict=True)
        ]
        return [
            figures.lengths("Tokens in side A", self._lengths[0]),
            figures.lengths("Tokens in side B", self._lengths[1]),
            figures.Bars(self.question, labels, self.note),
        ]

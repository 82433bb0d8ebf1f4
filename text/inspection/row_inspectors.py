"""Checks, counts and explains what only one kind of rows has."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from text.inspection import figures
from text.inspection.inspector import Inspector, Rule
from text.instances.table import RowOptions

MOST_RANDOM = 0.9  # share of random next sentences; half is usual


class TwoSides(Inspector):
    """`[CLS] a [SEP] b [SEP]`.

    Attributes:
        may_have_one: whether a row may be `[CLS] a [SEP]`.
        separators_rule, sides_rule, segments_rule: what rows must be.
    """

    sides = ("A", "B")
    may_have_one = False
    separators_rule: str
    sides_rule: str
    segments_rule: str

    def rules(self, batch, text) -> Iterator[Rule]:
        vocabulary, columns = self.vocabulary, text.columns
        is_sep = text.separators(vocabulary)
        first = is_sep.argmax(axis=1)[:, None]
        b_begins = first + vocabulary.separators
        b_ends = text.last + 1 - len(vocabulary.tail)
        has_two = (first < b_ends) if self.may_have_one else True
        should_be = (columns >= first) & (columns < b_begins) & has_two
        should_be |= columns >= b_ends
        yield Rule(
            "input_ids", text.is_token & (is_sep != should_be), self.separators_rule
        )
        is_empty = (first <= len(vocabulary.head)) | has_two & (b_begins >= b_ends)
        yield Rule("input_ids", (columns == first) & is_empty, self.sides_rule)
        in_b = text.is_token & (columns >= b_begins) & has_two
        yield self.segment_rule(batch, text, in_b, self.segments_rule)


class Label(NamedTuple):
    """What next_sentence_labels say, in the words of reports."""

    counted: str  # the name of their sum in a description
    meanings: tuple[str, str]
    of_a_text: str  # behind the share of labels that are 1
    title: str
    names: tuple[str, str]
    question: str
    note: str
    share_rule: str


_NEXT_SENTENCE = Label(
    counted="random_next",
    meanings=("B follows A in the text", "B is random text from elsewhere"),
    of_a_text="with a random next sentence",
    title="Next sentence",
    names=("next sentence", "random"),
    question="Is B the next sentence?",
    note="half are random by choice; so are spans without a next sentence",
    share_rule="half or somewhat more of the second sides must be random",
)


class PairInspector(TwoSides):
    """Pairs, and whether B follows A."""

    words = _NEXT_SENTENCE
    separators_rule = "must be [SEP] at the end of the two sides, and nowhere else"
    sides_rule = "must have two sides, each with tokens before its [SEP]"
    segments_rule = "must be 0 up to the first [SEP], 1 up to the second, then 0"

    def rules(self, batch, text) -> Iterator[Rule]:
        yield from super().rules(batch, text)
        labels = batch["next_sentence_labels"]
        most, rule = self.label_rule()
        yield Rule("next_sentence_labels", (labels < 0) | (labels > most), rule)

    def label_rule(self) -> tuple[int, str]:
        """The largest label, and what labels must be."""
        if self.options.random_next_sentences:
            return 1, "must be 0 (the next sentence) or 1 (random)"
        return 0, "must be 0, because the description has --random_next_sentences=false"

    def most_ones(self, options: RowOptions) -> float | None:
        """The largest plausible share of labels that are 1; None if they are not drawn."""
        return MOST_RANDOM if options.random_next_sentences else None

    def sums(self, batch) -> dict[str, int]:
        return {self.words.counted: int(batch["next_sentence_labels"].sum())}

    def figures(self) -> list[figures.RunningSums]:
        return [_Sides(self)]

    def label(self, record) -> str:
        value = int(record["next_sentence_labels"][0])
        if value not in (0, 1):
            return f"next_sentence_labels is {value}"
        return self.words.meanings[value]

    def report(self, counts, passes) -> list[str]:
        cut, number = counts["truncated_tokens"], counts["instances"]
        special = self.vocabulary.num_special_tokens * number
        paired = counts["instance_tokens"] - special + cut
        lines = [
            f"{counts[self.words.counted] / number:.1%} {self.words.of_a_text}; "
            f"{cut / paired:.1%} of the paired tokens were truncated"
        ]
        if unpaired := counts.get("unpaired_sentences", 0) // passes:
            lines.append(
                f"{unpaired:,} sentences at the end of a document had no next sentence "
                "and were skipped"
            )
        return lines


class FullSentencesInspector(Inspector):
    """Rows that continue into the next document."""

    long_sentences = "continue in the next record"

    def rules(self, batch, text) -> Iterator[Rule]:
        tail = len(self.vocabulary.tail)
        is_sep = text.separators(self.vocabulary)
        is_tail = (text.columns > text.last - tail) & text.is_token
        yield Rule("input_ids", is_tail & ~is_sep, "must be [SEP] after the text")
        is_sep &= text.columns <= text.last + 1 - tail
        yield self.separator_rule(is_sep, is_tail)
        yield self.segment_rule(batch, text, False, "must be 0")

    def separator_rule(self, is_sep, is_tail) -> Rule:
        """The rule for the [SEP] of documents; the tail has the last one."""
        del is_tail
        follows_special = np.roll(is_sep, 1, axis=1)
        begin = len(self.vocabulary.head)
        follows_special[:, :begin], follows_special[:, begin] = False, True
        return Rule(
            "input_ids",
            is_sep & follows_special,
            "must be a token of the text after [CLS] and after another [SEP]",
        )

    def figures(self) -> list[figures.RunningSums]:
        return [_Documents(self.options.max_seq_length, self.vocabulary)]

    def report(self, counts, passes) -> list[str]:
        places = counts["instances"] * self.options.max_seq_length
        return [
            f"{counts['instance_tokens'] / places:.1%} of the positions contain a token"
        ]


class DocSentencesInspector(FullSentencesInspector):
    """Rows of one document."""

    def separator_rule(self, is_sep, is_tail) -> Rule:
        return Rule(
            "input_ids",
            is_sep & ~is_tail,
            "must be [SEP] at the end of the text, and nowhere else",
        )


# === What is counted ===


class _Documents(figures.RunningSums):
    """Counts the documents of records."""

    def __init__(self, max_seq_length, vocabulary):
        self._vocabulary = vocabulary
        self._counts = np.zeros(max_seq_length + 1, np.int64)

    def add(self, batch, text, options) -> None:
        separators = text.separators(self._vocabulary).sum(axis=1)
        figures.count(self._counts, separators - len(self._vocabulary.tail) + 1)

    def lines(self) -> list[tuple[str, str]]:
        return [("Documents", f"{figures.mean(self._counts):.2f} per record")]

    def plots(self) -> list[figures.Histogram | figures.Bars]:
        return [figures.lengths("Documents per record", self._counts, "documents")]


class _Sides(figures.RunningSums):
    """Counts lengths of the two sides, and labels."""

    def __init__(self, inspector: PairInspector):
        self._inspector = inspector
        self._words, self._vocabulary = inspector.words, inspector.vocabulary
        longest = inspector.options.max_seq_length
        self._lengths = np.zeros((2, longest + 1), np.int64)
        self._labels = np.zeros(2, np.int64)
        self._pairs = self._ones = 0  # where labels are drawn
        self._most = 0.5

    def add(self, batch, text, options) -> None:
        labels = batch["next_sentence_labels"][:, 0]
        seps = text.separators(self._vocabulary).argmax(axis=1)
        figures.count(self._lengths[0], seps - len(self._vocabulary.head))
        others = self._vocabulary.separators + len(self._vocabulary.tail)
        figures.count(self._lengths[1], text.lengths - seps - others)
        figures.count(self._labels, labels)
        if most := self._inspector.most_ones(options):
            self._pairs += len(labels)
            self._ones += int(labels.sum())
            self._most = max(self._most, most)

    def find_implausible(self) -> Iterator[tuple[str, str]]:
        if not self._pairs:
            return
        share = self._ones / self._pairs
        least, most = (
            bound
            + sign * figures.DEVIATIONS * np.sqrt(bound * (1 - bound) / self._pairs)
            for bound, sign in ((0.5, -1), (self._most, 1))
        )
        if not least <= share <= most:
            yield self._words.share_rule, f"{share:.1%} are"

    @property
    def _shares(self):
        return self._labels / max(1, self._labels.sum())

    def lines(self) -> list[tuple[str, str]]:
        a, b = self._lengths
        return [
            (
                "Sides",
                f"A {figures.mean(a):.1f} and B {figures.mean(b):.1f} tokens, median "
                f"{figures.median(a)} and {figures.median(b)}",
            ),
            (self._words.title, f"{self._shares[1]:.1%} {self._words.names[1]}"),
        ]

    def plots(self) -> list[figures.Histogram | figures.Bars]:
        labels = [
            (name, share, f"{share:.2%}")
            for name, share in zip(self._words.names, self._shares, strict=True)
        ]
        return [
            figures.lengths("Tokens in side A", self._lengths[0]),
            figures.lengths("Tokens in side B", self._lengths[1]),
            figures.Bars(self._words.question, labels, self._words.note),
        ]

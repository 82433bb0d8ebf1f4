"""Checks and counts the rows of sentence_order."""

from collections.abc import Iterator

from family.albert.rows import boundaries
from text.inspection.inspector import Rule
from text.inspection.row_inspectors import MOST_RANDOM, Label, PairInspector

_SENTENCE_ORDER = Label(
    counted="swapped",
    meanings=("A and B are in order", "A and B are swapped"),
    of_a_text="labeled as swapped",
    title="Sentence order",
    names=("in order", "swapped"),
    question="Are A and B in order?",
    note="half are swapped by choice",
    share_rule="half of the pairs must be swapped, or somewhat more with random ones",
)


class SentenceOrderInspector(PairInspector):
    """Pairs, and whether they are swapped."""

    words = _SENTENCE_ORDER

    def rules(self, batch, text) -> Iterator[Rule]:
        yield from super().rules(batch, text)
        if "token_boundary" in batch:
            yield Rule(
                "token_boundary",
                batch["token_boundary"]
                != boundaries(text.ids, text.is_token, self.vocabulary),
                "must be 1 at [CLS], [SEP] and where a word begins, and 0 elsewhere",
            )

    def label_rule(self) -> tuple[int, str]:
        return 1, "must be 0 (in order) or 1 (swapped)"

    def most_ones(self, options) -> float:
        # The release pairs lone sentences with random text.
        return 0.5 if self.masks.is_described else MOST_RANDOM

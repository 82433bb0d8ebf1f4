"""Reads the rows and the chosen tokens of XLNet's released records; writes none."""

from collections.abc import Iterator

import numpy as np

from text.instances import figures
from text.instances.contiguous import Contiguous
from text.instances.figures import Figures, mean
from text.instances.instances import Layout, Masks, Rule
from text.records.schema import Feature


class XlnetRelease(Contiguous):
    """Rows with the token that follows each, and whether B follows A.

    Source: zihangdai/xlnet@bbaa3a6 data_utils.py, create_tfrecords.
    """

    meanings = ("B is random text from elsewhere", "B follows A in the text")

    def labels(self) -> tuple[Feature, ...]:
        length = self.recipe.max_seq_length
        return (
            Feature("target", "int64", length, "vocab_size"),
            Feature("label", "int64", 1, 2),
        )

    def rules(self, batch, layout, vocabulary) -> Iterator[Rule]:
        yield from super().rules(batch, layout, vocabulary)
        text, target = layout.text, batch["target"]
        columns = np.arange(text.shape[1])
        first = (text == vocabulary.sep_id).argmax(axis=1)[:, None]
        last = len(columns) - 2
        # The text goes on after A, and after B.
        is_free = (columns == first - 1) | (columns == last - 1)
        following = np.roll(text, -1, axis=1)
        following[:, -1] = vocabulary.cls_id
        yield Rule(
            "target",
            ~is_free & (target != following),
            "must be the next token, except at the ends of A and of B",
        )

    def label(self, record) -> str:
        value = int(record["label"][0])
        return self.meanings[value] if value in (0, 1) else f"label is {value}"


class XlnetReleaseBothWays(XlnetRelease):
    """The same, if each batch has every row in reverse order as well.

    Only of records written for one core, as on GPUs: with several, each core has such
    halves.
    """

    has_backward_half = True


class GivenMasks(Masks):
    """Tokens that the release chose to predict; the text has all of them.

    Source: zihangdai/xlnet@bbaa3a6 data_utils.py, _sample_mask.
    """

    are_drawn = False
    passes_differ = False
    given = ("is_masked",)

    def schema(self) -> tuple[Feature, ...]:
        return (Feature("is_masked", "int64", self.recipe.max_seq_length, 2),)

    def apply(self, batch, candidates, word_starts, vocabulary, rng):
        raise NotImplementedError("only the release writes them")

    def layout(self, batch) -> Layout:
        text = batch["input_ids"]
        lengths = np.clip(batch["input_mask"].sum(axis=1), 0, text.shape[1])
        return Layout(text, lengths, np.zeros((len(text), 0), bool))

    def rules(self, batch, layout, vocabulary, is_described) -> Iterator[Rule]:
        chosen = batch["is_masked"]
        yield Rule("is_masked", (chosen != 0) & (chosen != 1), "must be 0 or 1")
        if most := self.recipe.max_predictions_per_seq:
            number = chosen.sum(axis=1, keepdims=True)
            is_broken = np.broadcast_to(number != most, chosen.shape)
            yield Rule("is_masked", is_broken, f"must be 1 for {most} tokens")

    def figures(self, vocabulary) -> list[Figures]:
        return [_Chosen(self.recipe.max_seq_length, vocabulary)]


class _Chosen(Figures):
    """Counts the chosen tokens, and those without a loss among them."""

    def __init__(self, max_seq_length, vocabulary):
        self._vocabulary = vocabulary
        self._counts = np.zeros(max_seq_length + 1, np.int64)
        self._special = self._tokens = 0

    def add(self, batch, layout, recipe) -> None:
        chosen = batch["is_masked"] > 0
        is_special = (layout.text == self._vocabulary.sep_id) | (
            layout.text == self._vocabulary.cls_id
        )
        figures.count(self._counts, chosen.sum(axis=1))
        self._special += int((chosen & is_special).sum())
        self._tokens += chosen.size

    def lines(self) -> list[tuple[str, str]]:
        numbers = np.arange(len(self._counts))
        total = int((self._counts * numbers).sum())
        return [
            (
                "Chosen",
                f"{mean(self._counts):.1f} tokens per record, "
                f"{total / max(1, self._tokens):.1%}; {self._special:,} of them are [SEP] "
                "or [CLS], which have no loss",
            )
        ]

    def plots(self) -> list:
        return [figures.lengths("Chosen tokens per record", self._counts)]

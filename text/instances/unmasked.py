"""Makes records without masks: training draws new ones in every epoch, as in RoBERTa.

modeling/objectives/dynamic_masks.py draws them.
"""

from collections.abc import Iterator

import numpy as np

from text.instances.figures import Figures
from text.instances.instances import Layout, Masks, Rule
from text.records.schema import Feature


class Unmasked(Masks):
    """Where words begin, if whole words are to be masked; otherwise nothing."""

    are_drawn = False
    passes_differ = False

    def schema(self) -> tuple[Feature, ...]:
        if not self.recipe.do_whole_word_mask:
            return ()
        return (Feature("word_starts", "int64", self.recipe.max_seq_length, 2),)

    def apply(self, batch, candidates, word_starts, vocabulary, rng):
        if word_starts is None:
            return {}, {}
        # A piece whose word was cut off before it is its own word.
        starts = candidates & (word_starts | ~np.roll(candidates, 1, axis=1))
        return {"word_starts": starts.view(np.uint8)}, {}

    def layout(self, batch) -> Layout:
        text = batch["input_ids"]
        lengths = np.clip(batch["input_mask"].sum(axis=1), 0, text.shape[1])
        return Layout(text, lengths, np.zeros((len(text), 0), bool))

    def rules(self, batch, layout, vocabulary, is_described) -> Iterator[Rule]:
        if "word_starts" in batch:
            starts, is_word = batch["word_starts"], layout.words(vocabulary)
            begins = is_word & ~np.roll(is_word, 1, axis=1)
            yield Rule(
                "word_starts",
                (starts < begins) | (starts > is_word),
                "must be 1 after a special token, 0 or 1 in the text, and 0 elsewhere",
            )

    def figures(self, vocabulary) -> list[Figures]:
        return []

"""Makes pairs of consecutive spans with a label for whether they are swapped.

These are ALBERT's instances, with the features of its release.
"""

from collections.abc import Iterator

import numpy as np

from text.instances import figures, pairs
from text.instances.instances import Rule
from text.instances.sides import MOST_RANDOM, Sides
from text.records.schema import Feature


class SentenceOrder(pairs.Pairs):
    """`[CLS] a [SEP] b [SEP]`, and 1 if b comes before a in the text.

    Differs from the release: by default, all pairs are consecutive. A chunk has at least
    two sentences, of which too many tokens are cut off, and a lone last sentence is left
    out. In the release, a chunk of one sentence is paired with random text, and also
    labeled 1; this is `lone_sentences` "random".

    Source: google-research/albert@b772393 create_pretraining_data.py:255-386.
    """

    sentence_task = "sentence_order"
    meanings = ("A and B are in order", "A and B are swapped")
    none_planned = "no document has two sentences, which a pair needs"

    @property
    def _has_random(self) -> bool:
        return self.recipe.lone_sentences == "random"

    def refusal(self, num_documents) -> str:
        if num_documents > 1 or not self._has_random:
            return ""
        return (
            "all of the text is one document, so no sentence can come from another one; "
            "pass several documents as --input_format says (by default, empty lines "
            "separate them), or --lone_sentences=extend"
        )

    def plan(self, corpus, first, last, vocabulary, rng):
        return pairs.plan(
            corpus.sentences,
            corpus.documents,
            first,
            last,
            max_num_tokens=self.max_num_tokens(vocabulary),
            short_seq_prob=self.recipe.short_seq_prob,
            random_next=self._has_random,
            random_share=0.0,
            swapped_share=0.5,
            rng=rng,
        )

    def labels(self) -> tuple[Feature, ...]:
        if not self.masks.are_drawn:
            return super().labels()
        # Nothing that was released reads it, but it is part of the release's records.
        length = self.recipe.max_seq_length
        return (Feature("token_boundary", "int64", length, 2), *super().labels())

    def pack(self, corpus, planned, tokens, vocabulary):
        batch, is_text = super().pack(corpus, planned, tokens, vocabulary)
        if self.masks.are_drawn:
            is_token = batch["input_mask"] > 0
            begins = _boundaries(batch["input_ids"], is_token, vocabulary)
            batch["token_boundary"] = begins.view(np.uint8)
        return batch, is_text

    # --- Inspection ------------------------------------------------------------------

    def rules(self, batch, layout, vocabulary) -> Iterator[Rule]:
        yield from super().rules(batch, layout, vocabulary)
        if "token_boundary" in batch:
            is_token = np.arange(layout.text.shape[1]) < layout.lengths[:, None]
            yield Rule(
                "token_boundary",
                batch["token_boundary"]
                != _boundaries(layout.text, is_token, vocabulary),
                "must be 1 at [CLS], [SEP] and where a word begins, and 0 elsewhere",
            )

    def _label_rule(self, labels) -> Rule:
        is_broken = (labels < 0) | (labels > 1)
        return Rule(
            "next_sentence_labels", is_broken, "must be 0 (in order) or 1 (swapped)"
        )

    def sums(self, batch) -> dict[str, int]:
        return {"swapped": int(batch["next_sentence_labels"].sum())}

    def figures(self, vocabulary) -> list[figures.Figures]:
        return [_Order(self.recipe.max_seq_length, vocabulary)]

    def _label_report(self, counts) -> str:
        number = counts["instances"]
        said = f"{counts['swapped'] / number:.1%} labeled as swapped"
        if self._has_random:
            said += f", {counts['random_next'] / number:.1%} with random text"
        return said


def _boundaries(ids, is_token, vocabulary):
    """bool [batch, seq_length]: special tokens, and the first piece of each word."""
    # Broken records may have ids that are in no vocabulary.
    return is_token & ~vocabulary.is_continuation.take(ids, mode="clip")


class _Order(Sides):
    """Counts lengths of the two sides, and those that are swapped."""

    title, names = "Sentence order", ("in order", "swapped")
    question = "Are A and B in order?"
    note = "half are swapped by choice"
    rule = "half of the pairs must be swapped, or somewhat more with random ones"
    advice = ""

    def most(self, recipe) -> float:
        return MOST_RANDOM if recipe.lone_sentences == "random" else 0.5

"""Draws masks when records are written, as in the release."""

from collections.abc import Iterator

import numpy as np

from text.instances import figures
from text.instances.instances import Layout, Masks, Rule
from text.instances.masking import Masking, mask, prediction_counts
from text.records.schema import Feature

OUTCOMES = ("[MASK]", "unchanged", "a random token")

_MASK_RATE_TOLERANCE = 0.01
# A word that is too long leaves its slots empty; so do n-grams that touch others, if nearly
# all tokens are asked for.
_WHOLE_WORD_SHORTFALL, _NGRAM_SHORTFALL = 0.1, 0.25


class StaticMasks(Masks):
    """Positions, originals and weights of the tokens to predict, and corrupted input.

    Source: google-research/bert@eedf571 create_pretraining_data.py:133-140, 342-415.
    """

    are_drawn = True
    passes_differ = True

    def schema(self) -> tuple[Feature, ...]:
        most, length = self.recipe.max_predictions_per_seq, self.recipe.max_seq_length
        return (
            Feature("masked_lm_positions", "int64", most, length),
            Feature("masked_lm_ids", "int64", most, "vocab_size"),
            Feature("masked_lm_weights", "float32", most, 2),
        )

    @property
    def _may_lack(self) -> bool:
        """Whether a record may have fewer predictions than were asked for."""
        return self.recipe.do_whole_word_mask or self.recipe.ngram > 1

    @property
    def masking(self) -> Masking:
        return Masking(
            masked_lm_prob=self.recipe.masked_lm_prob,
            max_predictions_per_seq=self.recipe.max_predictions_per_seq,
            mask_share=self.recipe.mask_share,
            random_share=self.recipe.random_share,
            whole_words=self.recipe.do_whole_word_mask,
            ngram=self.recipe.ngram,
            favor_shorter_ngram=self.recipe.favor_shorter_ngram,
        )

    def apply(self, batch, candidates, word_starts, vocabulary, rng):
        lengths = batch["input_mask"].sum(axis=1, dtype=np.int64)
        masked, outcomes = mask(
            batch["input_ids"],
            candidates,
            lengths,
            word_starts,
            self.masking,
            vocabulary,
            rng,
        )
        most = self.recipe.max_predictions_per_seq
        wanted = prediction_counts(lengths, self.recipe.masked_lm_prob)
        return masked, {
            "predictions": int(outcomes.sum()),
            "predictions_to_mask": int(outcomes[0]),
            "predictions_kept": int(outcomes[1]),
            "predictions_to_random": int(outcomes[2]),
            "predictions_over_maximum": int(np.maximum(wanted - most, 0).sum()),
        }

    def layout(self, batch) -> Layout:
        text = batch["input_ids"].copy()
        is_predicted = batch["masked_lm_weights"] == 1
        positions = np.clip(batch["masked_lm_positions"], 0, text.shape[1] - 1)
        rows, slots = np.nonzero(is_predicted)
        text[rows, positions[rows, slots]] = batch["masked_lm_ids"][rows, slots]
        lengths = np.clip(batch["input_mask"].sum(axis=1), 0, text.shape[1])
        return Layout(text, lengths, is_predicted)

    def rules(self, batch, layout, vocabulary, is_described) -> Iterator[Rule]:
        weights, positions = batch["masked_lm_weights"], batch["masked_lm_positions"]
        is_predicted = layout.is_predicted
        slots = np.arange(weights.shape[1])
        yield Rule(
            "masked_lm_weights",
            weights != (slots < np.maximum(1, is_predicted.sum(axis=1))[:, None]),
            "must be 1 for every prediction, at least one, then 0 for padding",
        )
        yield Rule(
            "masked_lm_positions",
            is_predicted
            & (
                (positions < len(vocabulary.head))
                | (positions >= layout.lengths[:, None])
            ),
            "must be within the tokens",
        )
        yield Rule(
            "masked_lm_positions",
            is_predicted & (np.diff(positions, axis=1, prepend=-1) <= 0),
            "must rise from one prediction to the next",
        )
        special = [*vocabulary.never_text, vocabulary.sep_id, vocabulary.end_id]
        yield Rule(
            "masked_lm_ids",
            is_predicted & np.isin(batch["masked_lm_ids"], special),
            "must be a token of the text: special tokens are never predicted",
        )
        for feature in ("masked_lm_positions", "masked_lm_ids"):
            is_broken = ~is_predicted & (batch[feature] != 0)
            yield Rule(feature, is_broken, "must be 0 for padding")
        if is_described:
            yield self._as_many_as_asked_for(layout, vocabulary)

    def _as_many_as_asked_for(self, layout, vocabulary):
        most = self.recipe.max_predictions_per_seq
        wanted = _wanted(layout, self.recipe, vocabulary)[:, None]
        is_wrong = layout.is_predicted != (np.arange(most) < wanted)
        if self._may_lack:
            is_wrong &= layout.is_predicted
        asked = "fewer" if self._may_lack else "a different number of"
        return Rule(
            "masked_lm_weights",
            is_wrong,
            f"--masked_lm_prob={self.recipe.masked_lm_prob:g} asks for {asked} "
            "predictions",
        )

    def figures(self, vocabulary) -> list[figures.Figures]:
        return [_Predictions(self.recipe.max_predictions_per_seq, vocabulary)]


def _wanted(layout, recipe, vocabulary):
    """How many predictions records ask for: int64 [batch]."""
    counts = prediction_counts(layout.lengths, recipe.masked_lm_prob)
    most = np.minimum(recipe.max_predictions_per_seq, layout.words(vocabulary).sum(1))
    return np.minimum(counts, most)


class _Predictions(figures.Figures):
    """Counts the tokens to predict, and what replaces them."""

    def __init__(self, most, vocabulary):
        self._vocabulary = vocabulary
        self._counts = np.zeros(most + 1, np.int64)
        self._percents = np.zeros(101, np.int64)  # by the share of a record's tokens
        self._outcomes = np.zeros(3, np.int64)
        self._predicted = np.zeros(len(vocabulary), np.int64)
        self._tokens = 0
        # The expected outcomes and their variance.
        self._expected, self._variance = np.zeros(3), np.zeros(3)
        self._wanted = self._found = 0  # in records whose rate is known
        self._least_share = 1.0  # of the wanted predictions

    def add(self, batch, layout, recipe) -> None:
        counts = layout.is_predicted.sum(axis=1)
        figures.count(self._counts, counts)
        figures.count(self._percents, np.rint(100 * counts / layout.lengths))
        self._tokens += int(layout.lengths.sum())
        self._add_outcomes(batch, layout.is_predicted, recipe)
        if recipe.masked_lm_prob:
            self._wanted += int(_wanted(layout, recipe, self._vocabulary).sum())
            self._found += int(counts.sum())
            if recipe.do_whole_word_mask:
                self._least_share = 1 - _WHOLE_WORD_SHORTFALL
            if recipe.ngram > 1:
                self._least_share = 1 - _NGRAM_SHORTFALL

    def _add_outcomes(self, batch, is_predicted, recipe):
        originals = batch["masked_lm_ids"][is_predicted]
        rows = np.nonzero(is_predicted)[0]
        shown = batch["input_ids"][rows, batch["masked_lm_positions"][is_predicted]]
        is_mask = shown == self._vocabulary.mask_id
        is_kept = shown == originals
        figures.count(self._outcomes, np.where(is_mask, 0, np.where(is_kept, 1, 2)))
        figures.count(self._predicted, originals)
        # A random token is occasionally [MASK] or the original.
        by_chance = recipe.random_share / len(self._vocabulary)
        kept_share = 1 - recipe.mask_share - recipe.random_share
        shares = np.array([recipe.mask_share, kept_share, recipe.random_share])
        shares += by_chance * np.array([1, 1, -2])
        self._expected += len(originals) * shares
        self._variance += len(originals) * shares * (1 - shares)

    def implausible(self) -> Iterator[tuple[str, str]]:
        yield from self._implausible_rate()
        deviation = np.abs(self._outcomes - self._expected)
        if (deviation > figures.DEVIATIONS * np.sqrt(self._variance) + 0.5).any():
            yield (
                "the shares of [MASK], original and random token must be "
                + figures.percents(self._expected_shares),
                f"they are {figures.percents(self._shares)}",
            )

    def _implausible_rate(self):
        wanted, found = self._wanted, self._found
        slack = _MASK_RATE_TOLERANCE * wanted + figures.DEVIATIONS * np.sqrt(wanted)
        if not self._least_share * wanted - slack <= found <= wanted + slack:
            yield (
                "predictions must match --masked_lm_prob (by default, the description's)",
                f"it asks for {wanted:,} predictions, but there are {found:,}",
            )

    @property
    def _shares(self):
        return self._outcomes / max(1, self._outcomes.sum())

    @property
    def _expected_shares(self):
        return self._expected / max(1, self._expected.sum())

    @property
    def _share_of_tokens(self):
        return self._outcomes.sum() / max(1, self._tokens)

    def lines(self) -> list[tuple[str, str]]:
        outcomes = [
            f"{share:.1%} {name}"
            for name, share in zip(OUTCOMES, self._shares, strict=True)
        ]
        expected = figures.percents(self._expected_shares)
        return [
            (
                "Predictions",
                f"{figures.mean(self._counts):.1f} per record, "
                f"{self._share_of_tokens:.2%} of its tokens",
            ),
            ("Replaced by", f"{', '.join(outcomes)}; expected {expected}"),
        ]

    def plots(self) -> list[figures.Histogram | figures.Bars]:
        outcomes = [
            (name, share, f"{share:.2%}, expected {expected:.2%}")
            for name, share, expected in zip(
                OUTCOMES, self._shares, self._expected_shares, strict=True
            )
        ]
        return [
            figures.lengths("Predictions per record", self._counts, "predictions"),
            figures.Histogram(
                "Share of a record's tokens to predict",
                self._percents,
                "% of its tokens",
                f"{self._share_of_tokens:.2%} of all tokens",
            ),
            figures.Bars(
                "What replaces the tokens to predict",
                outcomes,
                f"{self._outcomes.sum():,} predictions",
            ),
            figures.most_frequent_tokens(
                "Most frequent tokens to predict",
                self._predicted,
                self._vocabulary,
                "should be similar to those of the text",
            ),
        ]

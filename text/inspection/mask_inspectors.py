"""Checks and counts the tokens to predict."""

from collections.abc import Iterator

import numpy as np

from text.inspection import figures
from text.inspection.inspector import MaskInspector, Rule, Unmasked
from text.instances.masking import prediction_counts

OUTCOMES = ("[MASK]", "unchanged", "a random token")

_MASK_RATE_TOLERANCE = 0.01
# A word that is too long leaves its slots empty; so do n-grams that touch others, if nearly
# all tokens are asked for.
_WHOLE_WORD_SHORTFALL, _NGRAM_SHORTFALL = 0.1, 0.25


class WordStartInspector(MaskInspector):
    """Of records whose masks are drawn in training."""

    def rules(self, batch, text) -> Iterator[Rule]:
        if "word_starts" in batch:
            starts, is_word = batch["word_starts"], text.words(self.vocabulary)
            begins = is_word & ~np.roll(is_word, 1, axis=1)
            yield Rule(
                "word_starts",
                (starts < begins) | (starts > is_word),
                "must be 1 after a special token, 0 or 1 in the text, and 0 elsewhere",
            )


class StaticMaskInspector(MaskInspector):
    """Of records that say which tokens to predict."""

    def unmask(self, batch) -> Unmasked:
        text = super().unmask(batch)
        ids, is_predicted = text.ids.copy(), batch["masked_lm_weights"] == 1
        positions = np.clip(batch["masked_lm_positions"], 0, ids.shape[1] - 1)
        rows, slots = np.nonzero(is_predicted)
        ids[rows, positions[rows, slots]] = batch["masked_lm_ids"][rows, slots]
        return Unmasked(ids, text.lengths, is_predicted)

    def rules(self, batch, text) -> Iterator[Rule]:
        weights, positions = batch["masked_lm_weights"], batch["masked_lm_positions"]
        is_predicted, vocabulary = text.is_predicted, self.vocabulary
        slots = np.arange(weights.shape[1])
        yield Rule(
            "masked_lm_weights",
            weights != (slots < np.maximum(1, is_predicted.sum(axis=1))[:, None]),
            "must be 1 for every prediction, at least one, then 0 for padding",
        )
        is_outside = (positions < len(vocabulary.head)) | (positions > text.last)
        special = [*vocabulary.never_text, vocabulary.sep_id, vocabulary.end_id]
        for feature, is_broken, rule in (
            ("masked_lm_positions", is_outside, "must be within the tokens"),
            (
                "masked_lm_positions",
                np.diff(positions, axis=1, prepend=-1) <= 0,
                "must rise from one prediction to the next",
            ),
            (
                "masked_lm_ids",
                np.isin(batch["masked_lm_ids"], special),
                "must be a token of the text: special tokens are never predicted",
            ),
        ):
            yield Rule(feature, is_predicted & is_broken, rule)
        for feature in ("masked_lm_positions", "masked_lm_ids"):
            is_broken = ~is_predicted & (batch[feature] != 0)
            yield Rule(feature, is_broken, "must be 0 for padding")
        if self.is_described:
            yield self._as_many_as_asked_for(text)

    def _as_many_as_asked_for(self, text):
        options, asked = self.options, "a different number of"
        counts = _num_expected(text, options, self.vocabulary)[:, None]
        is_wrong = text.is_predicted != (
            np.arange(options.max_predictions_per_seq) < counts
        )
        if options.do_whole_word_mask or options.ngram > 1:  # there may be fewer
            is_wrong &= text.is_predicted
            asked = "fewer"
        return Rule(
            "masked_lm_weights",
            is_wrong,
            f"--masked_lm_prob={options.masked_lm_prob:g} asks for {asked} predictions",
        )

    def figures(self) -> list[figures.RunningSums]:
        return [_Predictions(self.options.max_predictions_per_seq, self.vocabulary)]


def _num_expected(text, options, vocabulary):
    """How many predictions records ask for: int64 [batch]."""
    counts = prediction_counts(text.lengths, options.masked_lm_prob)
    most = np.minimum(options.max_predictions_per_seq, text.words(vocabulary).sum(1))
    return np.minimum(counts, most)


class _Predictions(figures.RunningSums):
    """Counts the tokens to predict, and what replaces them."""

    def __init__(self, most, vocabulary):
        self._vocabulary = vocabulary
        self._counts = np.zeros(most + 1, np.int64)
        self._percents = np.zeros(101, np.int64)  # by the share of a record's tokens
        self._outcomes = np.zeros(3, np.int64)
        self._tokens = 0
        # The expected outcomes and their variance.
        self._expected, self._variance = np.zeros(3), np.zeros(3)
        self._num_expected = self._num_predictions = 0  # in records whose rate is known
        self._least_share = 1.0  # of the wanted predictions

    def add(self, batch, text, options) -> None:
        counts = text.is_predicted.sum(axis=1)
        figures.count(self._counts, counts)
        figures.count(self._percents, np.rint(100 * counts / text.lengths))
        self._tokens += int(text.lengths.sum())
        self._add_outcomes(batch, text.is_predicted, options)
        if options.masked_lm_prob:
            self._num_expected += int(
                _num_expected(text, options, self._vocabulary).sum()
            )
            self._num_predictions += int(counts.sum())
            if options.do_whole_word_mask:
                self._least_share = 1 - _WHOLE_WORD_SHORTFALL
            if options.ngram > 1:
                self._least_share = 1 - _NGRAM_SHORTFALL

    def _add_outcomes(self, batch, is_predicted, options):
        originals = batch["masked_lm_ids"][is_predicted]
        rows = np.nonzero(is_predicted)[0]
        shown = batch["input_ids"][rows, batch["masked_lm_positions"][is_predicted]]
        is_mask = shown == self._vocabulary.mask_id
        is_kept = shown == originals
        figures.count(self._outcomes, np.where(is_mask, 0, np.where(is_kept, 1, 2)))
        # A random token is occasionally [MASK] or the original.
        by_chance = options.random_share / len(self._vocabulary)
        kept_share = 1 - options.mask_share - options.random_share
        shares = np.array([options.mask_share, kept_share, options.random_share])
        shares += by_chance * np.array([1, 1, -2])
        self._expected += len(originals) * shares
        self._variance += len(originals) * shares * (1 - shares)

    def find_implausible(self) -> Iterator[tuple[str, str]]:
        yield from self._implausible_rate()
        deviation = np.abs(self._outcomes - self._expected)
        if (deviation > figures.DEVIATIONS * np.sqrt(self._variance) + 0.5).any():
            yield (
                "the shares of [MASK], original and random token must be "
                + figures.percents(self._expected_shares),
                f"they are {figures.percents(self._shares)}",
            )

    def _implausible_rate(self):
        expected, actual = self._num_expected, self._num_predictions
        slack = _MASK_RATE_TOLERANCE * expected + figures.DEVIATIONS * np.sqrt(expected)
        if not self._least_share * expected - slack <= actual <= expected + slack:
            yield (
                "predictions must match --masked_lm_prob (by default, the description's)",
                f"it asks for {expected:,} predictions, but there are {actual:,}",
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
        ]

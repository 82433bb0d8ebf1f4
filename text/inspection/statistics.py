"""Counts the contents of records, and judges whether the counts are plausible."""

import hashlib
from collections.abc import Iterator

import numpy as np

from text.inspection.rules import Layout, Recipe
from text.tokenizers.vocabulary import Vocabulary

OUTCOMES = ("[MASK]", "left as they are", "a random token")

# How many standard deviations pass for chance: one set of records in two millions is
# reported without a reason.
_DEVIATIONS = 5
_MOST_RANDOM_NEXT = 0.9
_MOST_REPEATED = 0.01
_MASK_RATE_TOLERANCE = 0.01
# In whole-word mode a word that is too long leaves its places empty.
_WHOLE_WORD_SHORTFALL = 0.1
# No two passes over a text are likely to choose the same so many tokens; with fewer, a
# record may well come up twice.
_MANY_PREDICTIONS = 5
_REMEMBERED = 1 << 19


class Repeats:
    """Counts records that come more than once, in bounded memory.

    It remembers hashes of 64 bits. When there are half a million of them it forgets every
    other one, and from then on knows only of records whose hash is of the kind that it
    keeps: a half, a quarter ... of all records, but of these every copy.

    Attributes:
        kept_share: the share of all records that it knows of.
    """

    def __init__(self, most_remembered: int = _REMEMBERED):
        self.kept_share = 1.0
        self._most_remembered = most_remembered
        self._copies = {}  # (hash, whether it has many predictions) -> how many

    def __len__(self) -> int:
        return len(self._copies)

    def add(self, example: bytes, num_predictions: int) -> None:
        """Adds a serialized record."""
        digest = hashlib.blake2b(example, digest_size=8).digest()
        value = int.from_bytes(digest, "little")
        if not self._keeps(value):
            return
        key = value, num_predictions >= _MANY_PREDICTIONS
        self._copies[key] = self._copies.get(key, 0) + 1
        if len(self._copies) > self._most_remembered:
            self.kept_share /= 2
            self._copies = {k: n for k, n in self._copies.items() if self._keeps(k[0])}

    def _keeps(self, value):
        return value < self.kept_share * (1 << 64)

    def share(self, only_many_predictions: bool = False) -> float:
        """The share of records that came before."""
        counts = [
            count
            for (_, has_many), count in self._copies.items()
            if has_many or not only_many_predictions
        ]
        return 1 - len(counts) / max(1, sum(counts)) if counts else 0.0


class Statistics:
    """Sums over records; their size does not depend on how many records there are.

    Attributes:
        records: int.
        lengths, a_lengths, b_lengths: int64 [max_seq_length + 1], records by their number
            of tokens, of all and of the two sides.
        predictions: int64 [max_predictions_per_seq + 1], records by predictions.
        masked_percents, unknown_percents: int64 [101], records by the share of their
            tokens that are predicted, and that are [UNK].
        outcomes: int64 [3], predictions by what stands in their place, see OUTCOMES.
        labels: int64 [2], records whose second side is really next, and random.
        tokens, predicted: int64 [vocabulary size], the text's tokens, and those of them
            that are predicted.
        repeats: Repeats.
    """

    def __init__(
        self, max_seq_length: int, max_predictions_per_seq: int, vocabulary: Vocabulary
    ):
        def zeros(length):
            return np.zeros(length, np.int64)

        self.vocabulary = vocabulary
        self.records = 0
        self.lengths = zeros(max_seq_length + 1)
        self.a_lengths = zeros(max_seq_length + 1)
        self.b_lengths = zeros(max_seq_length + 1)
        self.predictions = zeros(max_predictions_per_seq + 1)
        self.masked_percents, self.unknown_percents = zeros(101), zeros(101)
        self.outcomes, self.labels = zeros(3), zeros(2)
        self.tokens, self.predicted = zeros(len(vocabulary)), zeros(len(vocabulary))
        # What chance is expected to give, and its variance.
        self.expected_outcomes, self._outcome_variance = np.zeros(3), np.zeros(3)
        self.expected_predictions = 0  # in records whose rate is known
        self._predictions_of_known_rate = 0
        self._least_share_of_predictions = 1.0
        self._pairs, self._random_pairs = 0, 0  # where random next sentences are wanted
        self.repeats = Repeats()

    def add(
        self,
        batch: dict[str, np.ndarray],
        layout: Layout,
        examples: list[bytes],
        recipe: Recipe,
    ) -> None:
        """Adds records that break no rule, decoded and as they were."""
        text, lengths, first_seps, is_predicted = layout
        counts = is_predicted.sum(axis=1)
        labels = batch["next_sentence_labels"][:, 0]
        self.records += len(lengths)
        _count(self.lengths, lengths)
        _count(self.a_lengths, first_seps - 1)
        _count(self.b_lengths, lengths - first_seps - 2)
        _count(self.predictions, counts)
        _count(self.masked_percents, np.rint(100 * counts / lengths))
        is_text = (np.arange(text.shape[1]) < lengths[:, None]) & (
            (text != self.vocabulary.cls_id) & (text != self.vocabulary.sep_id)
        )
        is_unknown = is_text & (text == self.vocabulary.unk_id)
        unknown = np.rint(100 * is_unknown.sum(axis=1) / is_text.sum(axis=1))
        _count(self.unknown_percents, unknown)
        _count(self.tokens, text[is_text])
        _count(self.labels, labels)
        if recipe.random_next:
            self._pairs += len(labels)
            self._random_pairs += int(labels.sum())
        self._add_predictions(batch, is_predicted, recipe)
        if recipe.masked_lm_prob:
            most = len(self.predictions) - 1
            self.expected_predictions += int(recipe.predictions(lengths, most).sum())
            self._predictions_of_known_rate += int(counts.sum())
            if recipe.whole_words:
                self._least_share_of_predictions = 1 - _WHOLE_WORD_SHORTFALL
        for example, count in zip(examples, counts.tolist(), strict=True):
            self.repeats.add(example, count)

    def _add_predictions(self, batch, is_predicted, recipe):
        originals = batch["masked_lm_ids"][is_predicted]
        rows = np.nonzero(is_predicted)[0]
        shown = batch["input_ids"][rows, batch["masked_lm_positions"][is_predicted]]
        is_mask = shown == self.vocabulary.mask_id
        is_kept = shown == originals
        _count(self.outcomes, np.where(is_mask, 0, np.where(is_kept, 1, 2)))
        _count(self.predicted, originals)
        # A random token is now and then [MASK], or the original.
        by_chance = recipe.random_share / len(self.vocabulary)
        kept_share = 1 - recipe.mask_share - recipe.random_share
        shares = np.array([recipe.mask_share, kept_share, recipe.random_share])
        shares += by_chance * np.array([1, 1, -2])
        self.expected_outcomes += len(originals) * shares
        self._outcome_variance += len(originals) * shares * (1 - shares)

    def implausible(self) -> Iterator[tuple[str, str]]:
        """Yields (rule, what was found) where the sums are not what chance would give."""
        yield from self._implausible_mask_rate()
        deviation = np.abs(self.outcomes - self.expected_outcomes)
        if (deviation > _DEVIATIONS * np.sqrt(self._outcome_variance) + 0.5).any():
            wanted = self.expected_outcomes / max(1, self.expected_outcomes.sum())
            yield (
                "the shares of [MASK], original and random token must be "
                + _percents(wanted),
                f"they are {_percents(self.outcome_shares)}",
            )
        if self._pairs:
            share = self._random_pairs / self._pairs
            least, most = (
                bound + sign * _DEVIATIONS * np.sqrt(bound * (1 - bound) / self._pairs)
                for bound, sign in ((0.5, -1), (_MOST_RANDOM_NEXT, 1))
            )
            if not least <= share <= most:
                yield (
                    "a half or somewhat more of the second sides must be random",
                    f"{share:.1%} are; if lines or documents are too long or too short "
                    "to have a next sentence, split them otherwise",
                )
        share = self.repeats.share(only_many_predictions=True)
        if share > _MOST_REPEATED:
            yield (
                "records must not repeat others",
                f"{share:.1%} of those with {_MANY_PREDICTIONS} or more "
                "predictions do; was a file copied?",
            )

    def _implausible_mask_rate(self):
        wanted, found = self.expected_predictions, self._predictions_of_known_rate
        slack = _MASK_RATE_TOLERANCE * wanted + _DEVIATIONS * np.sqrt(wanted)
        least = self._least_share_of_predictions * wanted - slack
        if not least <= found <= wanted + slack:
            yield (
                "--masked_lm_prob (of the description, if it is not given) must hold",
                f"it asks for {wanted:,} predictions, and there are {found:,}",
            )

    @property
    def outcome_shares(self) -> np.ndarray:
        return self.outcomes / max(1, self.outcomes.sum())

    @property
    def num_tokens(self) -> int:
        """With [CLS] and [SEP]."""
        return int(self.lengths @ np.arange(len(self.lengths)))

    @property
    def num_predictions(self) -> int:
        return int(self.outcomes.sum())

    @property
    def unknown_share(self) -> float:
        total = self.tokens.sum()
        return float(self.tokens[self.vocabulary.unk_id] / max(1, total))

    @property
    def random_share(self) -> float:
        return float(self.labels[1] / max(1, self.labels.sum()))


def _count(counts, values):
    counts += np.bincount(values.astype(np.int64), minlength=len(counts))


def _percents(shares):
    return " / ".join(f"{share:.1%}" for share in shares)


def mean(counts: np.ndarray) -> float:
    """Of values 0, 1, 2 ... that come up `counts` times."""
    return float(counts @ np.arange(len(counts)) / max(1, counts.sum()))


def median(counts: np.ndarray) -> int:
    """Of values 0, 1, 2 ... that come up `counts` times."""
    return int(np.searchsorted(np.cumsum(counts), counts.sum() / 2))


def most_frequent(counts: np.ndarray, number: int) -> list[int]:
    """The ids with the largest counts, the largest first; none that is 0."""
    order = np.argsort(-counts, kind="stable")[:number]
    return [int(id) for id in order if counts[id]]


def numbers(statistics: Statistics) -> list[tuple[str, str]]:
    """The sums in words: (name, value)."""
    s = statistics
    wanted = s.expected_outcomes / max(1, s.expected_outcomes.sum())
    outcomes = [
        f"{share:.1%} {name}"
        for name, share in zip(OUTCOMES, s.outcome_shares, strict=True)
    ]
    looked_at = ""
    if s.repeats.kept_share < 1:
        looked_at = f", judged by {s.repeats.kept_share:.2%} of them"
    return [
        ("Records", f"{s.records:,} that break no rule"),
        (
            "Tokens",
            f"{mean(s.lengths):.1f} of a record, median {median(s.lengths)}, "
            f"{s.lengths[-1] / max(1, s.records):.1%} full ({len(s.lengths) - 1})",
        ),
        (
            "Sides",
            f"A {mean(s.a_lengths):.1f} and B {mean(s.b_lengths):.1f} tokens, median "
            f"{median(s.a_lengths)} and {median(s.b_lengths)}",
        ),
        (
            "Predictions",
            f"{mean(s.predictions):.1f} of a record, "
            f"{s.num_predictions / max(1, s.num_tokens):.2%} of its tokens",
        ),
        (
            "In their place",
            f"{', '.join(outcomes)}; expected {_percents(wanted)}",
        ),
        ("Next sentence", f"{s.random_share:.1%} random"),
        ("[UNK]", f"{s.unknown_share:.2%} of the text's tokens"),
        ("Repeated", f"{s.repeats.share():.2%} of the records{looked_at}"),
    ]

"""What records hold: one schema per kind of record."""

from collections.abc import Mapping
from typing import NamedTuple


class Feature(NamedTuple):
    """One feature of a record: `length` values, all int64 or all float32.

    With `below`, they are whole numbers from 0 to less than it. A name, such as
    "vocab_size", is that of a size which is not known where records are declared.
    """

    name: str
    dtype: str
    length: int
    below: int | str | None = None

    def limit(self, sizes: Mapping[str, int]) -> int | None:
        """`below` as a number; None where there is no limit or its size is unknown."""
        return sizes.get(self.below) if isinstance(self.below, str) else self.below


def pretraining_schema(
    max_seq_length: int, max_predictions_per_seq: int
) -> tuple[Feature, ...]:
    """The features of a pre-training record.

    Source: google-research/bert@eedf571 create_pretraining_data.py:133-140.
    """
    return (
        Feature("input_ids", "int64", max_seq_length, "vocab_size"),
        Feature("input_mask", "int64", max_seq_length, 2),
        Feature("segment_ids", "int64", max_seq_length, "type_vocab_size"),
        Feature(
            "masked_lm_positions", "int64", max_predictions_per_seq, max_seq_length
        ),
        Feature("masked_lm_ids", "int64", max_predictions_per_seq, "vocab_size"),
        Feature("masked_lm_weights", "float32", max_predictions_per_seq, 2),
        Feature("next_sentence_labels", "int64", 1, 2),
    )

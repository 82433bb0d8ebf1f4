"""How scores are told to people."""

import pytest

from training import metrics


@pytest.mark.parametrize(
    ("name", "value", "percentages", "told"),
    [
        ("accuracy", 0.83125, False, "83.12%"),
        ("masked_lm_accuracy", 0.5, False, "50.00%"),
        ("f1_PER", 0.25, False, "25.00%"),
        ("f1", 71.5, True, "71.50%"),
        ("HasAns_exact", 61.25, True, "61.25%"),
        ("best_f1_thresh", -1.25, True, "-1.25"),
        ("loss", 0.69314, True, "0.6931"),
        ("pearson", 0.75, False, "0.75"),
        ("total", 10570, True, "10,570"),
    ],
)
def test_shares_are_told_in_percent_whatever_files_contain(
    name, value, percentages, told
):
    assert metrics.in_words(name, value, percentages) == told

"""Entities on the page of mistakes: their probabilities, and the words around them."""

import numpy as np
import pytest

from text.tasks import tags
from training.finetuning import entities


def test_probabilities_of_mistakes_are_those_of_whole_entities():
    """The file has one person of two words; two of one word each were found."""
    labels = ["O", "B-PER", "I-PER"]
    chances = np.array([[0.01, 0.98, 0.01], [0.01, 0.9, 0.09]])
    true = [tags.Entity("PER", 0, 2)]
    found = [tags.Entity("PER", 0, 1), tags.Entity("PER", 1, 2)]
    judged = entities.judge(
        ("New", "York"), (true, found), chances, labels, ["B-PER", "I-PER"]
    )
    odds = {j.text: (j.gold, j.predicted, dict(j.probabilities)) for j in judged}
    nothing = "no entity"
    assert odds == {
        "[New] York": (nothing, "PER", pytest.approx({nothing: 0.01, "PER": 0.98})),
        "[New York]": (
            *("PER", nothing),
            pytest.approx({nothing: 0.01 * 0.01, "PER": 0.98 * 0.09}),
        ),
        "New [York]": (nothing, "PER", pytest.approx({nothing: 0.01, "PER": 0.9})),
    }


def test_mistakes_are_shown_among_the_words_around():
    words = [f"w{i}" for i in range(400)]
    assert entities._in_context(words[:3], 1, 3) == "w0 [w1 w2]"
    shown = entities._in_context(words, 200, 202).split(" ")
    assert shown[0] == shown[-1] == "…" and len(shown) < 110
    assert shown[51:53] == ["[w200", "w201]"]

"""RoBERTas of transformers without a task compute the same here, and come back."""

import random

import pytest

from tests.training.interchange.test_transformers_models import check
from tests.training.interchange.transformers_configs import case

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("their_class", "number"),
    [("RobertaForMaskedLM", 2), ("RobertaForCausalLM", 3), ("RobertaModel", 4)],
)
def test_a_roberta_without_a_task(their_class, number, tmp_path):
    usual = case("roberta", their_class, number, random.Random(number), False)
    outcome = check(usual, tmp_path)
    assert not any(isinstance(part, str) for part in outcome), outcome

"""A teacher and a student of a distillation by words fill masks, which no GPT does."""

import dataclasses

import pytest

from errors import UserError
from family.gpt import next_token
from tests import test_run_pretraining_distilled as distilled
from tests.pretraining import TINY

given = distilled.given
CAUSAL = dataclasses.replace(TINY, attention_direction="left_to_right")


def test_next_tokens_are_not_learned_from_a_teacher(given, tmp_path):
    message = (
        "next_token does not learn masked words, .* use masked_lm_next_sentence or"
    )
    with pytest.raises(UserError, match=message):
        distilled.run(tmp_path, **given | {"objective": "next_token", "config": CAUSAL})


def test_a_teacher_that_predicts_next_tokens_is_refused(given, tmp_path):
    network = next_token.NextToken().network(CAUSAL)
    folder = distilled.write(
        tmp_path / "causal", network, CAUSAL, objective="next_token"
    )
    message = "next_token, which does not fill masks; use"
    distilled.refused(tmp_path, given, folder, message)
    assert not (tmp_path / "output").exists()

"""Losses by source are those of the rows of each."""

from modeling.objectives.masked_lm import MaskedLM
from modeling.objectives.sentence_pairs import MaskedLMNextSentence
from tests import by_source


def test_losses_by_source_are_those_of_its_rows():
    by_source.check(MaskedLMNextSentence())
    by_source.check(MaskedLM())

"""Lists the objectives of pre-training by name.

To add one, add a file next to this one and a row to OBJECTIVES.

This module loads no Keras, so that --help can list the names at once; what a row names is
imported when the row is called.
"""


def _masked_lm_next_sentence():
    from modeling.objectives.pretraining import MaskedLMNextSentence

    return MaskedLMNextSentence


def _masked_lm():
    from modeling.objectives.masked_lm import MaskedLM

    return MaskedLM


def _next_token():
    from modeling.objectives.next_token import NextToken

    return NextToken


def _masked_lm_sentence_order():
    from modeling.objectives.pretraining import MaskedLMSentenceOrder

    return MaskedLMSentenceOrder


# Each row is a function that imports and returns the class, an `Objective`.
OBJECTIVES = {
    "masked_lm_next_sentence": _masked_lm_next_sentence,
    "masked_lm": _masked_lm,
    "masked_lm_sentence_order": _masked_lm_sentence_order,
    "next_token": _next_token,
}

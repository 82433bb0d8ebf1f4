"""Lists the objectives of pre-training by name.

To add one, add a file next to this one and a row to OBJECTIVES.

This module loads no Keras, so that --help can list the names at once. Making an objective
does.
"""


def _masked_lm_next_sentence():
    from modeling.objectives.pretraining import MaskedLMNextSentence

    return MaskedLMNextSentence()


def _masked_lm():
    from modeling.objectives.masked_lm import MaskedLM

    return MaskedLM()


def _next_token():
    from modeling.objectives.next_token import NextToken

    return NextToken()


# Each row is a function that imports the class and makes the `Objective`.
OBJECTIVES = {
    "masked_lm_next_sentence": _masked_lm_next_sentence,
    "masked_lm": _masked_lm,
    "next_token": _next_token,
}

"""Lists the objectives of pre-training by name.

To add one, add a file next to this one and a row to OBJECTIVES.

This module loads no Keras, so that --help can list the names at once.
"""

from collections.abc import Callable
from typing import NamedTuple


class Kind(NamedTuple):
    """A row of the table.

    Attributes:
        load: imports and returns the class, an `Objective`.
        options: names of the arguments of its constructor, which are flags.
    """

    load: Callable[[], type]
    options: tuple[str, ...] = ()


def _masked_lm_next_sentence():
    from modeling.objectives.sentence_pairs import MaskedLMNextSentence

    return MaskedLMNextSentence


def _masked_lm():
    from modeling.objectives.masked_lm import MaskedLM

    return MaskedLM


def _next_token():
    from modeling.objectives.next_token import NextToken

    return NextToken


def _bidirectional_lm():
    from modeling.objectives.bidirectional_lm import BidirectionalLM

    return BidirectionalLM


def _masked_lm_sentence_order():
    from modeling.objectives.sentence_pairs import MaskedLMSentenceOrder

    return MaskedLMSentenceOrder


def _replaced_tokens():
    from modeling.objectives.replaced_tokens import ReplacedTokens

    return ReplacedTokens


def _span_corruption():
    from modeling.objectives.span_corruption import SpanCorruption

    return SpanCorruption


def _permuted():
    from modeling.objectives.permuted import Permuted

    return Permuted


OBJECTIVES = {
    "masked_lm_next_sentence": Kind(_masked_lm_next_sentence),
    "masked_lm": Kind(_masked_lm),
    "masked_lm_sentence_order": Kind(_masked_lm_sentence_order),
    "next_token": Kind(_next_token),
    "permuted": Kind(
        _permuted,
        ("released_spans", "mask_alpha", "mask_beta", "perm_size", "mem_len"),
    ),
    "bidirectional_lm": Kind(_bidirectional_lm),
    "replaced_tokens": Kind(
        _replaced_tokens,
        (
            "generator_hidden_size",
            "generator_layers",
            "generator_shares",
            "disc_weight",
            "repeat_positions",
        ),
    ),
    "span_corruption": Kind(
        _span_corruption, ("noise_density", "mean_noise_span_length")
    ),
}

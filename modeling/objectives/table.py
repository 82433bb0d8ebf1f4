"""Lists the objectives of pre-training by name.

To add one, add a file next to this one and a row to OBJECTIVES.

This module loads no Keras, so that help texts can list the names at once.
"""

import pkgutil
from typing import NamedTuple


class Kind(NamedTuple):
    """A row of the table.

    Attributes:
        name: "module:class" of an `Objective`.
        options: names of the arguments of its constructor, which are flags.
    """

    name: str
    options: tuple[str, ...] = ()

    def load(self) -> type:
        """Imports and returns the class."""
        return pkgutil.resolve_name(self.name)


OBJECTIVES = {
    "masked_lm_next_sentence": Kind(
        "modeling.objectives.sentence_pairs:MaskedLMNextSentence"
    ),
    "masked_lm": Kind("modeling.objectives.masked_lm:MaskedLM"),
    "masked_lm_sentence_order": Kind(
        "modeling.objectives.sentence_pairs:MaskedLMSentenceOrder"
    ),
    "next_token": Kind("modeling.objectives.next_token:NextToken"),
    "permuted": Kind(
        "modeling.objectives.permuted:Permuted",
        ("mask_alpha", "mask_beta", "mem_len"),
    ),
    "bidirectional_lm": Kind("modeling.objectives.bidirectional_lm:BidirectionalLM"),
    "replaced_tokens": Kind(
        "modeling.objectives.replaced_tokens:ReplacedTokens",
        (
            "generator_hidden_size",
            "generator_layers",
            "disc_weight",
        ),
    ),
    "span_corruption": Kind(
        "modeling.objectives.span_corruption:SpanCorruption",
        ("noise_density", "mean_noise_span_length"),
    ),
}

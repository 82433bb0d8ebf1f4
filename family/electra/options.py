"""The flags of the objective replaced_tokens."""

import dataclasses
import functools

import options

_field = functools.partial(
    options.field, only_for={"objective": "replaced_tokens"}, identity=True
)


@dataclasses.dataclass(frozen=True)
class ReplacedTokensOptions(options.Group):
    """ELECTRA's objective."""

    generator_hidden_size: float = _field(
        0.25,
        help="For replaced_tokens: the generator's share of hidden_size. The released "
        "small model has 1.0, base 0.33333, large 0.25.",
        above=0,
        at_most=1,
    )
    generator_layers: float = _field(
        1.0,
        help="For replaced_tokens: the generator's share of num_hidden_layers.",
        above=0,
        at_most=1,
    )
    disc_weight: float = _field(
        50.0,
        help="For replaced_tokens: the factor of the discriminator's loss.",
        above=0,
    )

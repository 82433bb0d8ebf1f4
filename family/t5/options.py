"""The flags of the objective span_corruption."""

import dataclasses
import functools

import options

_field = functools.partial(
    options.field, only_for={"objective": "span_corruption"}, identity=True
)


@dataclasses.dataclass(frozen=True)
class SpanCorruptionOptions(options.Group):
    """T5's objective."""

    noise_density: float = _field(
        0.15,
        help="For span_corruption: the share of tokens that a text loses.",
        above=0,
        below=1,
    )
    mean_noise_span_length: float = _field(
        3.0,
        help="For span_corruption: the mean number of tokens of the spans that a text "
        "loses.",
        at_least=1,
    )

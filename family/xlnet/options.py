"""The flags of the objective permuted."""

import dataclasses
import functools

import options
from errors import UserError

_field = functools.partial(
    options.field, only_for={"objective": "permuted"}, identity=True
)


@dataclasses.dataclass(frozen=True)
class PermutedOptions(options.Group):
    """XLNet's objective."""

    mask_alpha: int = _field(
        6,
        help="For permuted: a span of n tokens is in a context of n * mask_alpha // "
        "mask_beta tokens, without other spans.",
        at_least=1,
    )
    mask_beta: int = _field(1, help="For permuted: see --mask_alpha.", at_least=1)
    mem_len: int = _field(
        0,
        help="For permuted, on records of create_pretraining_data.py "
        "--instances=contiguous: how many positions of the rows before it a row sees. "
        "XLNet's release has 384.",
        at_most=1 << 20,
        at_least=0,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.mask_alpha < self.mask_beta:
            raise UserError(
                f"--mask_alpha={self.mask_alpha}: must be at least --mask_beta, "
                f"{self.mask_beta}, so that a span has a context"
            )

"""How gradients become an update: the optimizers by name, and their settings.

To add an optimizer, add a class to optimization.py and a row to OPTIMIZERS.

This module loads no Keras, so that --help can list the names at once; what a row names is
imported when the row is called.
"""

import dataclasses


def _adam_weight_decay():
    from modeling.optimization import AdamWeightDecay

    return AdamWeightDecay


def _electra_adam():
    from modeling.optimization import ElectraAdam

    return ElectraAdam


def _fairseq_adam():
    from modeling.optimization import FairseqAdam

    return FairseqAdam


def _lamb():
    from modeling.optimization import Lamb

    return Lamb


# Each row is a function that imports and returns the class.
OPTIMIZERS = {
    "adam_weight_decay": _adam_weight_decay,
    "electra_adam": _electra_adam,
    "fairseq_adam": _fairseq_adam,
    "lamb": _lamb,
}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How gradients become an update; the fields have the names of flags.

    Attributes:
        optimizer: a key of OPTIMIZERS.
        clip_norm: the largest norm of all gradients together; 0 leaves them as they are.
    """

    optimizer: str = "adam_weight_decay"
    bias_correction: bool = False
    adam_beta_2: float = 0.999
    weight_decay: float = 0.01
    clip_norm: float = 1.0

    def make(self, variables):
        """The optimizer, an `AdamWeightDecay`, for these keras.Variables."""
        return OPTIMIZERS[self.optimizer]()(
            variables,
            weight_decay_rate=self.weight_decay,
            beta_2=self.adam_beta_2,
            bias_correction=self.bias_correction,
        )

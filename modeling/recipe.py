"""How gradients become an update: the optimizers by name, and their settings.

To add an optimizer, add a class to optimization.py and a row to OPTIMIZERS.

This module loads no Keras, so that --help can list the names at once. Making an optimizer
does.
"""

import dataclasses


def _adam_weight_decay(variables, **settings):
    from modeling.optimization import AdamWeightDecay

    return AdamWeightDecay(variables, **settings)


def _fairseq_adam(variables, **settings):
    from modeling.optimization import FairseqAdam

    return FairseqAdam(variables, **settings)


def _lamb(variables, **settings):
    from modeling.optimization import Lamb

    return Lamb(variables, **settings)


# Each row is a function that imports the class and makes the optimizer.
OPTIMIZERS = {
    "adam_weight_decay": _adam_weight_decay,
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
        return OPTIMIZERS[self.optimizer](
            variables,
            weight_decay_rate=self.weight_decay,
            beta_2=self.adam_beta_2,
            bias_correction=self.bias_correction,
        )

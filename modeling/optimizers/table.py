"""How gradients become an update: the optimizers by name, and their settings.

To add an optimizer, add a class to adam.py, or a file next to it, and a row to
OPTIMIZERS.

This module loads no Keras, so that --help can list the names at once; what a row names is
imported when the row is called.
"""

import dataclasses
from collections.abc import Mapping, Sequence


def _adafactor():
    from modeling.optimizers.adafactor import Adafactor

    return Adafactor


def _adafactor_constant():
    from modeling.optimizers.adafactor import AdafactorConstant

    return AdafactorConstant


def _adagrad():
    from modeling.optimizers.adam import Adagrad

    return Adagrad


def _adam_weight_decay():
    from modeling.optimizers.adam import AdamWeightDecay

    return AdamWeightDecay


def _electra_adam():
    from modeling.optimizers.adam import ElectraAdam

    return ElectraAdam


def _fairseq_adam():
    from modeling.optimizers.adam import FairseqAdam

    return FairseqAdam


def _lamb():
    from modeling.optimizers.adam import Lamb

    return Lamb


def _openai_adam():
    from modeling.optimizers.adam import OpenAiAdam

    return OpenAiAdam


def _openai_adam_cosine():
    from modeling.optimizers.adam import OpenAiAdamCosine

    return OpenAiAdamCosine


def _openai_adam_constant():
    from modeling.optimizers.adam import OpenAiAdamConstant

    return OpenAiAdamConstant


def _xlnet_adam():
    from modeling.optimizers.xlnet_adam import XlnetAdam

    return XlnetAdam


def _xlnet_adam_cosine():
    from modeling.optimizers.xlnet_adam import XlnetAdamCosine

    return XlnetAdamCosine


# Each row is a function that imports and returns the class.
OPTIMIZERS = {
    "adafactor": _adafactor,
    "adafactor_constant": _adafactor_constant,
    "adagrad": _adagrad,
    "adam_weight_decay": _adam_weight_decay,
    "electra_adam": _electra_adam,
    "fairseq_adam": _fairseq_adam,
    "lamb": _lamb,
    "openai_adam": _openai_adam,
    "openai_adam_cosine": _openai_adam_cosine,
    "openai_adam_constant": _openai_adam_constant,
    "xlnet_adam": _xlnet_adam,
    "xlnet_adam_cosine": _xlnet_adam_cosine,
}
_OF_ADAM = ("bias_correction", "adam_beta_2", "weight_decay")
# Settings that an optimizer does not have.
WITHOUT = {
    "adafactor": _OF_ADAM,
    "adafactor_constant": (*_OF_ADAM, "lr_decay_power"),
    "adagrad": (*_OF_ADAM, "lr_decay_power"),
    "openai_adam_constant": ("lr_decay_power",),
}
# Those with a lowest learning rate.
HAVE_LOWEST_RATE = ("xlnet_adam", "xlnet_adam_cosine")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How gradients become an update; the fields have the names of flags.

    Attributes:
        optimizer: a key of OPTIMIZERS.
        clip_norm: the largest norm of all gradients together; 0 leaves them as they are.
        lr_decay_power: see `optimization.learning_rate`.
        layerwise_lr_decay: see `layerwise_shares`.
        min_lr_ratio: of the last learning rate to the highest; for HAVE_LOWEST_RATE.
    """

    optimizer: str = "adam_weight_decay"
    bias_correction: bool = False
    adam_beta_2: float = 0.999
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    lr_decay_power: float = 1.0
    layerwise_lr_decay: float = 1.0
    min_lr_ratio: float = 0.0

    def make_for(self, model):
        """The optimizer, an `AdamWeightDecay`, for a network of an `Objective`."""
        decay = self.layerwise_lr_decay
        shares = {}
        if decay != 1.0:
            shares = layerwise_shares(model.encoder.stages, decay)
        return self.make(model.trainable_variables, shares)

    def make(self, variables, shares: Mapping[str, float] | None = None):
        """The optimizer for these keras.Variables; `shares` as for `AdamWeightDecay`."""
        lowest = {"min_lr_ratio": self.min_lr_ratio} if self.min_lr_ratio else {}
        return OPTIMIZERS[self.optimizer]()(
            variables,
            **lowest,
            weight_decay_rate=self.weight_decay,
            beta_2=self.adam_beta_2,
            bias_correction=self.bias_correction,
            shares=shares or {},
        )


def layerwise_shares(stages: Sequence[Sequence], decay: float) -> dict[str, float]:
    """Shares of the learning rate that fall from the top of an encoder to its bottom.

    With L layers, layer i (from 0) has the share decay ** (L + 1 - i), the embeddings
    decay ** (L + 2), and a pooler decay: so the top layer has decay ** 2, as in the
    release, which has no pooler. Heads, which are not in the encoder, have 1.

    Args:
        stages: of keras.Variables; see `Encoder.stages`. Weights that layers share count
            as the highest.
    Returns:
        path of a variable -> its share.
    Source: google-research/electra@8a46635 model/optimization.py, _get_layer_lrs.
    """
    shares = [decay ** (len(stages) - number) for number in range(len(stages))]
    return {
        variable.path: share
        for share, variables in zip(shares, stages, strict=True)
        for variable in variables
    }

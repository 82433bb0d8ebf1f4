"""The flags of the loss of labels, for tasks whose examples have some."""

import dataclasses
from collections.abc import Sequence

import numpy as np

import options
from errors import UserError
from training.finetuning.options import FineTuningOptions

_BALANCED = ["balanced"]
_OF_LOSS = "class_weights", "label_smoothing", "focal_gamma"
_LARGEST = 1e6  # far from what float32 cannot hold
_MOST_SHOWN = 20  # labels, in a message


@dataclasses.dataclass(frozen=True)
class LabelOptions(FineTuningOptions):
    """The loss of labels. Evaluations report the plain one."""

    class_weights: list[str] = options.field(
        [],
        help="Factors of the loss of each label's examples in training, in the order of "
        "the labels; or balanced: the number of examples / (number of labels * the label's "
        "examples). If texts have several labels, a factor is for having the label, and "
        "balanced counts having it and not having it as two labels.",
        identity=True,
    )
    label_smoothing: float = options.field(
        0.0,
        help="Share of each label that training spreads evenly over all labels.",
        at_least=0,
        below=1,
        identity=True,
    )
    focal_gamma: float = options.field(
        0.0,
        help="Multiply the loss in training by (1 - p)^gamma, p the probability of the "
        "label, so that examples that are easy already count less; 2 is usual.",
        at_least=0,
        at_most=100,
        identity=True,
    )

    def __post_init__(self):
        super().__post_init__()
        if changed := self.label_loss_flags:
            if not self.needs_labels:
                raise UserError(
                    f"{changed[0]} has no effect with --hard_weight=0: labels are not "
                    "learned; remove it, or raise --hard_weight"
                )
        if self.class_weights != _BALANCED:
            self._factors()

    @property
    def training_settings(self) -> dict:
        own = {name: getattr(self, name) for name in _OF_LOSS}
        return super().training_settings | own

    @property
    def label_loss_flags(self) -> list[str]:
        """Those that were given."""
        return [f"--{name}" for name in _OF_LOSS if getattr(self, name)]

    def _factors(self):
        try:
            factors = [float(item) for item in self.class_weights]
        except ValueError:
            factors = [0.0]
        if not all(1 / _LARGEST <= factor <= _LARGEST for factor in factors):
            raise UserError(
                f"--class_weights={','.join(self.class_weights)}: must be balanced, or a "
                "number above 0 for each label, from 1e-6 to 1e6"
            )
        return factors

    def check_class_weights(self, labels: Sequence[str]) -> None:
        """Raises:
        UserError: there are not as many as labels.
        """
        number = len(self.class_weights)
        if not number or self.class_weights == _BALANCED or number == len(labels):
            return
        more = ", ..." if len(labels) > _MOST_SHOWN else ""
        raise UserError(
            f"--class_weights: {number} for {len(labels)} labels; give one for each of "
            f"{', '.join(labels[:_MOST_SHOWN])}{more}, in this order"
        )

    def label_loss(self, labels: Sequence[str], gold: np.ndarray | None) -> dict:
        """Arguments of a `WithLabelLoss`; {} for the plain loss.

        Args:
            labels: all, in order.
            gold: of the training set: int [n], or [n, labels] of 0 and 1; None if nothing
                is trained.
        """
        if gold is None or not self.label_loss_flags:
            return {}
        self.check_class_weights(labels)
        settings = {"smoothing": self.label_smoothing, "gamma": self.focal_gamma}
        if self.class_weights == _BALANCED:
            return settings | _balanced_weights(gold, len(labels))
        return settings | {"weights": self._factors()}


def _balanced_weights(gold, number):
    """Weights by which all classes together weigh the same: scikit-learn's "balanced"."""
    if gold.ndim == 1:
        counts = np.bincount(gold, minlength=number)
        weights = len(gold) / (np.count_nonzero(counts) * np.maximum(counts, 1))
        return {"weights": weights.tolist()}
    with_label = gold.sum(axis=0)
    sides = (
        np.where(counts > 0, len(gold) / (2 * np.maximum(counts, 1)), 1.0).tolist()
        for counts in (with_label, len(gold) - with_label)
    )
    return dict(zip(("weights", "negative_weights"), sides, strict=True))

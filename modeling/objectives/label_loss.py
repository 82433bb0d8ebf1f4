"""The loss of labels in training: weighted classes, smoothed labels, the focal loss."""

from collections.abc import Sequence

import keras
from keras import ops

from modeling import bilstm, losses
from modeling.objectives.objective import Wrapped
from modeling.objectives.tasks import TaskObjective

_LEAST_DOUBT = 1e-7  # of 1 - p, whose power has an infinite slope at 0


class WithLabelLoss(Wrapped):
    """Another loss for a task with labels; evaluations measure the task's own.

    With p the probability of a class, y 1 for the label and otherwise 0, and w the weight
    of the label, the loss of an example is

        w * sum over classes of -y' * (1 - p)^gamma * log p,  y' = (1 - s) * y + s / classes

    If an example may have several labels, each is a choice of two classes, and the loss is
    the mean over the labels, where w depends on the choice. The sum over a batch is divided
    by the number of examples, not by the sum of their weights, as Keras's `fit` does it:
    an example counts the same in whatever batch it is.

    Args:
        task: an objective with label_ids: one class, several, or one for each token.
        weights: of each class; () for 1.
        negative_weights: if an example may have several labels, of not having each.
        smoothing: s, in [0, 1).
        gamma: the focal loss's; 0 is cross entropy.
    Source: Keras 3, CategoricalFocalCrossentropy and BinaryFocalCrossentropy
        (arXiv:1708.02002), label_smoothing, and class_weight of `Model.fit`.
    """

    def __init__(
        self,
        task: TaskObjective,
        *,
        weights: Sequence[float] = (),
        negative_weights: Sequence[float] = (),
        smoothing: float = 0.0,
        gamma: float = 0.0,
    ):
        super().__init__(task)
        self._weights = tuple(weights)
        self._negative_weights = tuple(negative_weights)
        self._smoothing, self._gamma = smoothing, gamma

    def with_layers(self, lstm: bilstm.BiLstm, frozen: str | None) -> "WithLabelLoss":
        """The same with BiLSTM layers; see `TaskObjective.with_layers`."""
        return WithLabelLoss(
            self.inner.with_layers(lstm, frozen),
            weights=self._weights,
            negative_weights=self._negative_weights,
            smoothing=self._smoothing,
            gamma=self._gamma,
        )

    def losses(self, batch, outputs) -> dict:
        comparison = self.inner.comparison
        of_kind = self._of_sides if comparison.kind == "sides" else self._of_classes
        values = of_kind(outputs["logits"], batch["label_ids"])
        return {"loss": losses.weighted_sum(values, comparison.weights(batch))}

    def _of_classes(self, logits, labels):
        """float32 [..., classes], int [...] -> [...]"""
        number = logits.shape[-1]
        labels = ops.cast(labels, "int32")
        log_probs = ops.log_softmax(logits)
        targets = ops.one_hot(labels, number) * (1.0 - self._smoothing)
        terms = -(targets + self._smoothing / number) * log_probs
        terms *= self._discount(ops.exp(log_probs))
        values = ops.sum(terms, axis=-1)
        if self._weights:
            values *= ops.take(ops.convert_to_tensor(self._weights, "float32"), labels)
        return values

    def _of_sides(self, logits, labels):
        """float32 [b, labels], int [b, labels], 0 or 1 -> [b]"""
        labels = ops.cast(labels, "float32")
        targets = labels * (1.0 - self._smoothing) + self._smoothing / 2.0
        probs = ops.sigmoid(logits)
        values = -targets * keras.activations.log_sigmoid(logits)
        values -= (1.0 - targets) * keras.activations.log_sigmoid(-logits)
        values *= self._discount(targets * probs + (1.0 - targets) * (1.0 - probs))
        if self._weights:
            negative = self._negative_weights or (1.0,) * len(self._weights)
            values *= ops.where(labels > 0, self._weights, negative)
        return ops.mean(values, axis=-1)

    def _discount(self, probs):
        if not self._gamma:
            return 1.0
        return ops.power(ops.maximum(1.0 - probs, _LEAST_DOUBT), self._gamma)

"""A task's loss, and with a small weight that of the language model: GPT's fine-tuning.

Axes: b batch, s seq_length. A row of several sequences, such as choices, has each predict
its own tokens.
"""

from keras import ops

from errors import UserError, setting
from modeling import layers, losses
from modeling.architectures.config import EncoderConfig
from modeling.architectures.network import WrappedNetwork
from modeling.objectives import tasks
from modeling.objectives.objective import Objective, Wrapped, row_weights


class WithLanguageModel(Wrapped):
    """Adds the loss of predicting every next token to the objective of a task.

    The loss of a sequence is the mean over its tokens; all sequences weigh the same. Tokens
    compete with each other and, as in OpenAI's code, with the positions, whose vectors are
    in the same matrix there: all of the model's, not only those of the longest row. Only
    training has this loss: evaluations and exports are the task's.

    Args:
        task: the objective of a task; its loss is called task_loss here.
        weight: of the language model's loss; 0.5 in the release.
    Source: Improving Language Understanding by Generative Pre-Training, section 3.2;
        openai/finetune-transformer-lm@a69b5c4 train.py, model and mgpu_train.
    """

    def __init__(self, task: Objective, weight: float):
        super().__init__(task)
        of_task = {_own(name): factor for name, factor in task.loss_weights.items()}
        self.loss_weights = {**of_task, "lm_loss": weight}

    def check(self, config: EncoderConfig) -> None:
        self.inner.check(config)
        if config.masked_lm.bias is not None:
            raise UserError(
                f"the language model of the architecture {config.architecture!r} has "
                f"weights that a task does not have; remove {setting('lm_loss_weight')}, "
                "which is for one that predicts next tokens"
            )

    def network(self, config, *, seed=0, dtype="float32") -> "_Model":
        return _Model(self.inner.network(config, seed=seed, dtype=dtype))

    def weights(self, batch) -> dict:
        of_task = {_own(k): v for k, v in self.inner.weights(batch).items()}
        return {**of_task, "lm_loss": ops.sum(_targets(batch)[1])}

    def losses(self, batch, outputs) -> dict:
        of_task = {_own(k): v for k, v in self.inner.losses(batch, outputs).items()}
        weight = ops.sum(_targets(batch)[1])
        return {**of_task, "lm_loss": (outputs["lm_loss"], weight)}


def _targets(batch):
    """float32 [sequences, s - 1] and [sequences]: what is predicted and counts."""
    mask = tasks.sequences(ops.cast(batch["input_mask"], "float32"))
    rows = row_weights(batch)
    per_row = ops.shape(mask)[0] // ops.shape(rows)[0]
    of_targets = mask[:, 1:] * ops.repeat(rows, per_row)[:, None]
    return of_targets, ops.max(of_targets, axis=1)


def _own(name):
    return "task_loss" if name == "loss" else name  # "loss" is the sum of all


class _Model(WrappedNetwork):
    """A task's network, which in training also returns the language model's loss."""

    def __init__(self, network):
        super().__init__(network, name="with_language_model")
        self.built = True

    def outputs_of(self, batch, dropouts) -> dict:
        """The task's outputs; in training, also lm_loss, a sum."""
        if dropouts is layers.no_dropout:
            return self.network(batch, dropouts=dropouts)
        encoded = self.network.encode(batch, dropouts)
        outputs = self.network.answer(encoded, batch, dropouts)
        return outputs | {"lm_loss": self._loss(encoded["sequence_output"], batch)}

    def _loss(self, hidden, batch):
        ids = tasks.sequences(batch["input_ids"])
        of_targets, has_targets = _targets(batch)
        lengths = ops.maximum(ops.sum(of_targets, axis=1), 1.0)
        weights = of_targets * (has_targets / lengths)[:, None]
        tables = self.encoder.word_embeddings, self.encoder.position_embeddings
        table = ops.concatenate([ops.convert_to_tensor(x) for x in tables])
        hidden = hidden[:, :-1]
        loss, _ = losses.vocabulary_cross_entropy(
            ops.reshape(hidden, (-1, hidden.shape[-1])),
            ops.cast(table, hidden.dtype),
            ops.zeros(table.shape[:1], "float32"),
            ops.reshape(ids[:, 1:], (-1,)),
            ops.reshape(weights, (-1,)),
        )
        return loss

"""The next token from all before it, and the one before from all after it: ELMo's.

Its records hold no masks.
"""

import keras
from keras import ops

from errors import UserError
from modeling import layers, losses
from modeling.architectures.config import EncoderConfig
from modeling.architectures.network import Network
from modeling.architectures.table import make_encoder
from modeling.objectives.masked_lm import check_context
from modeling.objectives.objective import (
    Objective,
    Summary,
    perplexity,
    row_weights,
)

DIRECTIONS = ("forward", "backward")


class BidirectionalLMModel(Network):
    """An encoder of separate directions, with one softmax for both.

    The softmax is the encoder's table with a bias, or a table of its own: the config's
    share_embedding_softmax says which.

    Args:
        config: the architecture.
        seed: the same seed gives the same initial weights.
        dtype: "float32" or "mixed_bfloat16"; logits are float32 under both.
    Source: allenai/bilm-tf@7cffee2 bilm/training.py, LanguageModel.
    """

    def __init__(self, config: EncoderConfig, *, seed: int = 0, dtype: str = "float32"):
        super().__init__(name="pretraining", dtype=dtype, autocast=False)
        self.config = config
        self.encoder = make_encoder(config, seed=seed, dtype=dtype)
        self.output_weights = None
        with layers.name_scopes(config.masked_lm.scope):
            if not config.share_embedding_softmax:
                deviation = config.embedding_size**-0.5
                seed = f"pretraining heads {seed}"
                self.output_weights = keras.Variable(
                    next(layers.weight_initializers(deviation, seed, truncated=False)),
                    (config.vocab_size, config.embedding_size),
                    "float32",
                    name="output_weights",
                )
            self.output_bias = keras.Variable(
                "zeros", (config.vocab_size,), "float32", name="output_bias"
            )
        self.built = True

    def answer(self, encoded, batch, dropouts=layers.no_dropout):
        """Compares every token with the logits of its two neighbours.

        Args:
            encoded: what `encode` returned.
            batch: dict of the encoder's inputs and, optionally, is_real_example [b].
        Returns:
            dict of float32 scalars forward_loss, forward_correct, backward_loss and
            backward_correct, sums over the batch; and the encoder's outputs.
        """
        halves = ops.split(encoded["sequence_output"], 2, axis=-1)
        earlier, later = slice(None, -1), slice(1, None)
        weights = _weights(batch)
        outputs = dict(encoded)
        for direction, hidden, source, target in (
            (DIRECTIONS[0], halves[0], earlier, later),
            (DIRECTIONS[1], halves[1], later, earlier),
        ):
            outputs |= self.compare(
                direction,
                dropouts(hidden, self.config.hidden_dropout_prob)[:, source],
                batch["input_ids"][:, target],
                weights,
            )
        return outputs

    def compare(self, direction, hidden, targets, weights) -> dict:
        """A direction's loss and number of right answers, as `answer` returns them.

        Args:
            hidden: [b, n, p], of this direction.
            targets: int [b, n], the tokens to predict.
            weights: float32 [b, n].
        """
        table = self.output_weights
        table = self.encoder.word_embeddings if table is None else table
        loss, correct = losses.vocabulary_cross_entropy(
            ops.reshape(hidden, (-1, hidden.shape[-1])),
            # As tensors, because only those may enter a custom gradient.
            ops.cast(table, hidden.dtype),
            ops.cast(self.output_bias, "float32"),
            ops.reshape(targets, (-1,)),
            ops.reshape(weights, (-1,)),
        )
        return {f"{direction}_loss": loss, f"{direction}_correct": correct}

    def multiplications(self, seq_length, predictions):
        config = self.config
        of_token = len(DIRECTIONS) * config.embedding_size * config.vocab_size
        return config.multiplications(seq_length) + predictions * of_token


def _weights(batch):
    """float32 [b, s - 1]: 1 where two neighbours are tokens of a row that counts."""
    mask = ops.cast(batch["input_mask"], "float32")
    return mask[:, 1:] * row_weights(batch)[:, None]


def _perplexities(values, counts) -> dict:
    """That of both directions together, and that of each."""
    del counts
    each = {name: values[f"{name}_loss"] for name in DIRECTIONS}
    both = sum(each.values()) / len(each)
    return {"perplexity": perplexity(both)} | {
        f"{name}_perplexity": perplexity(loss) for name, loss in each.items()
    }


class BidirectionalLM(Objective):
    """Every token from those before it and, separately, from those after it.

    The loss is the mean of both directions'. [CLS] and [SEP] are tokens like others, as
    the marks of a sentence's ends are in the release.

    Differs from the release, where a row continues the one before, and whose training
    compares with 8,192 sampled words in place of all.

    Source: allenai/bilm-tf@7cffee2 bilm/training.py, LanguageModel._build_loss.
    """

    loss_weights = {f"{direction}_loss": 0.5 for direction in DIRECTIONS}
    metric_names = tuple(f"{direction}_accuracy" for direction in DIRECTIONS)
    summary = Summary(_perplexities)

    def check(self, config) -> None:
        check_context(config)
        if "directions" not in config.capabilities:
            raise UserError(
                f"with the architecture {config.architecture!r}, there are no separate "
                "outputs for what precedes a token and for what follows it, so this "
                "objective would predict tokens that it sees; use "
                '"architecture": "elmo", or another objective'
            )

    def network(self, config, *, seed=0, dtype="float32") -> BidirectionalLMModel:
        return BidirectionalLMModel(config, seed=seed, dtype=dtype)

    def weights(self, batch) -> dict:
        return dict.fromkeys(self.loss_weights, ops.sum(_weights(batch)))

    def losses(self, batch, outputs) -> dict:
        weight = ops.sum(_weights(batch))
        return {name: (outputs[name], weight) for name in self.loss_weights}

    def metrics(self, batch, outputs) -> dict:
        weight = ops.sum(_weights(batch))
        return {
            f"{direction}_accuracy": (outputs[f"{direction}_correct"], weight)
            for direction in DIRECTIONS
        }

"""A whole objective in one file: which tokens of a row are random?"""

from keras import ops

from modeling import layers, losses, row_random
from modeling.architectures.network import Network
from modeling.architectures.table import make_encoder
from modeling.objectives.objective import Objective, row_weights

# What random numbers are for; each purpose has numbers of its own.
_PLACES, _IDS = 100, 101


class RandomTokensModel(Network):
    """An encoder that reads a row with random tokens, and a layer that finds these.

    Maps a batch to random_logits, float32 [b, s, 2].
    """

    def __init__(self, config, *, seed: int, dtype: str):
        super().__init__(name="pretraining", dtype=dtype, autocast=False)
        initializers = layers.weight_initializers(
            config.initializer_range, f"random tokens {seed}"
        )
        # With their own names, not below this layer's: those of a checkpoint.
        self.encoder = make_encoder(config, seed=seed, dtype=dtype)
        self.classifier = layers.Dense(2, next(initializers), "float32", name="random")
        self.classifier.build((None, None, config.hidden_size))
        self.vocab_size = config.vocab_size
        self.built = True

    def outputs_of(self, batch, dropouts):
        ids = ops.cast(batch["random_draws"] * self.vocab_size, "int32")
        ids = ops.where(batch["is_random"] == 1, ids, batch["input_ids"])
        hidden = self.encoder(batch | {"input_ids": ids}, dropouts=dropouts)
        return {"random_logits": self.classifier(hidden["sequence_output"])}


class RandomTokens(Objective):
    """Half of the tokens become random ones; the network says which."""

    loss_weights = {"random_loss": 1.0}
    metric_names = ("random_accuracy",)

    def network(self, config, *, seed=0, dtype="float32"):
        return RandomTokensModel(config, seed=seed, dtype=dtype)

    def prepare(self, batch, seed) -> dict:
        rows, width = batch["row_numbers"], batch["input_ids"].shape[1]
        places = row_random.uniform(seed, _PLACES, rows, width)
        return batch | {
            "is_random": ops.cast(places < 0.5, "int32"),
            "random_draws": row_random.uniform(seed, _IDS, rows, width),
        }

    def _tokens(self, batch):
        """float32 [b, s]: 1.0 for tokens of rows that count."""
        mask = ops.cast(batch["input_mask"], "float32")
        return mask * row_weights(batch)[:, None]

    def weights(self, batch) -> dict:
        return {"random_loss": ops.sum(self._tokens(batch))}

    def losses(self, batch, outputs) -> dict:
        target = batch["is_random"], self._tokens(batch)
        return {"random_loss": losses.cross_entropy(outputs["random_logits"], *target)}

    def metrics(self, batch, outputs) -> dict:
        target = batch["is_random"], self._tokens(batch)
        return {"random_accuracy": losses.accuracy(outputs["random_logits"], *target)}

"""ELECTRA's objective: find the tokens of a row that a small masked LM has replaced.

Axes: b batch, s seq_length, p predictions, v vocab_size.
"""

from collections.abc import Mapping

import keras
import numpy as np
from keras import ops

from errors import UserError
from family.electra import roc
from family.electra.encoder import ElectraConfig, ElectraEncoder
from modeling import layers, losses, row_random
from modeling.architectures.network import Network
from modeling.architectures.table import make_encoder
from modeling.objectives.masked_lm import MaskedLM
from modeling.objectives.objective import Exporter, Needs, Summary, row_weights
from modeling.sampling import sample

_SAMPLE = 16  # what random numbers are for; those of masks have lower numbers


class ReplacedTokensModel(Network):
    """A generator, samples of what it predicts, and a discriminator that reads them.

    Args:
        config: of the discriminator.
        generator: the config of the generator.
        seed: the same seed gives the same initial weights.
        dtype: "float32" or "mixed_bfloat16"; logits are float32 under both.
    Source: google-research/electra@8a46635 run_pretraining.py, class PretrainingModel.
    """

    def __init__(
        self,
        config: ElectraConfig,
        generator: ElectraConfig,
        *,
        seed: int = 0,
        dtype: str = "float32",
    ):
        super().__init__(name="pretraining", dtype=dtype, autocast=False)
        self.config = config
        initializers = layers.weight_initializers(
            config.initializer_range, f"pretraining heads {seed}"
        )
        # Built here, outside this layer's own name scope, for the released names.
        self.encoder = make_encoder(config, seed=seed, dtype=dtype)
        self.generator = ElectraEncoder(
            generator,
            seed=seed + 1,
            dtype=dtype,
            scope="generator",
            embeddings=self.encoder.embeddings,
        )
        self.masked_lm = self.generator.make_head("masked_lm", initializers)
        self.discriminator = DiscriminatorHead(config, initializers, dtype=dtype)
        self.discriminator.build()
        self.built = True

    @property
    def encoders(self):
        return self.generator, self.encoder

    def multiplications(self, seq_length, predictions):
        of_head = self.config.hidden_size * (self.config.hidden_size + 1)
        return super().multiplications(seq_length, predictions) + seq_length * of_head

    @property
    def description_suffix(self) -> str:
        config = self.generator.config
        depth, width = config.num_hidden_layers, config.hidden_size
        return f"; its generator has {depth} layers of {width}"

    def outputs_of(self, batch, dropouts):
        """Replaces the masked tokens by samples and looks for them.

        Args:
            batch: dict of the encoder's inputs, with masks; masked_lm_positions and
                masked_lm_ids [b, p]; sampling_draws float32 [b, p] in [0, 1).
            dropouts: as for `Encoder.call`.
        Returns:
            dict of masked_lm_logits [b, p, v] and discriminator_logits [b, s], float32;
            sampled_ids [b, p], discriminator_input_ids [b, s] and is_replaced [b, s],
            int32.
        """
        positions = batch["masked_lm_positions"]
        logits = self.masked_lm(
            self.generator(batch, dropouts=dropouts)["sequence_output"],
            positions=positions,
            word_embeddings=ops.convert_to_tensor(self.generator.word_embeddings),
        )
        sampled = sample(ops.stop_gradient(logits), batch["sampling_draws"])
        original = update(batch["input_ids"], positions, batch["masked_lm_ids"])
        replaced = update(original, positions, sampled)
        outputs = self.encoder(batch | {"input_ids": replaced}, dropouts=dropouts)
        return {
            "masked_lm_logits": logits,
            "sampled_ids": sampled,
            "discriminator_input_ids": replaced,
            "is_replaced": ops.cast(replaced != original, "int32"),
            "discriminator_logits": self.discriminator(outputs["sequence_output"]),
        }


class DiscriminatorHead(keras.layers.Layer):
    """[b, s, h] -> float32 [b, s]: above 0 for a token that looks replaced."""

    def __init__(self, config, initializers, dtype):
        super().__init__(name="discriminator_predictions", dtype=dtype)
        self.config = config
        self.dense = layers.Dense(
            config.hidden_size,
            next(initializers),
            dtype,
            layers.activation(config.hidden_act),
        )
        self.logit = layers.Dense(
            1, layers.glorot_uniform(initializers), "float32", name="dense_1"
        )

    def build(self, input_shape=None):
        for layer in (self.dense, self.logit):
            layer.build((None, None, self.config.hidden_size))
        self.built = True

    def call(self, sequence_output):
        return self.logit(self.dense(sequence_output))[..., 0]


class DiscriminatorModel(Network):
    """The discriminator alone, for exports; the arguments are those of an encoder."""

    def __init__(self, config: ElectraConfig, *, seed: int = 0, dtype: str = "float32"):
        super().__init__(name="pretraining", dtype=dtype, autocast=False)
        self.config = config
        initializers = layers.weight_initializers(
            config.initializer_range, f"pretraining heads {seed}"
        )
        self.encoder = make_encoder(config, seed=seed, dtype=dtype)
        self.discriminator = DiscriminatorHead(config, initializers, dtype=dtype)
        self.discriminator.build()
        self.built = True

    def outputs_of(self, batch, dropouts):
        """dict of discriminator_logits [b, s] and sequence_output [b, s, h], float32."""
        hidden = self.encoder(batch, dropouts=dropouts)["sequence_output"]
        return {
            "discriminator_logits": self.discriminator(hidden),
            "sequence_output": ops.cast(hidden, "float32"),
        }


def update(ids, positions, tokens):
    """Writes tokens at positions, but never at position 0, which empty slots name.

    Args:
        ids: int32 [b, s].
        positions, tokens: int32 [b, p].
    Returns:
        int32 [b, s]. Several tokens for one position give the mean of their ids, rounded
        down, as in the release.
    Source: google-research/electra@8a46635 pretrain/pretrain_helpers.py, scatter_update.
    """
    places = ops.arange(1, ops.shape(ids)[1], dtype="int32")
    hits = ops.cast(positions[..., None] == places, "int32")  # [b, p, s - 1]
    counts = ops.sum(hits, axis=1)
    sums = ops.sum(hits * tokens[..., None], axis=1)
    means = ops.floor_divide(sums, ops.maximum(counts, 1))
    rest = ops.where(counts > 0, means, ids[:, 1:])
    return ops.concatenate([ids[:, :1], rest], axis=1)


class ReplacedTokens(MaskedLM):
    """The generator's masked tokens, and the discriminator's judgement of all tokens.

    A sample that happens to be the original token counts as not replaced. The gradient of
    the discriminator's loss does not reach the generator through the samples.

    Args:
        generator_hidden_size, generator_layers: shares of the discriminator's sizes.
        disc_weight: the factor of the discriminator's loss; that of the generator's is 1.
    Source: arXiv:2003.10555; google-research/electra@8a46635 run_pretraining.py.
    """

    metric_names = (
        "masked_lm_accuracy",
        "sampled_masked_lm_accuracy",
        "disc_accuracy",
        "disc_precision",
        "disc_recall",
    )
    needs = Needs(masks="drawn", mask_shares=(0.85, 0.0))
    exporter = Exporter("replaced", ("electra/", "discriminator_predictions/"))
    comparison = None

    def __init__(
        self,
        generator_hidden_size: float = 0.25,
        generator_layers: float = 1.0,
        disc_weight: float = 50.0,
    ):
        self.loss_weights: Mapping[str, float] = {
            "masked_lm_loss": 1.0,
            "disc_loss": disc_weight,
        }
        self._size = generator_hidden_size, generator_layers

    def check(self, config) -> None:
        if not isinstance(config, ElectraConfig):
            raise UserError(
                "replaced tokens need a generator, which only an ELECTRA has; set "
                '"architecture": "electra"'
            )
        try:
            self.generator(config)
        except ValueError as error:
            raise UserError(
                f"the generator's {error}; check generator_hidden_size and "
                "generator_layers"
            ) from error

    def generator(self, config: ElectraConfig) -> ElectraConfig:
        """The config of the generator for a discriminator."""
        return config.generator(*self._size)

    def network(self, config, *, seed=0, dtype="float32") -> ReplacedTokensModel:
        return ReplacedTokensModel(
            config, self.generator(config), seed=seed, dtype=dtype
        )

    def prepare(self, batch, seed) -> dict:
        """Draws the numbers that choose the samples; the masks are already there."""
        width = batch["masked_lm_positions"].shape[1]
        rows = batch["row_numbers"]
        return batch | {
            "sampling_draws": row_random.uniform(seed, _SAMPLE, rows, width)
        }

    def _tokens(self, batch):
        """float32 [b, s]: 1.0 for tokens that the discriminator judges."""
        mask = ops.cast(batch["input_mask"], "float32")
        return mask * row_weights(batch)[:, None]

    def weights(self, batch) -> dict:
        return super().weights(batch) | {"disc_loss": ops.sum(self._tokens(batch))}

    def losses(self, batch, outputs) -> dict:
        logits = outputs["discriminator_logits"]
        labels = ops.cast(outputs["is_replaced"], "float32")
        entropy = ops.maximum(logits, 0.0) - logits * labels
        entropy += ops.log1p(ops.exp(-ops.abs(logits)))
        of_discriminator = losses.weighted_sum(entropy, self._tokens(batch))
        return super().losses(batch, outputs) | {"disc_loss": of_discriminator}

    def metrics(self, batch, outputs) -> dict:
        ids, weights = self.targets(batch)["masked_lm"]
        tokens = self._tokens(batch)
        is_replaced = ops.cast(outputs["is_replaced"], "float32")
        # A logit of 0 is undecided, and counts as "not replaced".
        says_replaced = ops.cast(outputs["discriminator_logits"] > 0.0, "float32")
        right = ops.cast(says_replaced == is_replaced, "float32")
        sampled = ops.cast(outputs["sampled_ids"] == ids, "float32")
        return super().metrics(batch, outputs) | {
            "sampled_masked_lm_accuracy": losses.weighted_sum(sampled, weights),
            "disc_accuracy": losses.weighted_sum(right, tokens),
            "disc_precision": losses.weighted_sum(right, tokens * says_replaced),
            "disc_recall": losses.weighted_sum(right, tokens * is_replaced),
        }

    def counts(self, batch, outputs):
        """float32 [roc.BINS, 2], from which disc_auc is computed."""
        return roc.counts(
            ops.sigmoid(outputs["discriminator_logits"]),
            ops.cast(outputs["is_replaced"], "float32"),
            self._tokens(batch),
        )

    @property
    def summary(self):
        def compute(values, counts):
            del values
            return {"disc_auc": roc.area(np.array(counts))}

        return Summary(compute, self.counts, roc.BINS)

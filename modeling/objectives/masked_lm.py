"""Masked words alone: the objective of RoBERTa, and of the paper's "no NSP"."""

import keras
from keras import ops

from errors import UserError, setting
from modeling import layers, losses
from modeling.architectures.config import EncoderConfig
from modeling.architectures.network import Network
from modeling.architectures.table import make_encoder
from modeling.objectives.objective import (
    Comparison,
    Exporter,
    Needs,
    Objective,
    row_weights,
)


class MaskedLMModel(Network):
    """An encoder with the masked-LM head.

    Args:
        config: the architecture.
        seed: the same seed gives the same initial weights.
        dtype: "float32" or "mixed_bfloat16"; logits are float32 under both.
    Source: google-research/bert@eedf571 run_pretraining.py.
    """

    def __init__(self, config: EncoderConfig, *, seed: int = 0, dtype: str = "float32"):
        super().__init__(name="pretraining", dtype=dtype, autocast=False)
        self.config = config
        initializers = layers.weight_initializers(
            config.initializer_range, f"pretraining heads {seed}"
        )
        # Built here, outside this layer's own name scope: the released names start
        # with "bert" and "cls", for example.
        self.encoder = make_encoder(config, seed=seed, dtype=dtype)
        self.masked_lm = self.encoder.make_head("masked_lm", initializers)
        with keras.name_scope("cls"):
            self.build_heads(config, initializers, dtype)
        self.built = True

    def build_heads(self, config, initializers, dtype) -> None:
        """Makes and builds more heads, in a subclass."""

    def leave_pooler(self) -> None:
        """Keeps the pooler as it is, unless the masked-LM head shares its variables.

        No loss reaches it, and weight decay alone would shrink it to nothing. The release
        also leaves variables without a gradient unchanged.
        """
        used = {*self.encoder.required_variables}
        used |= {variable.path for variable in self.masked_lm.weights}
        for variable in self.encoder.weights:
            if variable.path not in used:
                variable.trainable = False

    def answer(self, encoded, batch, dropouts=layers.no_dropout) -> dict:
        """Predicts the masked tokens.

        Args:
            encoded: what `encode` returned.
            batch: dict of the encoder's inputs and masked_lm_positions [b, p].
        Returns:
            dict of masked_lm_logits [b, p, vocab_size] and the encoder's sequence_output
            [b, s, h] and, if it has a pooler, pooled_output [b, h]; float32.
        """
        del dropouts
        names = [n for n in ("sequence_output", "pooled_output") if n in encoded]
        return {
            **{name: ops.cast(encoded[name], "float32") for name in names},
            "masked_lm_logits": self.masked_lm(
                encoded["sequence_output"],
                positions=batch["masked_lm_positions"],
                word_embeddings=ops.convert_to_tensor(self.encoder.word_embeddings),
            ),
        }


def check_context(config: EncoderConfig) -> None:
    """Refuses an encoder that does not predict tokens from their neighbours.

    Raises:
        UserError: its positions do not see each other, or its decoder predicts tokens.
    """
    if "decoder" in config.capabilities:
        raise UserError(
            f"with the architecture {config.architecture!r}, a decoder predicts tokens; "
            f"use {setting('objective', 'span_corruption')}"
        )
    if config.attention_direction == "none":
        raise UserError(
            f"with the architecture {config.architecture!r}, every position sees only its "
            "own token, so no token can be predicted from its neighbours; pre-train "
            "another architecture, or start fine-tuning from random weights"
        )


def masked_tokens(batch) -> tuple:
    """int [b, p]: the masked tokens; and float32 [b, p]: which of them count."""
    weights = ops.cast(batch["masked_lm_weights"], "float32")
    return batch["masked_lm_ids"], weights * row_weights(batch)[:, None]


class MaskedLM(Objective):
    """The masked tokens, without the next sentence.

    A batch contains masked_lm_ids and masked_lm_weights [b, p], and optionally
    is_real_example [b], 0 for rows that only pad a batch and do not count.

    Source: google-research/bert@eedf571 run_pretraining.py, get_masked_lm_output.
    """

    loss_weights = {"masked_lm_loss": 1.0}
    metric_names = ("masked_lm_accuracy",)
    needs = Needs(masks="any")
    exporter = Exporter("masks")
    comparison = Comparison.of(
        "masked_lm_logits", weights=lambda batch: masked_tokens(batch)[1]
    )

    def check(self, config) -> None:
        check_context(config)

    def network(self, config, *, seed=0, dtype="float32") -> MaskedLMModel:
        model = MaskedLMModel(config, seed=seed, dtype=dtype)
        model.leave_pooler()
        return model

    def targets(self, batch) -> dict:
        """Task -> its labels and their float32 weights."""
        return {"masked_lm": masked_tokens(batch)}

    def weights(self, batch) -> dict:
        return {
            f"{task}_loss": ops.sum(weights)
            for task, (_, weights) in self.targets(batch).items()
        }

    def losses(self, batch, outputs) -> dict:
        return {
            f"{task}_loss": losses.cross_entropy(outputs[f"{task}_logits"], *target)
            for task, target in self.targets(batch).items()
        }

    def metrics(self, batch, outputs) -> dict:
        return {
            f"{task}_accuracy": losses.accuracy(outputs[f"{task}_logits"], *target)
            for task, target in self.targets(batch).items()
        }

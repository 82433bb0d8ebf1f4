"""The next token of every position: language modelling from left to right, or its mirror.

The paper's "LTR & No NSP" (table 5). Its records hold no masks.
"""

from keras import ops

from errors import UserError, setting
from modeling import layers, losses
from modeling.objectives.masked_lm import MaskedLMModel, check_context
from modeling.objectives.objective import (
    Exporter,
    Objective,
    perplexity_of,
    row_weights,
)


class NextTokenModel(MaskedLMModel):
    """An encoder with the masked-LM head, whose logits are those of the next token.

    Read from right to left, the next token is the one before.
    """

    def answer(self, encoded, batch, dropouts=layers.no_dropout):
        """Compares every token with the logits of its neighbour.

        Args:
            encoded: what `encode` returned.
            batch: dict of the encoder's inputs and, optionally, is_real_example [b].
        Returns:
            dict of float32 scalars next_token_loss and next_token_correct, sums over the
            batch; and the encoder's outputs. If the batch names the `source` of its rows,
            also next_token_loss_of_rows [b], what each adds.
        """
        del dropouts
        earlier, later = slice(None, -1), slice(1, None)
        source, target = earlier, later
        if self.config.attention_direction == "right_to_left":
            source, target = later, earlier
        hidden = self.masked_lm.transform(encoded["sequence_output"][:, source])
        target_ids = batch["input_ids"][:, target]
        loss, correct, *of_tokens = losses.vocabulary_cross_entropy(
            ops.reshape(hidden, (-1, hidden.shape[-1])),
            # As tensors, because only those may enter a custom gradient.
            ops.cast(self.encoder.word_embeddings, hidden.dtype),
            ops.cast(self.masked_lm.output_bias, "float32"),
            ops.reshape(target_ids, (-1,)),
            ops.reshape(_weights(batch), (-1,)),
            each_row="source" in batch,
        )
        sums = {"next_token_loss": loss, "next_token_correct": correct}
        for of_each in of_tokens:
            of_each = ops.reshape(of_each, ops.shape(target_ids))
            sums["next_token_loss_of_rows"] = ops.sum(of_each, axis=1)
        return {**encoded, **sums}


class LastTokenModel(MaskedLMModel):
    """The same weights for exports: what follows the last token of a row."""

    def answer(self, encoded, batch, dropouts=layers.no_dropout):
        """dict of next_token_logits [b, vocab_size] and sequence_output, float32."""
        del dropouts
        hidden = encoded["sequence_output"]
        lengths = ops.sum(ops.cast(batch["input_mask"], "int32"), axis=1, keepdims=True)
        logits = self.masked_lm(
            hidden,
            positions=ops.maximum(lengths, 1) - 1,
            word_embeddings=ops.convert_to_tensor(self.encoder.word_embeddings),
        )
        return {
            "next_token_logits": logits[:, 0],
            "sequence_output": ops.cast(hidden, "float32"),
        }


def _weights(batch):
    """float32 [b, s - 1]: 1 where two neighbours are tokens of a row that counts, and of
    the same document.
    """
    mask = ops.cast(batch["input_mask"], "float32")
    if "position_ids" in batch:
        mask = mask * ops.cast(batch["position_ids"] > 0, "float32")
    return mask[:, 1:] * row_weights(batch)[:, None]


class NextToken(Objective):
    """Every token from those before it; or after it, if attention looks to the right.

    [CLS] and [SEP] are tokens like others; only the one with which a row begins is no
    target.

    Source: google-research/bert@eedf571 run_pretraining.py, get_masked_lm_output at
    every position.
    """

    loss_weights = {"next_token_loss": 1.0}
    metric_names = ("next_token_accuracy",)
    exporter = Exporter("next", continues_texts=True)
    summary = perplexity_of("next_token_loss")

    def check(self, config) -> None:
        check_context(config)
        if "directions" in config.capabilities:
            raise UserError(
                f"with the architecture {config.architecture!r}, half of every output has "
                "seen the token that it is to predict; use "
                f"{setting('objective', 'bidirectional_lm')}"
            )
        if config.attention_direction == "both":
            raise UserError(
                "with attention to both sides, every position sees the token that it is "
                'to predict; set "attention_direction": "left_to_right"'
            )

    def network(self, config, *, seed=0, dtype="float32") -> NextTokenModel:
        model = NextTokenModel(config, seed=seed, dtype=dtype)
        model.leave_pooler()
        return model

    def weights(self, batch) -> dict:
        return {"next_token_loss": ops.sum(_weights(batch))}

    def losses(self, batch, outputs) -> dict:
        return {
            "next_token_loss": (outputs["next_token_loss"], ops.sum(_weights(batch)))
        }

    def metrics(self, batch, outputs) -> dict:
        correct = outputs["next_token_correct"]
        return {"next_token_accuracy": (correct, ops.sum(_weights(batch)))}

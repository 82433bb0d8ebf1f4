"""Loads a language model that reads from left to right, and continues texts with it."""

from collections.abc import Sequence

import numpy as np

from training.backend import tf
from training.queries import query
from training.run.settle import ModelFlags
from training.storage import whole_model
from errors import UserError
from modeling.architectures.config import EncoderConfig
from modeling.objectives.masked_lm import MaskedLMModel
from modeling.objectives.table import OBJECTIVES
from modeling.sampling import sample
from text.records.rows import static_lengths
from text.tokenizers.tokenizer import Tokenizer

_NEVER = -1e9  # a logit whose probability is 0


def load(flags: ModelFlags) -> tuple[Tokenizer, EncoderConfig, MaskedLMModel]:
    """The tokenizer, the architecture and the network that flags name.

    It is a language model that reads from left to right.
    """
    model = query.read_model(flags)
    source, config = model.source, model.config
    objective = source.settings.get("objective")
    row = OBJECTIVES.get(objective)
    exporter = row and row.load().exporter
    if objective and not (exporter and exporter.continues_texts):
        raise UserError(
            f"{flags.init_checkpoint}: was trained with --objective={objective}, which "
            "does not continue texts; use a checkpoint trained with --objective=next_token"
        )
    if config.attention_direction != "left_to_right":
        raise UserError(
            f"{flags.bert_config_file or source.folder}: attention_direction is "
            f"{config.attention_direction!r}, but only a model that reads from left to "
            "right can continue a text; use one trained with --objective=next_token"
        )
    return model.tokenizer, config, whole_model.load_masked_lm(config, source)


class Continuer:
    """Adds tokens to the end of a row, one after another.

    All of it is one graph for each of a few lengths. Every token takes a pass over the
    whole row.

    Args:
        model: the network, of a causal encoder.
        allowed: bool [up to vocab_size], which tokens may be added.
        temperature: 0 adds the most probable token; otherwise tokens are drawn, and logits
            are divided by this before.
        top_k: draw only from so many of the most probable tokens; 0 draws from all.
    """

    def __init__(
        self,
        model: MaskedLMModel,
        allowed: np.ndarray,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
    ):
        self._model = model
        missing = model.config.vocab_size - len(allowed)
        self._allowed = tf.constant(np.pad(allowed, (0, missing)))
        self._temperature = temperature
        self._top_k = min(top_k, int(np.count_nonzero(allowed)))
        lengths = static_lengths(model.config.max_position_embeddings)
        # One function for each; TensorFlow warns of one that is traced for many shapes.
        self._grow = {length: tf.function(self._extend_rows) for length in lengths}

    def extend(
        self, ids: Sequence[int], number: int, *, samples: int = 1, seed: int = 0
    ) -> np.ndarray:
        """Continues a row.

        Args:
            ids: the row so far, at least one token; with the new ones at most
                max_position_embeddings.
            number: of tokens to add.
            samples: how many times to continue it.
            seed: the same seed draws the same tokens.
        Returns:
            int32 [samples, number]: the new tokens.
        """
        begin, end = len(ids), len(ids) + number
        length = next(length for length in self._grow if length >= end)
        rows = np.zeros((samples, length), np.int32)
        rows[:, :begin] = ids
        draws = np.random.default_rng(seed).random((samples, length), np.float32)
        grown = self._grow[length](*map(tf.constant, (rows, begin, end, draws)))
        return grown.numpy()[:, begin:end]

    def _extend_rows(self, rows, begin, end, draws):
        columns = tf.range(rows.shape[1])[None]
        for place in tf.range(begin, end):
            encoded = self._model.encode({"input_ids": rows})
            last = tf.fill([rows.shape[0], 1], place - 1)
            logits = self._model.masked_lm(
                encoded["sequence_output"],
                positions=last,
                word_embeddings=tf.convert_to_tensor(
                    self._model.encoder.word_embeddings
                ),
            )
            chosen = self._choose(logits, draws[:, place, None])
            rows = tf.where(columns == place, chosen, rows)
        return rows

    def _choose(self, logits, draws):
        """float32 [rows, 1, vocab_size], [rows, 1] -> int32 [rows, 1]"""
        logits = tf.where(self._allowed, logits, _NEVER)
        if not self._temperature:
            return tf.argmax(logits, axis=-1, output_type=tf.int32)
        if self._top_k:
            least = tf.math.top_k(logits, self._top_k).values[..., -1:]
            logits = tf.where(logits < least, _NEVER, logits)
        return sample(logits / self._temperature, draws)

"""Loads a masked LM, and asks it for words."""

from collections.abc import Sequence

import numpy as np

from training.backend import tf
from training.queries import query
from training.run import capacity, settle
from training.storage import whole_model
from errors import UserError
from modeling.architectures.config import EncoderConfig
from modeling.objectives import masked_lm
from text.instances import packing
from text.records.rows import static_lengths
from text.tasks import mask_tokens
from text.tokenizers.tokenizer import Tokenizer


def load(
    flags: settle.ModelFlags,
) -> tuple[Tokenizer, EncoderConfig, masked_lm.MaskedLMModel]:
    """The tokenizer, the architecture and the network that flags name; it fills masks.

    Args:
        flags: `QueryOptions` with init_checkpoint.
    """
    model = query.read_model(flags)
    whole_model.check_fills_masks(flags.init_checkpoint, model.source, model.config)
    network = whole_model.load_masked_lm(model.config, model.source)
    return model.tokenizer, model.config, network


def encode(
    tokenizer: Tokenizer, text: str, config: EncoderConfig, where: str
) -> tuple[list[int], list[int], list[int]]:
    """Ids with [CLS] and [SEP], their segments, and the positions of [MASK].

    Args:
        where: the name of the text in messages.
    Raises:
        UserError: there is no [MASK], or the text is too long.
    """
    vocabulary = tokenizer.vocabulary
    ids, segments = packing.join(vocabulary, mask_tokens.encode(tokenizer, text))
    positions = [i for i, id in enumerate(ids) if id == vocabulary.mask_id]
    if not positions:
        raise UserError(
            f"{where}: no {vocabulary.mask} in {text.strip()[:60]!r}; add one"
        )
    if len(ids) > config.max_position_embeddings:
        raise UserError(
            f"{where}: {len(ids)} tokens, but the model has only "
            f"{config.max_position_embeddings} positions; shorten it"
        )
    return ids, segments, positions


def probabilities(model, ids, segments, positions) -> np.ndarray:
    """float64 [masks, vocab_size]: of the tokens at each mask of a row."""
    batch = {
        "input_ids": np.array([ids], np.int32),
        "segment_ids": np.array([segments], np.int32),
        "masked_lm_positions": np.array([positions], np.int32),
    }
    logits = np.asarray(model(batch)["masked_lm_logits"][0], np.float64)
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


class Filler:
    """Finds the most probable tokens for one mask in each of many rows.

    Batches have a few static shapes; TensorFlow makes one graph for each.

    Args:
        model: the network.
        allowed: bool [up to vocab_size], which tokens may be found.
        top_k: how many to find, at most as many as are allowed.
        pad_id: of padding.
        max_seq_length: of the longest row.
        batch_size: rows in a batch.
    """

    def __init__(self, model, allowed, *, top_k, pad_id, max_seq_length, batch_size):
        self._model = model
        ids = np.flatnonzero(allowed)
        self._ids = tf.constant(ids, tf.int32)
        self._top_k = min(top_k, len(ids))
        self._pad_id = pad_id
        self._lengths = static_lengths(max_seq_length)
        self._batch_size = batch_size
        self._graphs = {}  # by length

    def find(self, rows: Sequence[tuple[list[int], list[int], int]]) -> np.ndarray:
        """The most probable tokens, in the order of their ids.

        So only which tokens these are, and not which of two has the higher logit by its
        last bits, affects what is chosen among them.

        Args:
            rows: input_ids and segment_ids, unpadded, and the position of the mask.
        Returns:
            int [rows, top_k].
        """
        token_ids = np.zeros((len(rows), self._top_k), np.int32)
        buckets = np.searchsorted(self._lengths, [len(row[0]) for row in rows])
        order = np.argsort(buckets, kind="stable")
        for bucket in np.unique(buckets):
            of_bucket = order[buckets[order] == bucket]
            for begin in range(0, len(of_bucket), self._batch_size):
                chosen = of_bucket[begin : begin + self._batch_size]
                length = self._lengths[bucket]
                best = self._find(self._pad([rows[i] for i in chosen], length), length)
                token_ids[chosen] = np.sort(best, axis=-1)[: len(chosen)]
        return token_ids

    def _find(self, batch, length):
        if length not in self._graphs:
            # Concrete, because TensorFlow warns of a function that takes many shapes.
            make = tf.function(self._best).get_concrete_function
            self._graphs[length] = make(batch)
        return self._graphs[length](batch)

    def _pad(self, rows, length):
        shape = self._batch_size, int(length)
        what = f"--batch_size={self._batch_size}"
        capacity.check_batch(what, *shape, self._model.encoder.config)
        batch = {
            "input_ids": np.full(shape, self._pad_id, np.int32),
            "input_mask": np.zeros(shape, np.int32),
            "segment_ids": np.zeros(shape, np.int32),
            "masked_lm_positions": np.zeros((self._batch_size, 1), np.int32),
        }
        for number, (ids, segments, position) in enumerate(rows):
            batch["input_ids"][number, : len(ids)] = ids
            batch["input_mask"][number, : len(ids)] = 1
            batch["segment_ids"][number, : len(ids)] = segments
            batch["masked_lm_positions"][number] = position
        return {name: tf.constant(value) for name, value in batch.items()}

    def _best(self, batch):
        logits = self._model(batch)["masked_lm_logits"][:, 0]
        best = tf.math.top_k(tf.gather(logits, self._ids, axis=1), self._top_k)
        return tf.gather(self._ids, best.indices)

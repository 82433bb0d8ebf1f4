"""The network and the batch of an update of pre-training; needs no TensorFlow."""

import numpy as np

from benchmarks import flop, peers_theirs
from modeling.architectures.bert import BertConfig


def config(sizes: flop.Sizes) -> BertConfig:
    """Of BERT."""
    return BertConfig(
        vocab_size=sizes.vocab_size,
        hidden_size=sizes.hidden_size,
        num_hidden_layers=sizes.num_hidden_layers,
        num_attention_heads=sizes.hidden_size // flop.HEAD_SIZE,
        intermediate_size=4 * sizes.hidden_size,
        type_vocab_size=2,
    )


def batch(sizes: flop.Sizes) -> dict[str, np.ndarray]:
    """The random numbers that the peers have, by the names of a record."""
    numbers = peers_theirs.numbers(vars(sizes))
    return {
        "input_ids": numbers["input_ids"],
        "input_mask": np.ones_like(numbers["input_ids"]),
        "segment_ids": numbers["segment_ids"],
        "masked_lm_positions": numbers["positions"],
        "masked_lm_ids": numbers["labels"],
        "masked_lm_weights": np.ones(numbers["labels"].shape, np.float32),
        "next_sentence_labels": numbers["next"][:, None],
    }

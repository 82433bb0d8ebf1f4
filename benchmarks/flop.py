"""The sizes of an update of pre-training, and the operations of its products of matrices.

Needs only the standard library, because processes without TensorFlow import it, too.
"""

import dataclasses
from typing import NamedTuple

import options

NUM_PREDICTIONS = 20
HEAD_SIZE = 64


@dataclasses.dataclass(frozen=True)
class Sizes(options.Group):
    """Sizes of the network and of a batch."""

    num_hidden_layers: int = options.field(4, help="Layers.")
    hidden_size: int = options.field(256, help="Width; 64 per attention head.")
    vocab_size: int = options.field(30522, help="Size of the vocabulary.")
    batch_size: int = options.field(32, help="Examples per update.")
    max_seq_length: int = options.field(128, help="Tokens per example.")


class Product(NamedTuple):
    """[batch, rows, inner] times [batch, inner, columns], `count` times in an update."""

    count: int
    batch: int
    rows: int
    inner: int
    columns: int

    @property
    def flop(self) -> int:
        """Multiplications and additions, with those of both gradients."""
        pairs = self.batch * self.rows * self.inner * self.columns
        return 3 * 2 * pairs * self.count


def of_update(sizes) -> list[Product]:
    """Those of BERT; dense layers, attention's scores and values, heads.

    Args:
        sizes: has the fields of `Sizes`.
    """
    layers, width = sizes.num_hidden_layers, sizes.hidden_size
    examples, length = sizes.batch_size, sizes.max_seq_length
    tokens, predicted = examples * length, examples * NUM_PREDICTIONS
    heads = width // HEAD_SIZE
    return [
        Product(4 * layers, 1, tokens, width, width),
        Product(layers, 1, tokens, width, 4 * width),
        Product(layers, 1, tokens, 4 * width, width),
        Product(layers, examples * heads, length, HEAD_SIZE, length),
        Product(layers, examples * heads, length, length, HEAD_SIZE),
        Product(1, 1, predicted, width, width),
        Product(1, 1, predicted, width, sizes.vocab_size),
    ]

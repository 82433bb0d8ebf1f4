"""The products of matrices of an update of pre-training, and their operations.

Needs only the standard library, because processes without TensorFlow import it, too.
"""

from typing import NamedTuple

NUM_PREDICTIONS = 20
HEAD_SIZE = 64


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


def of_update(chosen) -> list[Product]:
    """Those of BERT; dense layers, attention's scores and values, heads.

    Args:
        chosen: has the fields of `training.Options`.
    """
    layers, width = chosen.num_hidden_layers, chosen.hidden_size
    examples, length = chosen.batch_size, chosen.max_seq_length
    tokens, predicted = examples * length, examples * NUM_PREDICTIONS
    heads = width // HEAD_SIZE
    return [
        Product(4 * layers, 1, tokens, width, width),
        Product(layers, 1, tokens, width, 4 * width),
        Product(layers, 1, tokens, 4 * width, width),
        Product(layers, examples * heads, length, HEAD_SIZE, length),
        Product(layers, examples * heads, length, length, HEAD_SIZE),
        Product(1, 1, predicted, width, width),
        Product(1, 1, predicted, width, chosen.vocab_size),
    ]

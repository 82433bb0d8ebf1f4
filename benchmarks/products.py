"""The products of matrices of an update of pre-training, alone: what it cannot go below."""

import statistics
import time
from typing import NamedTuple

from training.backend import tf
from benchmarks import training

_REPEATS = 9


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


def of_update(chosen: training.Options) -> list[Product]:
    """Those of BERT; dense layers, attention's scores and values, heads."""
    layers, width = chosen.num_hidden_layers, chosen.hidden_size
    examples, length = chosen.batch_size, chosen.max_seq_length
    tokens, predicted = examples * length, examples * training.NUM_PREDICTIONS
    heads = width // training.HEAD_SIZE
    return [
        Product(4 * layers, 1, tokens, width, width),
        Product(layers, 1, tokens, width, 4 * width),
        Product(layers, 1, tokens, 4 * width, width),
        Product(layers, examples * heads, length, training.HEAD_SIZE, length),
        Product(layers, examples * heads, length, length, training.HEAD_SIZE),
        Product(1, 1, predicted, width, width),
        Product(1, 1, predicted, width, chosen.vocab_size),
    ]


def seconds(product: Product, dtype: tf.DType) -> float:
    """Median time of a product and of its gradients, by all cores, `count` times."""
    batch, rows, inner, columns = product[1:]

    def random(*shape):
        # As TensorFlow does it for one product or for many, which takes other routines.
        shape = shape if batch == 1 else (batch, *shape)
        return tf.cast(tf.random.stateless_normal(shape, seed=[0, 1]), dtype)

    left, right, result = (
        random(rows, inner),
        random(inner, columns),
        random(rows, columns),
    )

    @tf.function
    def products():
        of_left = tf.matmul(result, right, transpose_b=True)
        with tf.control_dependencies([of_left]):  # one after another
            of_right = tf.matmul(left, result, transpose_a=True)
        with tf.control_dependencies([of_right]):
            return tf.matmul(left, right), of_left, of_right

    products()
    taken = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        products()
        taken.append(time.perf_counter() - began)
    return product.count * statistics.median(taken)

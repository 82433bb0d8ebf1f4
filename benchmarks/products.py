"""How fast this machine multiplies matrices: what an update cannot go below.

python -m benchmarks.products prints it for one large product, as JSON.
"""

import dataclasses
import json
import statistics
import time

import command_line
import options
from training.backend import tf
from benchmarks.flop import Product

_REPEATS = 9
_IN_A_ROW = 10  # of one large product, so that starting them takes no time


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    size: int = options.field(8192, help="Rows and columns of both matrices.")
    dtype: str = options.field("bfloat16", help="Their type.")


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


def rate(size: int, dtype: tf.DType) -> float:
    """FLOP a second of a square product, by all of the first device."""
    left, right = (
        tf.cast(tf.random.stateless_normal([size, size], seed=[0, i]), dtype)
        for i in (1, 2)
    )
    right *= tf.cast(size**-0.5, dtype)  # products stay as large as their factors

    @tf.function
    def products(x):
        for _ in range(_IN_A_ROW):
            x = tf.matmul(x, right)
        return x[0, 0]

    products(left).numpy()
    taken = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        products(left).numpy()  # waits for a GPU
        taken.append(time.perf_counter() - began)
    return _IN_A_ROW * 2 * size**3 / statistics.median(taken)


def main(chosen: Options) -> None:
    """Prints the rate."""
    print(json.dumps({"flop_per_second": rate(chosen.size, tf.as_dtype(chosen.dtype))}))


if __name__ == "__main__":
    command_line.run(main, Options)

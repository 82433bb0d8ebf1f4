"""An optimizer in one file: Lion, and run_pretraining.py with it.

Source: arXiv:2302.06675, algorithm 2.
"""

import command_line
from training.backend import keras
from modeling.optimizers.table import ALGORITHMS, Algorithm

ROW = Algorithm("tests.programs.lion:Lion", "from_peak", ("weight_decay",))


class Lion:
    """Moves every number of a variable by the same amount, by the sign of a mean."""

    def __init__(self, variables, *, weight_decay=0.0, shares):
        self.trainable_variables = list(variables)
        self.shares = shares
        self.weight_decay = weight_decay
        self.variables = [
            keras.Variable(
                "zeros",
                shape=v.shape,
                dtype="float32",
                trainable=False,
                name=f"{v.path.replace('/', '.')}.lion",
            )
            for v in self.trainable_variables
        ]

    def apply(self, gradients, learning_rate, step=None, scale=1.0):
        triples = zip(self.trainable_variables, self.variables, gradients, strict=True)
        for variable, mean, gradient in triples:
            gradient = keras.ops.convert_to_tensor(gradient) * scale
            sign = keras.ops.sign(0.9 * mean + 0.1 * gradient)
            rate = learning_rate * self.shares.get(variable.path, 1.0)
            variable.assign_sub(rate * (sign + self.weight_decay * variable))
            mean.assign(0.99 * mean + 0.01 * gradient)


if __name__ == "__main__":
    ALGORITHMS["lion"] = ROW  # before its flag is declared
    import run_pretraining

    command_line.run(run_pretraining.main, run_pretraining.Options)

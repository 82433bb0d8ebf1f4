"""What modeling uses of Keras that is not public: look here first when Keras changes."""

import keras
from keras.src.backend.common import global_state


def layers_in(layer: keras.Layer) -> list[keras.Layer]:
    """The layers in a layer, at any depth; one that is used several times, once."""
    return list(dict.fromkeys(layer._flatten_layers(include_self=False)))


def uninitialized_variables() -> list[keras.Variable]:
    """Those without values, which get some when Keras next leaves a scope for them."""
    return global_state.get_global_attribute(
        "uninitialized_variables", [], set_to_default=True
    )


def track(optimizer: keras.optimizers.Optimizer, variable: keras.Variable) -> None:
    """Makes a variable a slot of an optimizer, which saves it."""
    optimizer._track_variable(variable)


def index_of(optimizer: keras.optimizers.Optimizer, variable: keras.Variable) -> int:
    """The place of a variable among those that an optimizer was built for."""
    return optimizer._get_variable_index(variable)

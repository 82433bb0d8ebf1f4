"""Optimizers and schedules of the scripts, for `keras.Model.compile`."""

import dataclasses
from collections.abc import Mapping

import keras
from keras import ops

from modeling import private
from modeling.optimizers.table import OptimizerSettings


@keras.saving.register_keras_serializable(package="bert")
class LearningRate(keras.optimizers.schedules.LearningRateSchedule):
    """How the learning rate of a run changes.

    Args:
        peak: the highest.
        num_train_steps: updates of the whole run.
        num_warmup_steps: updates over which it rises.
        settings: fields of `OptimizerSettings`; this needs the schedule's.
    """

    def __init__(
        self,
        peak: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        settings: Mapping = {},
    ):
        self._arguments = peak, num_train_steps, num_warmup_steps
        self._settings = OptimizerSettings(**settings)

    def __call__(self, step):
        return self._settings.learning_rate(step, *self._arguments)

    def get_config(self) -> dict:
        peak, steps, warmup = self._arguments
        return {
            "peak": peak,
            "num_train_steps": steps,
            "num_warmup_steps": warmup,
            "settings": dataclasses.asdict(self._settings),
        }


@keras.saving.register_keras_serializable(package="bert")
class Optimizer(keras.optimizers.Optimizer):
    """An optimizer of `OptimizerSettings`; one update equals one of the scripts' loop.

    Args:
        learning_rate: a number, or a `LearningRate`.
        settings: fields of `OptimizerSettings`.
        shares: path of a variable -> its share of the learning rate, if that is not 1; see
            `optimizers.table.layerwise_shares`.
    """

    def __init__(
        self,
        learning_rate=2e-5,
        settings: Mapping = {},
        shares: Mapping[str, float] = {},
        name: str = "bert",
        **more,
    ):
        made = OptimizerSettings(**settings)
        clip_norm = made.clip_norm or None
        super().__init__(learning_rate, name=name, global_clipnorm=clip_norm, **more)
        self._settings, self._shares = made, dict(shares)
        self._of_variables = []

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        for variable in variables:
            one = self._settings.make([variable], self._shares)
            self._of_variables.append(one)
            for slot in one.variables:
                private.track(self, slot)

    def update_step(self, gradient, variable, learning_rate):
        one = self._of_variables[private.index_of(self, variable)]
        gradients = [ops.convert_to_tensor(gradient, "float32")]
        rate = ops.cast(learning_rate, "float32")
        one.apply(gradients, rate, self.iterations)

    def get_config(self) -> dict:
        config = super().get_config()
        # These are the settings'.
        for name in ("weight_decay", "clipnorm", "global_clipnorm", "clipvalue"):
            config.pop(name)
        return config | {
            "settings": dataclasses.asdict(self._settings),
            "shares": self._shares,
        }

"""How gradients become an update: an algorithm times a schedule, and their settings.

To add an algorithm, add a file and a row to ALGORITHMS; its key is then a value of
`optimizer`. A schedule is a function and a row of SCHEDULES. A release's combination of
both is a row of PRESETS, or of the `optimizers` of an extension.

This module loads no Keras, so that help texts can list the names at once. What a row names
is imported when it is used.
"""

import dataclasses
import pkgutil
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import extensions

_OF_ADAM = ("bias_correction", "adam_beta_2", "weight_decay")


class Algorithm(NamedTuple):
    """How a gradient, given a rate, changes a variable.

    Attributes:
        name: "module:class", which is made and used like `adam.AdamWeightDecay`.
        lr_schedule: a key of SCHEDULES, the usual one.
        options: the arguments of its constructor that are flags.
    """

    name: str
    lr_schedule: str
    options: tuple[str, ...] = ()


class Schedule(NamedTuple):
    """How the learning rate changes: "module:function", and which flags are arguments."""

    name: str
    options: tuple[str, ...] = ("lr_decay_power",)


class Preset(NamedTuple):
    """What a release uses.

    Attributes:
        algorithm: a key of ALGORITHMS.
        lr_schedule: a key of SCHEDULES; None if it is the algorithm's.
        settings: arguments of the algorithm, whatever the flags say.
        undecayed: more of them, if weight_decay=0.
    """

    algorithm: str
    lr_schedule: str | None = None
    settings: Mapping[str, object] = {}
    undecayed: Mapping[str, object] = {}


_HERE = "modeling.optimizers"
ALGORITHMS = {
    "adam": Algorithm(f"{_HERE}.adam:AdamWeightDecay", "bert", _OF_ADAM),
    "lamb": Algorithm(f"{_HERE}.adam:Lamb", "bert", _OF_ADAM),
    "adagrad": Algorithm(f"{_HERE}.adagrad:Adagrad", "constant"),
    "adafactor": Algorithm(f"{_HERE}.adafactor:Adafactor", "inverse_root"),
    "stable_adamw": Algorithm(
        f"{_HERE}.stable_adam:StableAdamW", "from_peak", ("adam_beta_2", "weight_decay")
    ),
}
_TO_RATIO = ("lr_decay_power", "min_lr_ratio")
SCHEDULES = {
    "bert": Schedule(f"{_HERE}.schedules:bert"),
    "from_peak": Schedule(f"{_HERE}.schedules:from_peak"),
    "times_warmup": Schedule(f"{_HERE}.schedules:times_warmup"),
    "cosine": Schedule(f"{_HERE}.schedules:cosine"),
    "constant": Schedule(f"{_HERE}.schedules:constant", ()),
    "inverse_root": Schedule(f"{_HERE}.schedules:inverse_root"),
    "to_ratio": Schedule(f"{_HERE}.schedules:to_ratio", _TO_RATIO),
    "cosine_to_ratio": Schedule(f"{_HERE}.schedules:cosine_to_ratio", _TO_RATIO),
    "wsd": Schedule(f"{_HERE}.schedules:wsd", ("num_decay_steps", *_TO_RATIO)),
    "wsd_sqrt": Schedule(
        f"{_HERE}.schedules:wsd_sqrt", ("num_decay_steps", "min_lr_ratio")
    ),
}

PRESETS = {"adam_weight_decay": Preset("adam")}
PRESETS |= {
    name: Preset(*row)
    for name, row in extensions.rows("optimizers", {*ALGORITHMS, *PRESETS}).items()
}


def optimizers() -> tuple[str, ...]:
    """The names of optimizers: presets, and algorithms as they are."""
    return tuple(sorted({*ALGORITHMS, *PRESETS}))


def usual_schedules() -> str:
    """Which schedule is whose: "adagrad constant, adam bert, ...", for a help text."""
    settings = map(OptimizerSettings, optimizers())
    return ", ".join(f"{each.optimizer} {each.schedule}" for each in settings)


@dataclasses.dataclass(frozen=True)
class OptimizerSettings:
    """How gradients become an update; the fields have the names of flags.

    Attributes:
        optimizer: one of `optimizers()`.
        lr_schedule: a key of SCHEDULES; None if it is the optimizer's.
        clip_norm: the largest norm of all gradients together; 0 leaves them as they are.
        lr_decay_power: see `schedules.bert`.
        layerwise_lr_decay: see `layerwise_shares`.
        min_lr_ratio: of the last learning rate to the highest.
        num_decay_steps: see `schedules.wsd`.
    """

    optimizer: str = "adam_weight_decay"
    lr_schedule: str | None = None
    bias_correction: bool = False
    adam_beta_2: float = 0.999
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    lr_decay_power: float = 1.0
    layerwise_lr_decay: float = 1.0
    min_lr_ratio: float = 0.0
    num_decay_steps: int = 0

    @property
    def _preset(self) -> Preset:
        return PRESETS.get(self.optimizer, Preset(self.optimizer))

    @property
    def _preset_values(self) -> Mapping[str, object]:
        """What the preset decides, whatever the settings say."""
        undecayed = {} if self.weight_decay else self._preset.undecayed
        return {**self._preset.settings, **undecayed}

    @property
    def _algorithm(self) -> Algorithm:
        return ALGORITHMS[self._preset.algorithm]

    @property
    def schedule(self) -> str:
        """The key in SCHEDULES of what is used."""
        usual = self._preset.lr_schedule or self._algorithm.lr_schedule
        return self.lr_schedule or usual

    def settings_without_effect(self) -> dict[str, tuple[str, str, tuple[str, ...]]]:
        """Settings without effect -> the setting that lacks them, its value, and the values
        that have them.
        """
        unused = {}
        for name, value, row, table in (
            ("optimizer", self.optimizer, self._algorithm, ALGORITHMS),
            ("lr_schedule", self.schedule, SCHEDULES[self.schedule], SCHEDULES),
        ):
            for option in {o for other in table.values() for o in other.options}:
                having = tuple(
                    k for k, other in table.items() if option in other.options
                )
                if option not in row.options:
                    unused[option] = (name, value, having)
                elif name == "optimizer" and option in self._preset_values:
                    if getattr(self, option) != self._preset_values[option]:
                        unused[option] = (name, value, having)
        return unused

    def make_for(self, model):
        """The optimizer, such as an `AdamWeightDecay`, for a network of an `Objective`."""
        decay = self.layerwise_lr_decay
        shares = {}
        if decay != 1.0:
            shares = layerwise_shares(model.encoder.stages, decay)
        return self.make(model.trainable_variables, shares)

    def make(self, variables, shares: Mapping[str, float] = {}):
        """The optimizer for these keras.Variables; `shares` as for `AdamWeightDecay`."""
        settings = {name: getattr(self, name) for name in self._algorithm.options}
        made = pkgutil.resolve_name(self._algorithm.name)
        return made(variables, shares=shares, **settings | self._preset_values)

    def learning_rate(self, step, peak, num_train_steps, num_warmup_steps):
        """float32 scalar: the rate of the update that follows `step` updates."""
        row = SCHEDULES[self.schedule]
        return pkgutil.resolve_name(row.name)(
            step,
            peak,
            num_train_steps,
            num_warmup_steps,
            **{name: getattr(self, name) for name in row.options},
        )


def layerwise_shares(stages: Sequence[Sequence], decay: float) -> dict[str, float]:
    """Shares of the learning rate that fall from the top of an encoder to its bottom.

    With L layers, layer i (from 0) has the share decay ** (L + 1 - i), the embeddings
    decay ** (L + 2), and a pooler decay: so the top layer has decay ** 2, as in the
    release, which has no pooler. Heads, which are not in the encoder, have 1.

    Args:
        stages: of keras.Variables; see `Encoder.stages`. Weights that layers share count
            as the highest.
    Returns:
        path of a variable -> its share.
    Source: google-research/electra@8a46635 model/optimization.py, _get_layer_lrs.
    """
    shares = [decay ** (len(stages) - number) for number in range(len(stages))]
    return {
        variable.path: share
        for share, variables in zip(shares, stages, strict=True)
        for variable in variables
    }

"""What relatives and recipes add to tests that try everything of a kind.

It is in dictionaries, in modules of tests/family/<name>/ and tests/recipes/; a folder that
is not there adds nothing. The callers of `collect` say what they ask for. A relative's
sample.py, which loads no TensorFlow, has among others

    CONFIGS: architecture -> a small config.
    COMPILED, DIVIDED: kind of updates -> `Compiled`, `Divided`.
    ADAPTED: architecture -> `Adapted`.
    FINE_TUNED: architecture -> keys of `relatives.TASKS`, what is fine-tuned from it.
    FIRST_HEADS: architecture -> the deviation of a task's first weights, if it is 64 wide
        and they are cut off at two deviations.
    WORD_TEACHERS: architecture -> a config, of those that teach words.
    STUDENTS: golden model -> the layers that its student has.

A folder's scripts.py has

    SCRIPTS: script -> what makes its files and returns their flags, and the other flags.
"""

import importlib
from collections.abc import Callable
from typing import NamedTuple

import tests
from modeling.architectures.config import EncoderConfig
from modeling.objectives.objective import Objective
from modeling.optimizers.table import OptimizerSettings
from tests import tiny

SIZES = {
    "vocab_size": 9,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 64,
}
# These are for tests/golden/pretraining/pretraining.tfrecord.
COMPILED_SIZES = tiny.config(
    vocab_size=3000, hidden_size=8, intermediate_size=8, max_position_embeddings=64
)
DIVIDED_SIZES = {
    "vocab_size": 3000,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.6,  # makes gradients that have to be clipped
}
DRAWN = {
    "max_predictions_per_seq": 10,
    "mask_share": 0.8,
    "random_share": 0.1,
    "whole_words": False,
    "vocab_size": 3000,
    "mask_id": 103,
    "special_ids": (101, 102),
}


class Divided(NamedTuple):
    """What is trained, the output whose dropout is looked at, and how."""

    make: Callable[[], Objective]
    config: EncoderConfig
    output: str
    optimizer: OptimizerSettings = OptimizerSettings()
    steps: tuple[Callable, ...] = ()


class Compiled(NamedTuple):
    """What is compiled: an objective, and what draws its masks."""

    objective: Objective
    config: EncoderConfig
    steps: tuple[Callable, ...] = ()


class Adapted(NamedTuple):
    """What adapters change, and what it is called in peft's files.

    Attributes:
        changes: of the config.
        module: what is before the names of targets; {} is the architecture, # the layer.
        targets: of --lora_targets -> their width.
        lacks: a part of the names of our encoder's weights that a base alone lacks.
        head: their modules of a classifier.
        saved: the modules that peft saves whole.
        missing: the weight of a classifier that a config of the base alone does not name.
    """

    changes: dict = {}
    module: str = "{}.encoder.layer.#.attention.self."
    targets: dict[str, int] = {"query": 16, "value": 16}
    lacks: str = "/pooler/"
    head: tuple[str, ...] = ("classifier.dense", "classifier.out_proj")
    saved: tuple[str, ...] = ("classifier",)
    missing: str | None = None


def collect(name: str, module: str = "sample") -> dict:
    """The entries of a dictionary in all folders that are there."""
    folder = tests.ROOT / "tests"
    paths = sorted(
        [*folder.glob(f"family/*/{module}.py"), *folder.glob(f"recipes/{module}.py")]
    )
    names = (
        ".".join(path.relative_to(tests.ROOT).with_suffix("").parts) for path in paths
    )
    modules = map(importlib.import_module, names)
    return {
        key: value for each in modules for key, value in getattr(each, name, {}).items()
    }

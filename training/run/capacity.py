"""Refuses what the memory of this machine cannot hold, before any of it is allocated."""

import dataclasses
import functools
import math
import os
import re

from training.backend import tf
from training.storage import whole_model
from errors import UserError
from modeling.architectures.config import EncoderConfig
from text.progress import size

_TABLES = ("vocab_size", "max_position_embeddings")  # of these, rows have a width


def check(what: str, num_bytes: float) -> None:
    """Compares what something takes at the very least with all memory and swap.

    Accelerators have memory of their own, so nothing is refused where there are any.

    Raises:
        UserError: it cannot fit.
    """
    has = _memory()
    if num_bytes > has and len(tf.config.list_physical_devices()) == 1:
        raise UserError(
            f"{what} needs at least {size(num_bytes)} of memory, but this machine has "
            f"{size(has)}; lower the sizes"
        )


def check_network(
    config: EncoderConfig, where: str, *, numbers_per_weight: int = 1
) -> None:
    """Checks that the weights of a network can fit.

    Args:
        where: what describes the network: a path or a flag.
        numbers_per_weight: 1, or 2 with gradients; an optimizer's slots may be few.
    """
    each = 4 * numbers_per_weight
    if _may_have(config) * each > _memory():
        weights = whole_model.network(config).weights
        number = sum(math.prod(weight.shape) for weight in weights)
        check(f"{where}: a network of {number:,} weights", number * each)


def _may_have(config):
    """More weights than it has; counting them takes seconds where they are many."""
    values = {
        name: value
        for name, value in dataclasses.asdict(config).items()
        if type(value) is int and not name.endswith("_layers")
    }
    width = max([v for name, v in values.items() if name not in _TABLES], default=1)
    rows = sum(values.get(name, 0) for name in _TABLES)
    return 4 * rows * width + 16 * config.num_hidden_layers * width**2


@functools.cache
def _memory():
    """Bytes of memory and swap."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if os.path.exists("/proc/meminfo"):
        with open("/proc/meminfo", encoding="ascii") as file:
            swap = re.search(r"SwapTotal:\s*(\d+) kB", file.read())
        total += 1024 * int(swap[1]) if swap else 0
    return total

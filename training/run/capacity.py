"""Refuses what the memory of this machine cannot hold, before any of it is allocated.

What a GPU cannot hold shows only there; its errors become one line, too.
"""

import contextlib
import dataclasses
import math
import re
import sys
from collections.abc import Iterator

from training.backend import tf
from training.storage import whole_model
from errors import UserError, size
from files import memory
from modeling.architectures.config import EncoderConfig

_MEASURED = 3  # times the least that a pass with its gradients takes
# Of TensorFlow, XLA and the libraries of GPUs, which report other kinds of errors.
_LACKS_MEMORY = re.compile(r"\bOOM\b|[Oo]ut of memory|OUT_OF_MEMORY|ALLOC_FAILED")
_LACKS_SPACE = re.compile(r"\S* ?No space left on device|\S* ?Disk quota exceeded")
_TABLES = ("vocab_size", "max_position_embeddings")  # of these, rows have a width


def check(what: str, num_bytes: float) -> None:
    """Compares what something takes at the very least with all memory and swap.

    Accelerators have memory of their own, so nothing is refused where there are any.

    Raises:
        UserError: it cannot fit.
    """
    has = memory.total()
    if num_bytes > has and not _has_accelerators():
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
    if _may_have(config) * each > memory.total():
        weights = whole_model.network(config).weights
        number = sum(math.prod(weight.shape) for weight in weights)
        check(f"{where}: a network of {number:,} weights", number * each)


def check_batch(
    flag: str,
    rows: int,
    seq_length: int,
    config: EncoderConfig,
    *,
    dtype: str = "float32",
    keeps: str = "nothing",
    logits: int = 0,
) -> None:
    """Checks that one pass over a batch can fit; warns where it hardly does.

    Args:
        flag: what sets the size of the batch.
        rows: of the batch, on one device at a time.
        seq_length: of each row, with its padding.
        keeps: for the gradients: what is in "layers", their "outputs", or "nothing".
        logits: of each row, which have 32 bits.
    """
    # A pass that keeps nothing has, at one time, more than a third of what is in a layer:
    # what its largest product reads and writes, and the layer's input.
    of_row = config.kept_numbers(seq_length) / 3
    if keeps == "layers":
        of_row = config.kept_numbers(seq_length) * config.num_hidden_layers
    elif keeps == "outputs":
        of_row = max(of_row, seq_length * config.hidden_size * config.num_hidden_layers)
    least = rows * (of_row * (2 if dtype == "mixed_bfloat16" else 4) + 4 * logits)
    what = f"{flag}: a pass over {rows:,} rows of {seq_length:,} tokens"
    check(what, least)
    if (
        keeps == "layers"
        and least * _MEASURED > memory.total()
        and not _has_accelerators()
    ):
        print(
            f"warning: {what} may need {size(least * _MEASURED)} of memory; this machine "
            f"has {size(memory.total())}",
            file=sys.stderr,
        )


@contextlib.contextmanager
def advising(what: str, advice: str) -> Iterator[None]:
    """Says in one line that memory, or the disk of compiled programs, was not enough.

    Args:
        what: is computed in here, in words.
        advice: what to do if the memory of a device does not hold it.
    Raises:
        UserError: one of them is full.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if full := _LACKS_SPACE.search(error.message):
            raise UserError(
                f"{full[0]}; free some space, or, if compiled programs fill it, pass "
                "--xla_cache_dir=none"
            ) from None
        # This kind always means memory; libraries of GPUs report it by their words alone.
        is_exhausted = isinstance(error, tf.errors.ResourceExhaustedError)
        if not is_exhausted and not _LACKS_MEMORY.search(error.message):
            raise
        asked = re.search(r"allocate (\d+) bytes", error.message)
        more = f" ({size(int(asked[1]))} at once)" if asked else ""
        raise UserError(
            f"{what} needs more memory than there is{more}; {advice}"
        ) from None


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


def _has_accelerators():
    return len(tf.config.list_physical_devices()) > 1

"""Reads and writes the files of OpenAI's GPT: params_shapes.json and params_0.npy to 9.

All tensors are flattened, joined and cut into ten files; only their order says which is
which.
"""

import io
import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from errors import UserError
from modeling.architectures.config import EncoderConfig
from text.files import anywhere
from training.interchange.gpt_names import LAYER, POSITIONS, WORDS

SHAPES = "params_shapes.json"
_FILES = 10
_PER_LAYER = 12
_OF_ATTENTION = 3  # the first modules of LAYER are the columns of one tensor


class _Tensor(NamedTuple):
    """One of theirs; with several names, their columns side by side."""

    names: tuple[str, ...]
    shape: tuple[int, ...]

    @property
    def shape_of_each(self) -> tuple[int, ...]:
        # Matrices of layers are [1, in, out], those of a convolution of width 1.
        *rest, columns = self.shape[1:] if len(self.shape) == 3 else self.shape
        return (*rest, columns // len(self.names))


def is_weights(path: str) -> bool:
    """Whether this is the path of the file that lists the shapes."""
    return os.path.basename(path) == SHAPES


def find(directory: str) -> str | None:
    """The path of a folder's list of shapes; None if it has none."""
    path = os.path.join(directory, SHAPES)
    return path if tf.io.gfile.exists(path) else None


def shapes(path: str) -> dict[str, tuple[int, ...]]:
    """Our names to the shapes of our variables.

    Args:
        path: of params_shapes.json.
    Raises:
        UserError: these are not the shapes of a GPT.
    """
    return {
        name: tensor.shape_of_each for tensor in _listed(path) for name in tensor.names
    }


def read(path: str, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Reads tensors by our names.

    Args:
        path: of params_shapes.json; the other files are next to it.
        names: which to read; all by default.
    Raises:
        UserError: a file is missing or damaged, or these are not the shapes of a GPT.
    """
    listed = _listed(path)
    folder = os.path.dirname(path)
    numbers = np.concatenate(
        [_array(os.path.join(folder, f"params_{n}.npy")) for n in range(_FILES)]
    )
    sizes = [math.prod(tensor.shape) for tensor in listed]
    if len(numbers) != sum(sizes):
        raise UserError(
            f"{folder}: {SHAPES} describes {sum(sizes):,} numbers, but the ten "
            f"params_*.npy have {len(numbers):,}; copy or download all of them again"
        )
    found, ends = {}, itertools.accumulate(sizes)
    for tensor, size, end in zip(listed, sizes, ends, strict=True):
        *rest, _ = tensor.shape_of_each
        value = numbers[end - size : end].reshape(*rest, -1)
        parts = np.split(value, len(tensor.names), axis=-1)
        found |= zip(tensor.names, map(np.ascontiguousarray, parts), strict=True)
    return {name: found[name] for name in (found if names is None else names)}


def write(
    directory: str,
    tensors: Mapping[str, np.ndarray],
    config: EncoderConfig,
    beside: Mapping[str, str | bytes],
) -> str:
    """Writes the eleven files; a head has no place in them.

    Args:
        tensors: our names to arrays.
        beside: names and contents of other files to write.
    Returns:
        The path of params_shapes.json, which is written last.
    Raises:
        UserError: it is not a GPT, or it has a head; or the disk is full.
    """
    order = list(_order(config.num_hidden_layers))
    known = [name for names in order for name in names]
    if odd := sorted(set(tensors) ^ set(known)):
        raise UserError(
            f"{odd[0]}: OpenAI's layout holds the encoder of a GPT and nothing else; "
            "choose another --layout"
        )
    shapes, parts = [], []
    for names in order:
        value = np.concatenate([tensors[name] for name in names], axis=-1)
        is_kernel = names[0].endswith("/kernel")
        shapes.append([1, *value.shape] if is_kernel else list(value.shape))
        parts.append(value.astype(np.float32).ravel())
    files = dict(beside)
    for number, part in enumerate(np.array_split(np.concatenate(parts), _FILES)):
        content = io.BytesIO()
        np.save(content, part)
        files[f"params_{number}.npy"] = content.getvalue()
    # The list last, because it marks the folder as a model.
    for name, content in {**files, SHAPES: json.dumps(shapes)}.items():
        content = content.encode() if isinstance(content, str) else content
        with anywhere.replacing(os.path.join(directory, name)) as file:
            file.write(content)
    return os.path.join(directory, SHAPES)


def _order(num_layers: int) -> Iterator[tuple[str, ...]]:
    """Our names for each of their tensors."""
    yield (POSITIONS,)
    yield (WORDS,)
    modules = [LAYER[:_OF_ATTENTION], *((module,) for module in LAYER[_OF_ATTENTION:])]
    for number, module in itertools.product(range(num_layers), modules):
        (*_, kind) = module[0]
        for ending in ("gamma", "beta") if kind == "norm" else ("kernel", "bias"):
            scopes = (f"gpt/encoder/layer_{number}/{scope}" for scope, *_ in module)
            yield tuple(f"{scope}/{ending}" for scope in scopes)


def _listed(path) -> list[_Tensor]:
    said = anywhere.read_json(path)
    try:
        shapes = [tuple(map(int, shape)) for shape in said]
        if shapes != (expected := _expected(shapes)):
            different = next(
                n for n, s in enumerate(expected) if [s] != shapes[n : n + 1]
            )
            raise ValueError(f"shape {different} is another")
    except (TypeError, ValueError, IndexError) as error:
        raise UserError(
            f"{path}: not the shapes of a GPT's positions, tokens and twelve tensors for "
            f"each layer ({error}); use the file that OpenAI released"
        ) from error
    layers = (len(shapes) - 2) // _PER_LAYER
    return [_Tensor(*pair) for pair in zip(_order(layers), shapes, strict=True)]


def _expected(shapes):
    """The shapes of a GPT with the sizes of these."""
    positions, width = shapes[0]
    (inner,) = shapes[9]  # the bias of the first c_fc
    dense = ((width, 3 * width), (width, width), (width, inner), (inner, width))
    of_dense = [((1, *shape), shape[1:]) for shape in dense]
    norm = ((width,), (width,))
    c_attn, attention, c_fc, output = of_dense
    layer = [*c_attn, *attention, *norm, *c_fc, *output, *norm]
    tables = [(positions, width), (shapes[1][0], width)]
    return tables + layer * max(1, -(-(len(shapes) - 2) // _PER_LAYER))


def _array(path) -> np.ndarray:
    """A file's numbers, float32 in one row."""
    if not tf.io.gfile.exists(path):
        raise UserError(f"{path}: no such file; all ten params_*.npy are needed")
    try:
        with anywhere.access(path), tf.io.gfile.GFile(path, "rb") as file:
            value = np.load(io.BytesIO(file.read()), allow_pickle=False)
        return value.astype(np.float32).ravel()
    except (ValueError, EOFError) as error:
        raise UserError(
            f"{path}: is damaged or incomplete ({error}); copy or download it again"
        ) from error

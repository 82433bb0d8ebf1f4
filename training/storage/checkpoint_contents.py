"""Prints and identifies what checkpoints contain; compares and averages them."""

import hashlib
import re
from collections.abc import Mapping, Sequence

import numpy as np

from training.storage.source import Source
from errors import UserError

_OF_TRAINING = re.compile(
    r"/(adam_[mv]|adagrad)$|_slot_v[rc]?$|/Adam(_1)?$|^beta[12]_power$|^global_step$|"
    r"^training/"
)


def of_training(name: str) -> bool:
    """Whether a tensor is not a weight, but something else that a run saves."""
    return _OF_TRAINING.search(name) is not None


def digest(weights: Mapping[str, np.ndarray]) -> str:
    """Identifies a network's weights: SHA-256 of names and values, in hexadecimal."""
    sha256 = hashlib.sha256()
    for name, value in sorted(weights.items()):
        sha256.update(name.encode())
        sha256.update(np.ascontiguousarray(value))
    return sha256.hexdigest()


def show(source: Source) -> None:
    """Prints every tensor, and the totals."""
    tensors = source.read()
    width = max(map(len, tensors))
    for name, value in sorted(tensors.items()):
        print(f"{name:{width}}  {value.dtype!s:8} {list(value.shape)}")
    weights = [v for k, v in tensors.items() if not of_training(k)]
    total = sum(v.nbytes for v in tensors.values())
    print(
        f"{source.prefix}: {sum(v.size for v in weights):,} weights in {len(weights)} "
        f"tensors; {len(tensors)} tensors and {total / 1e6:,.1f} MB in all"
    )


def compare(one: Source, other: Source) -> bool:
    """Prints where two checkpoints differ; returns whether they are the same."""
    first, second = (
        {k: v for k, v in source.read().items() if not of_training(k)}
        for source in (one, other)
    )
    for name in sorted(first.keys() ^ second.keys()):
        print(f"{name}: only in {(one if name in first else other).prefix}")
    same = first.keys() == second.keys()
    equal = 0
    for name in sorted(first.keys() & second.keys()):
        a, b = first[name], second[name]
        if a.shape != b.shape:
            print(f"{name}: {list(a.shape)} and {list(b.shape)}")
        elif np.array_equal(a, b):
            equal += 1
            continue
        else:
            largest = np.abs(a.astype(np.float64) - b).max()
            print(f"{name}: differs by at most {largest:.3g}")
        same = False
    print(f"{equal} of {len(first.keys() | second.keys())} weights are identical")
    return same


def average(
    tensors: Sequence[Mapping[str, np.ndarray]], prefixes: Sequence[str]
) -> Mapping[str, np.ndarray]:
    """The mean of checkpoints, computed in float64."""
    first = tensors[0]
    if len(tensors) == 1:
        return first
    for prefix, other in zip(prefixes[1:], tensors[1:], strict=True):
        odd = sorted(
            name
            for name in first.keys() | other.keys()
            if name not in first
            or name not in other
            or first[name].shape != other[name].shape
        )
        if odd:
            raise UserError(
                f"{prefix}: cannot be averaged with {prefixes[0]}, from which it differs "
                f"in {', '.join(odd[:5])}"
            )
    return {
        name: np.mean(
            [some[name] for some in tensors], axis=0, dtype=np.float64
        ).astype(value.dtype)
        for name, value in first.items()
    }

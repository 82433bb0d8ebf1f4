"""Compares the weights on disk with a network's variables, and says what fits."""

import collections
import dataclasses
import re
from collections.abc import Collection, Mapping

from errors import UserError, setting
from training.interchange import networks

_LAYER = re.compile(r"(layer|block)_\d+")
_SLOT = re.compile(r".*(?:(/adam_)[mv]|(/adagrad)|(_slot_)v[rc]?)$")
_MOST_UNUSED = 8  # names on the console; of more, only what they begin with


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """Which variables a checkpoint set, and what was left over on either side."""

    source: str
    matched: list[str]
    initial: list[str]  # variables of the model that the checkpoint does not have
    unused: list[str]  # entries of the checkpoint that the model does not have

    def __str__(self) -> str:
        total = len(self.matched) + len(self.initial)
        lines = [f"{self.source}: {len(self.matched)} of {total} variables matched"]
        for title, names, most in (
            ("left at their initial value", self.initial, len(self.initial)),
            ("unused in the checkpoint", self.unused, _MOST_UNUSED),
        ):
            if names:
                lines.append(f"  {title} ({len(names)}): {list_names(names, most)}")
        return "\n".join(lines)


def list_names(names: Collection[str], most: int | None = None) -> str:
    """Names in one line.

    Args:
        most: if there are more, what the names begin with instead.
    """
    parts = groups(names)
    if most and len(parts) > most:
        parts = groups(names, lambda name: re.sub("([/.]).*", r"\1*", name))
    return ", ".join(parts)


def is_adapter(name: str) -> bool:
    """Whether a tensor is one of the two of a low-rank adapter."""
    return name.endswith(("/lora_kernel_a", "/lora_kernel_b"))


def is_slot(name: str) -> bool:
    """Whether a tensor is a slot of an optimizer."""
    return _SLOT.match(name) is not None


def groups(names, folded=lambda name: _LAYER.sub(r"\1_*", name)) -> list[str]:
    """Names, in which layers, and an optimizer's slots, are folded together."""
    weights = [name for name in sorted(names) if not is_slot(name)]
    number = collections.Counter(map(folded, weights))
    parts = [name if n == 1 else f"{name} x {n}" for name, n in number.items()]
    slots = collections.Counter(
        "*/adagrad" if slot[2] else f"*{slot[1] or slot[3]}*"
        for slot in map(_SLOT.match, names)
        if slot
    )
    return parts + [f"{name} x {n}" for name, n in slots.items()]


def compare(
    prefix: str,
    shapes: Mapping[str, tuple[int, ...]],
    variables: Mapping[str, object],
    scope: str = "",
) -> LoadReport:
    """Compares variables with a checkpoint's entries of the same names.

    Args:
        prefix: of the checkpoint.
        shapes: of its entries, by name.
        variables: names to Keras or TensorFlow variables.
        scope: what the names of the encoder's variables begin with; errors in others are
            attributed to the head.
    Raises:
        UserError: shapes differ, or only a part of a network is there.
    """
    networks.check_wanted(prefix, shapes, variables)
    if wrong := differing(variables, shapes):
        raise UserError(
            f"{prefix}: {_guess(wrong, scope)}: {first(list(wrong.values()), 3)}"
        )
    networks.check_whole(prefix, shapes, variables)
    return LoadReport(
        source=prefix,
        matched=sorted(variables.keys() & shapes),
        initial=sorted(variables.keys() - shapes),
        unused=sorted(shapes.keys() - variables),
    )


def check_required(
    report: LoadReport,
    shapes: Mapping[str, tuple[int, ...]],
    required: str | tuple[str, ...] | None,
    scope: str = "",
) -> None:
    """Refuses a checkpoint without variables that may not keep their initial values.

    Args:
        shapes, scope: as for `compare`.
        required: variables whose names begin with this must be in the checkpoint; ""
            means all.
    Raises:
        UserError: required names are missing, or nothing matches.
    """
    missing = [
        name
        for name in report.initial
        if required is not None
        and name.startswith(required)
        and not is_adapter(name)  # as a whole, a checkpoint has none
    ]
    if not missing and report.matched:
        return
    what = "all variables of the model"
    if report.matched:
        what = first(groups(missing), 4, ", ")
    advice = (
        "check that it is the right checkpoint and bert_config_file; it contains "
        f"{list_names(shapes, 4) or 'nothing'}"
    )
    if missing and not any(name.startswith(scope) for name in missing):
        advice = networks.advice(missing, shapes) or (
            "an encoder without this head cannot answer; train it first, or pass the "
            "--output_dir of a training that has it"
        )
    raise UserError(f"{report.source}: not in the checkpoint: {what}; {advice}")


def _guess(wrong, scope) -> str:
    """Why variables have other shapes in the checkpoint, and what to do."""
    if named_network := networks.of_names(wrong):
        name, network = named_network
        return f"its {name} does not fit the model; check {network.flags}"
    if not any(name.startswith(scope) for name in wrong):
        return (
            "its head does not fit the model; check the number of labels, or leave the "
            "head out with --init_encoder_only"
        )
    return f"does not fit the model; check {setting('bert_config_file')}"


def first(parts: list[str], number: int, between: str = "; ") -> str:
    """The first of some parts of a message, and how many more there are."""
    more = [f"and {len(parts) - number} more"] if len(parts) > number else []
    return between.join(parts[:number] + more)


def differing(
    variables: Mapping[str, object], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, str]:
    """Describes each variable whose shape differs in the checkpoint."""
    return {
        name: f"{name} is {_size(shapes[name])} in the checkpoint and "
        f"{_size(variables[name].shape)} in the model"
        for name in sorted(variables.keys() & shapes)
        if tuple(shapes[name]) != tuple(variables[name].shape)
    }


def _size(shape) -> str:
    return "[" + ",".join(map(str, shape)) + "]"

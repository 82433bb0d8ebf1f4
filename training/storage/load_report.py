"""Says which variables a checkpoint set, in a line or two."""

import collections
import dataclasses
import re
from collections.abc import Collection

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
                lines.append(f"  {title} ({len(names)}): {grouped(names, most)}")
        return "\n".join(lines)


def grouped(names: Collection[str], most: int | None = None) -> str:
    """Names in one line.

    Args:
        most: if there are more, what the names begin with instead.
    """
    found = groups(names)
    if most and len(found) > most:
        found = groups(names, lambda name: re.sub("([/.]).*", r"\1*", name))
    return ", ".join(found)


def groups(names, folded=lambda name: _LAYER.sub(r"\1_*", name)) -> list[str]:
    """Names, in which layers, and an optimizer's slots, are folded together."""
    weights = [name for name in sorted(names) if not _SLOT.match(name)]
    number = collections.Counter(map(folded, weights))
    parts = [name if n == 1 else f"{name} x {n}" for name, n in number.items()]
    slots = collections.Counter(
        "*/adagrad" if slot[2] else f"*{slot[1] or slot[3]}*"
        for slot in map(_SLOT.match, names)
        if slot
    )
    return parts + [f"{name} x {n}" for name, n in slots.items()]

"""How far a run is, as its checkpoints have it."""

import dataclasses
from collections.abc import Mapping

import numpy as np

STEP = "global_step"
_ROWS_READ = "training/rows_read/"
# The other entries of a checkpoint besides weights and slots.
_ENTRIES = {
    "step": STEP,
    "skipped": "training/skipped_updates",
    "skipped_in_a_row": "training/skipped_updates_in_a_row",
    "batch_offset": "training/batch_offset",
}


def is_entry(name: str) -> bool:
    """Whether a tensor of a checkpoint says how far its run is."""
    return name in _ENTRIES.values() or name.startswith(_ROWS_READ)


@dataclasses.dataclass
class Position:
    """With the variables, everything that a checkpoint must contain.

    Attributes:
        step: updates done.
        skipped: how many of them changed nothing.
        skipped_in_a_row: how many of the last.
        batch_offset: the number of the next batch of the records, less `step`. It is 0 but
            in runs that continue one with other records or batches.
        rows_read: digest of a source -> how many of its rows mixtures of earlier runs have
            read; empty but in runs that continue one with other records.
    """

    step: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    batch_offset: int = 0
    rows_read: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, tensors: Mapping) -> "Position":
        """That of a checkpoint; the release's have the step alone."""
        return cls(
            **{name: int(tensors.get(entry, 0)) for name, entry in _ENTRIES.items()},
            rows_read={
                entry.removeprefix(_ROWS_READ): int(value)
                for entry, value in tensors.items()
                if entry.startswith(_ROWS_READ)
            },
        )

    @property
    def next_batch(self) -> int:
        return self.step + self.batch_offset

    def entries(self) -> dict[str, np.int64]:
        """What a checkpoint says of it."""
        entries = {e: np.int64(getattr(self, name)) for name, e in _ENTRIES.items()}
        if not self.batch_offset:
            del entries[_ENTRIES["batch_offset"]]
        rows = self.rows_read.items()
        return entries | {_ROWS_READ + source: np.int64(n) for source, n in rows}

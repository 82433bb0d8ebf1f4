"""Reads and writes descriptions of records: how they were made, and where they begin."""

import dataclasses
import glob
import hashlib
import json
import os
from collections.abc import Iterable

from errors import UserError
from files import json_files, local, protected, sources

SUFFIX = protected.DESCRIPTION_SUFFIX
_CHECKSUM = "sha256"  # of the rest; who changes a description removes it
UNFINISHED = ".work"  # the folder of an unfinished run
# The "offsets" of an output are the bytes at which its records 0, 1024, 2048, ... begin.
OFFSET_EVERY = 1 << 10


@dataclasses.dataclass(frozen=True)
class Description:
    """What create_pretraining_data.py writes next to its records.

    Everything but `outputs` is None if the description lacks it.

    Attributes:
        format: of the description, 2.
        max_seq_length, max_predictions_per_seq, do_lower_case: flags.
        vocab_size, vocab_sha256: the vocabulary's.
        special_ids: token to id: [PAD], [UNK], [CLS], [SEP], [MASK].
        instances: number of records in all outputs.
        outputs: "file", "instances", "bytes" and, if it is not packed, "offsets" of each
            file.
        counts: what was counted along the way.
        origin: what the records were made of: "flags", "inputs" and more.
        path: the file this was read from.
    """

    outputs: list[dict]
    format: int | None = None
    max_seq_length: int | None = None
    max_predictions_per_seq: int | None = None
    do_lower_case: bool | None = None
    vocab_size: int | None = None
    vocab_sha256: str | None = None
    special_ids: dict | None = None
    instances: int | None = None
    counts: dict | None = None
    origin: dict | None = None
    path: str = dataclasses.field(default="", compare=False)

    @classmethod
    def read(cls, path: str) -> "Description":
        """Reads a description, ignoring unknown keys."""
        advice = "remove it, or write the records again"
        content = json_files.read_object(path, advice)
        try:
            if content.pop(_CHECKSUM, None) not in (None, _checksum(content)):
                raise ValueError("its checksum is wrong")
            names = {field.name for field in dataclasses.fields(cls)} - {"path"}
            values = {key: value for key, value in content.items() if key in names}
            description = cls(**values, path=path)
            for output in description.outputs:
                _ = output["file"], output["instances"]
            return description
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path}: is not a description of records ({error!r}); {advice}"
            ) from error

    def write(self, path: str, replacing=local.replacing) -> None:
        """Writes what is known, atomically; `replacing` is `local.replacing` or the
        like.
        """
        content = dataclasses.asdict(self)
        del content["path"]
        values = {k: v for k, v in content.items() if v is not None}
        values[_CHECKSUM] = _checksum(values)
        with replacing(path) as file:
            file.write(f"{json.dumps(values, indent=2)}\n".encode())

    @property
    def flags(self) -> dict:
        """The flags that the records were made with; empty if unknown."""
        return (self.origin or {}).get("flags", {})

    def setting(self, name: str, default=None):
        """The value of an attribute or, if it is None, of the flag with this name."""
        value = getattr(self, name, None)
        return self.flags.get(name, default) if value is None else value

    @property
    def vocab_file(self) -> str | None:
        """Where the vocabulary was; None if it is not there now.

        Another one may be there; see `vocab_sha256`.
        """
        path = self.flags.get("vocab_file")
        # Looking for remote files takes long where there is no network.
        if not path or sources.is_remote(path) > sources.is_remote(self.path):
            return None
        return path if sources.exists(path) else None

    def output(self, file: str) -> dict:
        """What it says about a file: "instances", "bytes", and "offsets" if plain."""
        name = os.path.basename(file)
        return next(o for o in self.outputs if o["file"] == name)


def _checksum(content):
    """That of a description's JSON, without the checksum itself."""
    written = json.dumps(content, sort_keys=True)
    return hashlib.sha256(written.encode()).hexdigest()


def records_among(paths: Iterable[str]) -> list[str]:
    """Leaves out what create_pretraining_data.py writes next to records.

    The pattern `train.tfrecord-*` also matches the description of these files. Refuses
    records that are not finished.
    """
    kept = []
    for path in paths:
        if path.endswith(UNFINISHED):
            raise UserError(
                f"{path.removesuffix(UNFINISHED)}: these records are unfinished; run "
                "their create_pretraining_data.py command again"
            )
        name = os.path.basename(path)
        if not (name.endswith(SUFFIX) or local.is_own(name)):
            kept.append(path)
    return kept


def find(paths: Iterable[str]) -> dict[str, Description]:
    """Looks next to record files for the descriptions that list them.

    Returns dict of record file to its description, in the order of `paths`, without files
    that have none. A damaged one is refused if it may be that of one of the files.
    """
    paths = list(paths)
    descriptions = {}
    for folder in dict.fromkeys(map(os.path.dirname, paths)):
        damage = None
        for name in sources.matching(os.path.join(glob.escape(folder), f"*{SUFFIX}")):
            try:
                description = Description.read(name)
            except UserError as error:
                damage = error
                continue
            for output in description.outputs:
                descriptions[os.path.join(folder, output["file"])] = description
        if damage and any(
            os.path.dirname(p) == folder and p not in descriptions for p in paths
        ):
            raise damage
    return {path: descriptions[path] for path in paths if path in descriptions}

"""Reads the description next to records: how they were made, and how many there are."""

import glob
import json
import os
from collections.abc import Iterable
from typing import NamedTuple

from text import files
from text.errors import UserError

SUFFIX = ".description.json"


UNFINISHED = ".work"  # the folder of a run that has not come to its end
# The "offsets" of an output are where its records 0, 1024, 2048, ... begin, in bytes.
OFFSET_EVERY = 1 << 10


class Description(NamedTuple):
    """What create_pretraining_data.py noted beside its records."""

    path: str
    content: dict

    def output(self, file: str) -> dict:
        """What it says of a file: "instances", "bytes", and "offsets" of plain ones."""
        name = os.path.basename(file)
        return next(o for o in self.content["outputs"] if o["file"] == name)

    def instances(self, file: str) -> int:
        """The records that a file has by this description."""
        return self.output(file)["instances"]


def records_among(paths: Iterable[str]) -> list[str]:
    """Leaves out what create_pretraining_data.py writes beside records.

    The pattern `train.tfrecord-*` matches the description of these files too.

    Raises:
        UserError: the records among `paths` are not finished.
    """
    kept = []
    for path in paths:
        if path.endswith(UNFINISHED):
            raise UserError(
                f"{path.removesuffix(UNFINISHED)}: these records are unfinished; give "
                "the command of create_pretraining_data.py again"
            )
        name = os.path.basename(path)
        if not (name.endswith(SUFFIX) or files.is_own(name)):
            kept.append(path)
    return kept


def find(
    paths: Iterable[str], matching=glob.glob, opener=open
) -> dict[str, Description]:
    """Looks beside record files for the descriptions that list them.

    Args:
        matching, opener: glob and open of the file system that the files are on.
    Returns:
        record file to its description, in the order of `paths`, without files that have
        none.
    Raises:
        UserError: a description cannot be read.
    """
    paths = list(paths)
    found = {}
    for folder in dict.fromkeys(map(os.path.dirname, paths)):
        for name in sorted(matching(os.path.join(glob.escape(folder), f"*{SUFFIX}"))):
            try:
                with opener(name, "r") as file:
                    description = Description(name, json.load(file))
                for output in description.content["outputs"]:
                    found[os.path.join(folder, output["file"])] = description
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(
                    f"{name}: is no description of records ({error!r}); remove it, or "
                    "write the records again"
                ) from error
    return {path: found[path] for path in paths if path in found}

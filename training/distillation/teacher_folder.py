"""The folder of a teacher, which describes its weights."""

import os

from training.storage import checkpoint
from training.storage.folder import CONFIG
from errors import UserError
from files import anywhere
from training.run.options import RunOptions


def of(source: str, flags: RunOptions) -> str:
    """The folder with the teacher's config.

    Args:
        source: what `checkpoint.resolve` returned for it.
        flags: of the student.
    Raises:
        UserError: it is the student's own, or has no config; does not name the teacher.
    """
    folder = checkpoint.folder_of(source) or "."
    if os.path.realpath(folder) == os.path.realpath(flags.output_dir):
        raise UserError("is also --output_dir; a student needs its own folder")
    names = (CONFIG, "config.json")
    if not any(anywhere.exists(os.path.join(folder, name)) for name in names):
        raise UserError(
            f"there is no {' or '.join(names)} in {folder}; a teacher needs the one that "
            "it was trained with next to its weights"
        )
    return folder

"""Reads the index of weights that are split into several safetensors files, the shards.

An index may come from a stranger, so it may only name files in its own folder.
"""

import re

from errors import UserError
from files import json_files

NAME = "model.safetensors.index.json"
_SHARD = re.compile(r"\w[\w.-]*\.safetensors", re.ASCII)  # without a folder
_REMEDY = "copy or download it again"


def read(path: str) -> dict[str, str]:
    """The name of each tensor -> that of its shard, a file next to the index.

    Raises:
        UserError: the index is damaged, or names a file that may be in another folder.
    """
    shards = json_files.read_object(path, _REMEDY).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise UserError(
            f"{path}: the index is damaged: it has no weight_map that names the file of "
            f"each tensor; {_REMEDY}"
        )
    for tensor, shard in shards.items():
        if not isinstance(shard, str) or not _SHARD.fullmatch(shard):
            raise UserError(
                f"{path}: {tensor:.80} is in {shard!r:.80}, but only safetensors files "
                "in the folder of the index are read; get the model from its author again"
            )
    return shards

"""Turns an export of a fine-tuned model back into a checkpoint with its description."""

import json
import os

from training.backend import tf
from training.storage import checkpoint
from training.storage.folder import CONFIG, TASK, Folder
from errors import UserError
from files import anywhere, hub
from files.folder_files import FolderFiles
from serving import checksums, predictor
from text.tokenizers.table import find_vocabulary


def is_export(path: str) -> bool:
    """Whether a path is the folder of an export."""
    is_address = hub.is_address(path)  # of a model in Hugging Face's layout
    return not is_address and anywhere.exists(os.path.join(path, predictor.DESCRIPTION))


def vocabulary_of(export: str) -> str | None:
    """The folder of an export's vocabulary, if it has one."""
    assets = os.path.join(export, predictor.TEXT, "assets")
    return assets if find_vocabulary(FolderFiles(assets)) else None


def unpack(export: str, folder: Folder) -> None:
    """Writes a checkpoint, its config and task.json to a folder.

    Args:
        export: a folder with export.json.
    """
    described = predictor.read_description(os.path.join(export, predictor.DESCRIPTION))
    precision = described.get("precision", "float32")
    if precision != "float32":
        raise UserError(
            f"{export}: its weights are {precision}, and only those of a float32 export "
            "can be used again; pass the output_dir that it was made from"
        )
    with anywhere.access(export):
        for model in (predictor.TEXT, predictor.TENSORS):
            checksums.check_model(os.path.join(export, model), described, model)
        try:
            loaded = tf.saved_model.load(os.path.join(export, predictor.TENSORS))
            config = dict(described["bert_config"])
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
            tf.errors.OpError,
        ) as error:
            raise UserError(
                f"{export}: not a complete export ({' '.join(str(error).split())[:200]}); "
                "pass the output_dir that it was made from"
            ) from error
    variables = loaded.signatures["serving_default"].variables
    weights = {v.name.removesuffix(":0"): v.numpy() for v in variables}
    if "architecture" in described:
        config["architecture"] = described["architecture"]
    files = {
        name: json.dumps(content, ensure_ascii=False, indent=2) + "\n"
        for name, content in ((CONFIG, config), (TASK, described))
    }
    folder.write_files(files)
    checkpoint.write_bundle(folder.prefix(0), weights)

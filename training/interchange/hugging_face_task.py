"""What the config.json next to a Hugging Face model says about its head."""

import os

import tensorflow as tf

from errors import UserError
from text.files import json_files
from training.interchange.table import ADAPTERS

SEVERAL_LABELS = "multi_label_classification"


def read_task(path: str) -> dict:
    """What the config.json next to weights says about a head, for `hugging_face.write`.

    Args:
        path: of a safetensors file.
    """
    config = os.path.join(os.path.dirname(path), "config.json")
    if not tf.io.gfile.exists(config):
        return {}
    task = {}
    hugging_face_config = json_files.read_object(config, "copy it from the model again")
    try:
        names = dict(hugging_face_config.get("id2label") or {})
        labels = [names[str(i)] for i in range(len(names))]
        if not all(isinstance(label, str) for label in labels):
            raise TypeError("not all are strings")
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"{config}: id2label must have a label for each of 0, 1, 2 ... ({error!r})"
        ) from error
    classes = hugging_face_config.get("architectures")
    for adapter in ADAPTERS.values():
        for head, name in adapter.heads.items():
            if isinstance(classes, list) and name in classes:
                task["head"] = head
    if labels != [f"LABEL_{i}" for i in range(len(labels))]:  # the default names
        # A tagger's are the tags in files. What files call classes, only a run knows.
        task["labels" if task.get("head") == "tagging" else "label_names"] = labels
    if hugging_face_config.get("problem_type") == "regression":
        task["labels"] = None
    elif hugging_face_config.get("problem_type") == SEVERAL_LABELS:
        task["several_labels"] = True
    return task

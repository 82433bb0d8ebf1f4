"""What the config.json next to a Hugging Face model says about its head."""

from collections.abc import Mapping

import numpy as np

from errors import UserError
from text.tasks import tags
from training.interchange.adapter import Adapter
from training.interchange.table import ADAPTERS

SEVERAL_LABELS = "multi_label_classification"


def read_task(path: str, hugging_face_config: Mapping) -> dict:
    """What a config.json says about a head, for `hugging_face.write`.

    Args:
        path: of the config.json.
        hugging_face_config: its content; empty if there is none.
    """
    task = {}
    try:
        names = dict(hugging_face_config.get("id2label") or {})
        labels = [names[str(i)] for i in range(len(names))]
        if not all(isinstance(label, str) for label in labels):
            raise TypeError("not all are strings")
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"{path}: id2label must have a label for each of 0, 1, 2 ... ({error!r})"
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


def config_of_heads(
    tensors: Mapping[str, np.ndarray], adapter: Adapter, task: Mapping[str, object]
) -> dict:
    """What config.json says about the heads of a model, mainly its class.

    Args:
        tensors: by released names.
        task: see `hugging_face.write`.
    """
    task = _name_tags(task)
    head = task.get("head")
    if "output_weights" not in tensors:
        if head:
            raise UserError(
                f"the head is declared to be for {head} (by --head, or by task.json or "
                "config.json next to the input), but the checkpoint has no output_weights"
            )
        return {"architectures": [adapter.class_of(tensors)]}
    number, biased = len(tensors["output_weights"]), "output_bias" in tensors
    head = head or ("classification" if biased else "choice")
    if head not in adapter.heads:
        alternatives = f", only for {', '.join(adapter.heads)}" if adapter.heads else ""
        raise UserError(
            f"Hugging Face's classes for this architecture have no head for {head} like "
            f"this one{alternatives}; use --layout=release"
        )
    if number != 1 if head == "choice" else not biased:
        needed = "one output" if head == "choice" else "a bias"
        raise UserError(
            f"a head for {head} has {needed}, but output_weights has {number} row(s) and "
            f"there is {'an' if biased else 'no'} output_bias; choose another --head"
        )
    config = {"architectures": [adapter.heads[head]]}
    return config if head == "choice" else config | _config_of_labels(task, number)


def _name_tags(task) -> Mapping[str, object]:
    """Of a tagger, the labels are its tags, or O and then B and I of each type."""
    if "tags" in task:
        return {"head": "tagging"} | task | {"labels": task["tags"]}
    if "entity_types" in task:
        labels = tags.labels_of(task["entity_types"])
        return {"head": "tagging"} | task | {"labels": labels}
    return task


def _config_of_labels(task, number) -> dict:
    """What config.json says about a head's outputs, `number` of them."""
    labels = task.get("label_names") or task.get("labels")
    config = {"num_labels": number}
    if labels:
        if len(labels) != number:
            raise UserError(
                f"{len(labels)} labels are known ({', '.join(labels)}), but the head has "
                f"{number}; check that the task.json or config.json next to it belongs to "
                "this model"
            )
        config = {
            "id2label": {str(i): label for i, label in enumerate(labels)},
            "label2id": {label: i for i, label in enumerate(labels)},
        }
    # Without problem_type, their pipelines would treat a number as a logit, and
    # several labels as one.
    if "labels" in task and labels is None:
        config["problem_type"] = "regression"
    elif task.get("several_labels"):
        config["problem_type"] = SEVERAL_LABELS
    return config

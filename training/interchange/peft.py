"""Reads and writes the LoRA adapters of Hugging Face's peft, under the released names.

Two files: adapter_model.safetensors has the matrices A [rank, in] and B [out, rank] of each
module, and the modules that were trained whole; adapter_config.json says of which model.

Source: peft's documentation, "PEFT checkpoint format" (developer_guides/checkpoint).
"""

import json
import math
import os
import re
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import safetensors.numpy
import tensorflow as tf

from errors import UserError
from text.files import anywhere, hub, json_files
from training.interchange.adapter import Adapter
from training.interchange.table import ADAPTERS

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
BASE = "base_model_name_or_path"  # in the config
_PREFIX = "base_model.model."
_FLOATS = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
}
_SIDES = {"lora_A": "lora_kernel_a", "lora_B": "lora_kernel_b"}
# Keys whose value says that the adapters are computed otherwise.
_USUAL = {
    "use_rslora": (None, False),
    "use_dora": (None, False),
    "fan_in_fan_out": (None, False),
    "bias": (None, "none"),
    "lora_bias": (None, False),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "layer_replication": (None,),
    "trainable_token_indices": (None,),
}
_WRITTEN = {
    "peft_type": "LORA",
    "lora_dropout": 0.0,
    "bias": "none",
    "fan_in_fan_out": False,
    "inference_mode": True,
}
_TASKS = {"classification": "SEQ_CLS", "tagging": "TOKEN_CLS"}
_SPAN_HEAD = "cls/squad/output_weights"


def is_weights(path: str) -> bool:
    """Whether this is the path of an adapter's file."""
    return os.path.basename(path) == WEIGHTS


def find(directory: str) -> str | None:
    """The path of a directory's adapter, if it has one."""
    path = os.path.join(directory, WEIGHTS)
    return path if tf.io.gfile.exists(path) else None


def read(path: str) -> tuple[str, float, dict[str, np.ndarray]]:
    """The base, alpha, and the tensors by released names, as our runs store them.

    Args:
        path: of an adapter_model.safetensors.
    Raises:
        UserError: a file is missing or damaged, or describes another kind of adapter.
    """
    config = _config(os.path.join(os.path.dirname(path), CONFIG))
    try:
        with anywhere.access(path), tf.io.gfile.GFile(path, "rb") as file:
            stored = dict(safetensors.deserialize(file.read()))
    except safetensors.SafetensorError as error:
        raise UserError(
            f"{path}: the file is damaged or incomplete ({error}); copy or download it "
            "again"
        ) from error
    adapter, tensors = _adapter_of(stored), {}
    for name, value in stored.items():
        module, side = _parts(name)
        pair = adapter.of_hugging_face(module)
        if not pair:
            raise UserError(
                f"{path}: {name} belongs to no weight of a {adapter.model_type} model"
            )
        value = _value(path, name, value)
        if side:
            scope = pair.released.removesuffix("/kernel")
            tensors[f"{scope}/{_SIDES[side]}"] = np.ascontiguousarray(value.T)
        else:
            value = value.T if pair.transposed else value
            tensors[pair.released] = np.ascontiguousarray(value)
    base = config[BASE]
    if not tf.io.gfile.exists(base) and hub.is_name(base):
        revision = f"@{config['revision']}" if config.get("revision") else ""
        base = f"{hub.PREFIX}{base}{revision}"
    return base, float(config["lora_alpha"]), tensors


def _value(path, name, stored) -> np.ndarray:
    """float32 [...]"""
    dtype = _FLOATS.get(stored["dtype"])
    if not dtype:
        raise UserError(
            f"{path}: {name} has type {stored['dtype']}, but only {', '.join(_FLOATS)} are "
            "read; save the adapter in one of these"
        )
    values = np.frombuffer(stored["data"], dtype).reshape(stored["shape"])
    return values.astype(np.float32)


def _config(path):
    config = json_files.read_own(path)
    if config.get("peft_type") != "LORA":
        raise UserError(f"{path}: does not describe a LoRA adapter of peft")
    for key, usual in _USUAL.items():
        if config.get(key) not in usual:
            raise UserError(
                f"{path}: {key} is {config[key]!r:.40}, and only {usual[-1]!r} is read; "
                "merge the adapter with peft (merge_and_unload), and load what "
                "save_pretrained then writes"
            )
    base, alpha = config.get(BASE), config.get("lora_alpha")
    if not isinstance(base, str) or not base:
        raise UserError(f"{path}: {BASE} is {base!r:.40}; name the base's folder there")
    if type(alpha) not in (int, float) or not 0 < alpha < math.inf:
        raise UserError(f"{path}: lora_alpha is {alpha!r:.40}; it must be above 0")
    return config


def _parts(name):
    """The name of their tensor, and which of the two matrices it is, if it is one."""
    name = name.removeprefix(_PREFIX)
    if match := re.fullmatch(r"(.*)\.(lora_[AB])\.weight", name):
        return f"{match[1]}.weight", match[2]
    return name, None


def _adapter_of(names) -> Adapter:
    """The one that knows the most tensors."""
    modules = [_parts(name)[0] for name in names]
    return max(
        ADAPTERS.values(),
        key=lambda adapter: sum(
            adapter.of_hugging_face(m) is not None for m in modules
        ),
    )


def write(
    directory: str,
    tensors: Mapping[str, np.ndarray],
    adapter: Adapter,
    *,
    base: str,
    alpha: float,
    head: str,
) -> str:
    """Writes an adapter that peft loads.

    Args:
        tensors: what a run with --lora_rank stores, without slots; released names.
        base: the encoder's checkpoint.
        head: the purpose of the model's head, one of table.HEADS.
    Returns:
        the path of the weights.
    Raises:
        UserError: their layout has no name for a tensor.
    """
    if head not in _TASKS and _SPAN_HEAD not in tensors:
        raise UserError(
            f"{directory}: adapters are written for {', '.join(_TASKS)} and questions, not "
            f"for {head}; merge them (--layout=hugging_face)"
        )
    weights, targets, whole, ranks = {}, set(), set(), set()
    sides = {ours: side for side, ours in _SIDES.items()}
    for name, value in tensors.items():
        scope, _, last = name.rpartition("/")
        side = sides.get(last)
        pair = adapter.of_released(f"{scope}/kernel" if side else name, head)
        if not pair:
            raise UserError(f"{name}: Hugging Face's layout has no name for it")
        module = pair.hugging_face.rpartition(".")[0]
        if side:
            targets.add(module.rpartition(".")[2])
            ranks.add(value.shape[1 if side == "lora_A" else 0])
            weights[f"{_PREFIX}{module}.{side}.weight"] = np.ascontiguousarray(value.T)
        else:
            value = value.T if pair.transposed else value
            weights[_PREFIX + pair.hugging_face] = np.ascontiguousarray(value)
            whole.add(module.split(".")[1 if module.count(".") > 1 else 0])
    (rank,) = ranks
    adapter_config = {
        BASE: base.removeprefix(hub.PREFIX),
        "task_type": "QUESTION_ANS" if _SPAN_HEAD in tensors else _TASKS[head],
        "r": int(rank),
        "lora_alpha": int(alpha) if alpha == int(alpha) else alpha,
        "target_modules": sorted(targets),
        "modules_to_save": sorted(whole) or None,
    }
    content = safetensors.numpy.save(weights, {"format": "pt"})
    config = json.dumps(_WRITTEN | adapter_config, indent=2) + "\n"
    for name, data in ((CONFIG, config.encode()), (WEIGHTS, content)):
        with anywhere.replacing(os.path.join(directory, name)) as file:
            file.write(data)
    return os.path.join(directory, WEIGHTS)

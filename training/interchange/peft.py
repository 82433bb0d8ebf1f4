"""Reads and writes the LoRA adapters of Hugging Face's peft, under the released names.

Two files: adapter_model.safetensors has the matrices A [rank, in] and B [out, rank] of each
module, and the modules that were trained whole; adapter_config.json names the model.

Source: peft's documentation, "PEFT checkpoint format" (developer_guides/checkpoint).
"""

import json
import math
import os
import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import ml_dtypes
import numpy as np
import safetensors.numpy

from errors import UserError
from files import anywhere, hub, json_files
from training.interchange.adapter import Adapter, Pair
from training.interchange.hugging_face_task import config_of_heads
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
_OURS = {ours: side for side, ours in _SIDES.items()}
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
    # Of these, each matrix of a stack is changed, and other axes are the matrices'.
    "target_parameters": (None, []),
    "trainable_token_indices": (None,),
    "alora_invocation_tokens": (None,),
    "arrow_config": (None,),
    "kasa_config": (None,),
    "monteclora_config": (None,),
    "use_bdlora": (None, False),
    "use_qalora": (None, False),
    # Others (pissa, olora, corda, loftq, lora_ga) change the kernels of the base, too.
    "init_lora_weights": (None, False, "gaussian", "orthogonal", "eva", "mica", True),
}
_MERGE = (
    "merge the adapter with peft (merge_and_unload), and load what save_pretrained then "
    "writes"
)
_RANK = 8  # of a config that does not say it
_WRITTEN = {
    "peft_type": "LORA",
    "lora_dropout": 0.0,
    "bias": "none",
    "fan_in_fan_out": False,
    "inference_mode": True,
}
# Other heads have no task: peft's class for questions would drop the token types.
_TASKS = {"classification": "SEQ_CLS", "tagging": "TOKEN_CLS"}
# Classes that write text, and what peft calls their task.
_WRITERS, _WRITER = "ForConditionalGeneration", "SEQ_2_SEQ_LM"


class Stored(NamedTuple):
    """What an adapter's files say.

    Attributes:
        base: the path or address of the model that it changes.
        scope: what the names of the base's weights begin with, without heads.
        alpha: the factor of its products, times their rank.
        tensors: by released names, as our runs store them.
        head: the purpose of its head, one of table.HEADS; None without one.
        their_class: that of the model with this head; None without one.
        is_alone: whether its base is the class of an encoder, whose module names omit it.
    """

    base: str
    scope: tuple[str, ...]
    alpha: float
    tensors: Mapping[str, np.ndarray]
    head: str | None
    their_class: str | None
    is_alone: bool


# --- Reading -------------------------------------------------------------------------


def is_weights(path: str) -> bool:
    """Whether this is the path of an adapter's file."""
    return os.path.basename(path) == WEIGHTS


def read(path: str, architecture_of: Callable[[str], str | None]) -> Stored:
    """Reads an adapter.

    Args:
        path: of an adapter_model.safetensors.
        architecture_of: the architecture of the base at a path or address, if its files
            tell; asked if the names of the adapter's tensors do not.
    Raises:
        UserError: a file is missing or damaged, or describes another kind of adapter.
    """
    config = _config(os.path.join(os.path.dirname(path), CONFIG))
    try:
        with anywhere.open_file(path) as file:
            stored = dict(safetensors.deserialize(file.read()))
    except safetensors.SafetensorError as error:
        raise UserError(
            f"{path}: the file is damaged or incomplete ({error}); copy or download it "
            "again"
        ) from error
    base = _base_of(config)
    names = [_parts(name)[0] for name in stored]
    adapter, tensors = _adapter_of(names, lambda: architecture_of(base)), {}
    for name, value in stored.items():
        their_name, side = _parts(name)
        pair = adapter.of_hugging_face(their_name)
        if not pair:
            raise UserError(
                f"{path}: {name} belongs to no weight of a {adapter.model_type} model"
            )
        value = _value(path, name, value)
        released = pair.released
        if side and not pair.transposed:  # no linear layer of its own
            raise UserError(
                f"{path}: adapts {name}, which has no adapters in a "
                f"{adapter.architecture} here; {_MERGE}"
            )
        if side:
            rank = config.get("r", _RANK)
            if value.ndim != 2 or value.shape[side == "lora_B"] != rank:
                raise UserError(
                    f"{path}: {name} is of the shape {list(value.shape)}, but r is "
                    f"{rank!r:.40} in {CONFIG}; copy or download both files again"
                )
            released = f"{released.removesuffix('/kernel')}/{_SIDES[side]}"
        tensors[released] = np.ascontiguousarray(value.T if pair.transposed else value)
    head = _head_in(names, config, adapter, tensors)
    try:
        described = config_of_heads(tensors, adapter, {"head": head})
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    (their_class,) = described["architectures"]
    return Stored(
        base,
        _scope(tensors, adapter),
        float(config["lora_alpha"]),
        tensors,
        head,
        None if their_class == adapter.classes[()] else their_class,
        any(name.split(".")[0] in adapter.encoder[1] for name in names),
    )


def _scope(tensors, adapter):
    """What the names of the base's weights begin with."""
    adapted = (name for name in tensors if name.endswith(tuple(_OURS)))
    return adapter.scope or tuple(sorted({f"{n.partition('/')[0]}/" for n in adapted}))


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
                f"{_MERGE}"
            )
    base, alpha = config.get(BASE), config.get("lora_alpha")
    if not isinstance(base, str) or not base:
        raise UserError(f"{path}: {BASE} is {base!r:.40}; name the base's folder there")
    if type(alpha) not in (int, float) or not 0 < alpha < math.inf:
        raise UserError(f"{path}: lora_alpha is {alpha!r:.40}; it must be above 0")
    return config


def _base_of(config):
    """The path or address of the base."""
    base = config[BASE]
    if not anywhere.exists(base) and hub.is_name(base):
        return str(hub.Address(base, config.get("revision") or None))
    return base


def _parts(name):
    """The name of their tensor, and which of the two matrices it is, if it is one."""
    name = name.removeprefix(_PREFIX)
    if match := re.fullmatch(r"(.*)\.(lora_[AB])\.weight", name):
        return f"{match[1]}.weight", match[2]
    return name, None


def _adapter_of(names: Collection[str], architecture: Callable) -> Adapter:
    """The one that knows the most tensors.

    An encoder alone has the same names in several architectures; then that of the base
    decides.
    """
    number = {
        row: sum(row.of_hugging_face(name) is not None for name in names)
        for row in ADAPTERS.values()
    }
    rows = [row for row in number if number[row] == max(number.values())]
    if len(rows) > 1:
        of_base = architecture()
        rows.sort(key=lambda row: row.architecture != of_base)
    return rows[0]


def _head_in(names, config, adapter, tensors) -> str | None:
    """The purpose of an adapter's head."""
    if "output_weights" not in tensors:
        return None
    for head, task in _TASKS.items():
        if config.get("task_type") == task:
            return head
    # Without a task, the layers of the head tell, and the number of its outputs.
    modules = {name.rpartition(".")[0] for name in names}
    renamed = {head: adapter.renamed.get(head, {}).values() for head in adapter.heads}
    heads = [head for head in adapter.heads if modules.issuperset(renamed[head])]
    likely = "choice" if len(tensors["output_weights"]) == 1 else "classification"
    return likely if likely in heads else next(iter(heads), None)


# --- Writing -------------------------------------------------------------------------


def write(
    directory: str,
    tensors: Mapping[str, np.ndarray],
    model: Mapping[str, np.ndarray],
    adapter: Adapter,
    *,
    base: str,
    alpha: float,
    task: Mapping[str, object],
    is_alone: bool = False,
) -> str:
    """Writes an adapter that peft loads.

    Args:
        tensors: what a run with --lora_rank stores, without slots; released names.
        model: what they make with their base.
        base: the encoder's checkpoint.
        task: describes the head, see `hugging_face.write`.
        is_alone: see `Stored`.
    Returns:
        the path of the weights.
    Raises:
        UserError: their layout has no name for a tensor, or their class no such head.
    """
    (their_class,) = config_of_heads(model, adapter, task)["architectures"]
    head = {name: head for head, name in adapter.heads.items()}.get(their_class)
    weights, saved = _whole_weights(tensors, model, adapter, head)
    matrices, targets = _adapter_matrices(tensors, adapter, head, saved)
    if not targets:
        raise UserError(
            f"{directory}: all that is adapted is in modules that peft saves whole, "
            f"{', '.join(sorted(saved))}; merge the adapters (--layout=hugging_face)"
        )
    ranks = {v.shape[-1] for n, v in tensors.items() if n.endswith(_SIDES["lora_A"])}
    within = f"{adapter.encoder[0]}." if is_alone else ""
    content = safetensors.numpy.save(
        {
            _PREFIX + name.removeprefix(within): np.ascontiguousarray(value)
            for name, value in (weights | matrices).items()
        },
        {"format": "pt"},
    )
    config = _WRITTEN | {
        **_place(base),
        "task_type": _WRITER if their_class.endswith(_WRITERS) else _TASKS.get(head),
        "r": int(*ranks),
        "lora_alpha": int(alpha) if alpha == int(alpha) else alpha,
        # Whole names, because those of other modules may end alike.
        "target_modules": sorted(name.removeprefix(within) for name in targets),
        "modules_to_save": sorted(saved) or None,
    }
    files = {CONFIG: json.dumps(config, indent=2) + "\n", WEIGHTS: content}
    anywhere.write_files(directory, files)
    return os.path.join(directory, WEIGHTS)


def _whole_weights(tensors, model, adapter, head) -> tuple[dict, set]:
    """Weights by their names, without adapters, and the modules that have them."""
    saved = {
        _saved_module(_pair(adapter, name, head).hugging_face)
        for name in tensors
        if not name.endswith(tuple(_OURS))
    }
    weights = {}
    # Of the model: a part of their head may be in our encoder, from the base.
    for name, value in model.items():
        pair = adapter.of_released(name, head)
        if pair and _saved_module(pair.hugging_face) in saved:
            weights[pair.hugging_face] = value.T if pair.transposed else value
    adapter.complete_head(weights, head)
    return weights, saved


def _adapter_matrices(tensors, adapter, head, saved) -> tuple[dict, set]:
    """The matrices by their names, and the modules that they change."""
    matrices, modules = {}, set()
    for name, value in tensors.items():
        scope, _, last = name.rpartition("/")
        if last not in _OURS:
            continue
        kernel = f"{scope}/kernel"
        is_named_alike = not adapter.of_released(kernel, head)
        pair = _pair(adapter, scope if is_named_alike else kernel, head)
        if not pair.transposed:
            raise UserError(
                f"{name}: changes a kernel that is no linear layer of its own in Hugging "
                "Face's class; merge the adapters (--layout=hugging_face)"
            )
        if _saved_module(pair.hugging_face) not in saved:
            module = pair.hugging_face.removesuffix(".weight")
            modules.add(module)
            matrices[f"{module}.{_OURS[last]}.weight"] = value.T
    return matrices, modules


def _place(base: str) -> dict:
    """How a config names the base."""
    if not hub.is_address(base):
        return {BASE: base}
    address = hub.parse(base)
    return {BASE: address.name, "revision": address.revision}


def _pair(adapter, released, head) -> Pair:
    """The pair of a tensor, which must be the weight or bias of a module of theirs."""
    pair = adapter.of_released(released, head)
    if not pair or not pair.hugging_face.endswith((".weight", ".bias")):
        raise UserError(
            f"{released}: no module in Hugging Face's layout has it; merge the adapters "
            "(--layout=release)"
        )
    return pair


def _saved_module(name: str) -> str:
    """The module that peft saves if it trains a tensor as a whole."""
    module = name.rpartition(".")[0]
    # A head of several layers, which peft always saves whole.
    return "classifier" if module.startswith("classifier.") else module

"""Reads and writes Hugging Face's layout, model.safetensors, under the released names.

An adapter for each architecture pairs the names of both layouts.
"""

import contextlib
import functools
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import ml_dtypes  # noqa: F401  registers bfloat16 with numpy
import numpy as np
import safetensors
import safetensors.numpy

from errors import UserError, setting
from files import anywhere, hub, json_files, weight_index
from modeling.architectures.config import EncoderConfig
from text.tokenizers import tokenizer_json
from text.tokenizers.tokenizer import HuggingFaceFiles
from training.interchange import hugging_face_task, peft
from training.interchange.adapter import Adapter
from training.interchange.bert_adapter import classes_in
from training.interchange.format import Format
from training.interchange.table import ADAPTERS, WEIGHTS, adapter_of

NOT_READ = (
    "only safetensors files are read, because unpickling can execute arbitrary code; load "
    "the model with transformers, using the class that its config.json names under "
    f"architectures, and save it with save_pretrained(directory), which writes {WEIGHTS}"
)

_OTHER_WEIGHTS = re.compile(
    r"pytorch_model.*\.bin(\.index\.json)?|tf_model\.h5|flax_model\.msgpack"
)
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.safetensors$")

_FLOATS = ("F64", "F32", "F16", "BF16")


# --- Reading -------------------------------------------------------------------------


class _Stored(NamedTuple):
    """A weight is a tensor, one of equal parts of its columns, or several tensors.

    Attributes:
        layers: the tensors to put on top of each other, if each layer has one.
    """

    name: str
    transposed: bool
    part: int
    parts: int
    layers: tuple[str, ...] = ()

    def shape(self, file) -> tuple[int, ...]:
        shape = file.get_slice(self.name).get_shape()
        if self.layers:
            return (len(self.layers), *shape)
        *rest, columns = shape[:: -1 if self.transposed else 1] or [self.parts]
        return (*rest, columns // self.parts) if shape else ()

    def of(self, value: np.ndarray) -> np.ndarray:
        """The weight, of the tensor's value."""
        value = value.T if self.transposed else value
        if self.parts > 1:
            value = np.array_split(value, self.parts, axis=-1)[self.part]
        return np.ascontiguousarray(value)


class HuggingFace(Format):
    """A model.safetensors, or several such files that an index names."""

    has_tokenizer_config = True

    @classmethod
    def find(cls, folder: str, names: Collection[str]) -> str | None:
        for name in (WEIGHTS, weight_index.NAME):
            if name in names:
                return os.path.join(folder, name)
        for name in sorted(names):
            path = os.path.join(folder, name)
            _refuse_shard(path)
            if _OTHER_WEIGHTS.fullmatch(name):
                raise UserError(f"{path}: {NOT_READ}")
        return None

    @classmethod
    def is_weights(cls, path: str) -> bool:
        is_file = path.endswith(".safetensors") and not peft.is_weights(path)
        return is_file or os.path.basename(path) == weight_index.NAME

    @classmethod
    def missing_config(cls, folder: str) -> UserError | None:
        return UserError(
            f"{os.path.join(folder, 'config.json')}: no such file; copy it from where the "
            f"model is from, or pass {setting('bert_config_file')}"
        )

    def read_config(self, path: str) -> dict:
        is_known = path == self._config_file and self._config
        return dict(self._config) if is_known else super().read_config(path)

    def task(self) -> dict:
        config = self._config
        if not config and anywhere.exists(self._config_file):
            advice = "copy it from the model again"
            config = json_files.read_object(self._config_file, advice)
        return hugging_face_task.read_task(self._config_file, config)

    learned_task = task

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            name: stored.shape(self._file) for name, stored in self._tensors.items()
        }

    def read(self, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Floats of any size become float32.

        Raises:
            UserError: the file is damaged or contains a weight twice, its weights are
                quantized, or its masked-LM head has its own matrix.
        """
        names = list(self._tensors if names is None else names)
        self._check_tied(names)
        return {name: self._value(name, self._tensors[name]) for name in names}

    # --- The files -------------------------------------------------------------------

    @functools.cached_property
    def _file(self):
        """The open file, or all that an index names."""
        if os.path.basename(self.path) != weight_index.NAME:
            _refuse_shard(self.path)
            return _open_file(self.path)
        shards, files = {}, {}
        for tensor, name in weight_index.read(self.path).items():
            if name not in shards:
                shard = os.path.join(os.path.dirname(self.path), name)
                if not anywhere.exists(shard):
                    raise UserError(
                        f"{self.path}: {name} is missing, with {tensor} and others; copy "
                        "or download all files of the model"
                    )
                file = _open_file(shard)
                shards[name] = file, frozenset(file.keys())
            files[tensor], present = shards[name]
            if tensor not in present:
                raise UserError(
                    f"{self.path}: {tensor} is not in {name}; the files are of different "
                    "models: copy or download all of them again"
                )
        return _Shards(files)

    @property
    def _config_file(self) -> str:
        return os.path.join(os.path.dirname(self.path), "config.json")

    @functools.cached_property
    def _config(self) -> dict:
        """The content of the config.json next to the weights, if it is a config."""
        return json_files.read_own(self._config_file)

    @functools.cached_property
    def _adapter(self) -> Adapter:
        """The adapter that knows the most tensors.

        An encoder that was saved alone has the same names in several architectures; then
        the config.json next to it decides.
        """
        model_type = self._config.get("model_type")

        def matches(adapter):
            number = sum(
                adapter.of_hugging_face(part) is not None
                for name in self._file.keys()
                for part in adapter.columns(name)
            )
            return number, model_type == adapter.model_type

        return max(ADAPTERS.values(), key=matches)

    @functools.cached_property
    def _tensors(self) -> dict[str, _Stored]:
        """Released name -> where it is in the file.

        Tensors without a released name keep their own; those that their class ignores are
        left out.
        """
        adapter, tensors = self._adapter, {}
        not_read = adapter.not_read(self._file.keys())
        stacks: dict[str, list[str]] = {}
        for name in self._file.keys():
            if name in not_read:
                continue
            parts = adapter.columns(_rename_module(name, self._usual_modules))
            for number, part in enumerate(parts):
                pair = adapter.of_hugging_face(part)
                released = pair.released if pair else part
                if released in adapter.stacked:
                    stacks.setdefault(released, []).append(name)
                    continue
                if released in tensors:
                    raise UserError(
                        f"{self.path}: {tensors[released].name} and {name} are the same "
                        f"weight ({released}); remove one of them from the file"
                    )
                transposed = bool(pair and pair.transposed)
                tensors[released] = _Stored(name, transposed, number, len(parts))
        for duplicate, (released, _) in adapter.tied.items():
            if duplicate in tensors and released not in tensors:
                # Saved under this name alone.
                tensors[released] = tensors.pop(duplicate)
        self._add_shared(tensors)
        for released, layers in stacks.items():
            layers = tuple(sorted(layers, key=adapter.layer_of_hugging_face))
            tensors[released] = _Stored(layers[0], False, 0, 1, layers)
        return tensors

    @property
    def _usual_modules(self) -> dict[str, str]:
        """The modules that only a class like the one of this model calls so -> the usual
        ones.
        """
        of_classes = self._adapter.in_class
        classes = classes_in(self._config) if of_classes else ()
        names = (of_classes.get(each, {}) for each in classes)
        return {own: usual for each in names for usual, own in each.items()}

    def _add_shared(self, tensors):
        """Adds weights for which a model has another one of the file in their place."""
        adapter = self._adapter
        config = self._config if adapter.shared.keys() - tensors.keys() else {}
        for own, (other, _) in adapter.shared.items():
            is_shared = adapter.shared_if.items() <= config.items() and other in tensors
            if is_shared and _any_begins(tensors, own.partition("/")[0] + "/"):
                transposed = adapter.of_released(own).transposed
                tensors.setdefault(own, tensors[other]._replace(transposed=transposed))

    def _value(self, released, stored) -> np.ndarray:
        if stored.layers:
            each = (stored._replace(name=name, layers=()) for name in stored.layers)
            return np.stack([self._value(released, one) for one in each])
        kind = self._file.get_slice(stored.name).get_dtype()
        if kind not in _FLOATS:
            # Tensors without a released name may have any other type that numpy has.
            if released != stored.name or kind.startswith("F"):
                raise UserError(
                    f"{self.path}: {stored.name} has type {kind}, but only unquantized "
                    f"weights ({', '.join(_FLOATS)}) are read; use the original model"
                )
            return self._file.get_tensor(stored.name)
        return stored.of(self._file.get_tensor(stored.name).astype(np.float32))

    def _check_tied(self, names):
        """Checks that weights saved twice are equal, if the head that uses them is
        wanted.
        """
        adapter, tensors = self._adapter, self._tensors

        def are_equal(*both):
            values = [
                self._file.get_tensor(tensors[n].name) for n in both if n in tensors
            ]
            return len(values) == 2 and np.array_equal(*values)

        for duplicate, (released, what) in adapter.tied.items():
            if adapter.masked_lm not in names or duplicate not in tensors:
                continue
            if not are_equal(duplicate, released):
                raise UserError(
                    f"{self.path}: {duplicate} differs from {what}, so its masked-LM head "
                    "is not the release's; only its encoder can be used"
                )
        for own, (other, what) in adapter.shared.items():
            scope = own.partition("/")[0] + "/"
            if own in names or own not in tensors or not _any_begins(names, scope):
                continue
            if not are_equal(own, other):
                raise UserError(
                    f"{self.path}: {tensors[own].name} differs from {what}, which the "
                    "config has in its place; set tie_word_embeddings to false in the "
                    "config"
                )


def _rename_module(name: str, modules: Mapping[str, str]) -> str:
    """The name of a tensor whose module has another name."""
    module, dot, ending = name.rpartition(".")
    return f"{modules.get(module, module)}{dot}{ending}"


def _refuse_shard(path):
    if _SHARD.search(path):
        raise UserError(
            f"{path}: is one of several files of a model; pass their folder, which must "
            f"also contain {weight_index.NAME}"
        )


class _Shards:
    """The tensors of several safetensors files, with the methods of one of them."""

    def __init__(self, files: Mapping[str, safetensors.safe_open]):
        """Args:
        files: name of each tensor -> the open file that it is in.
        """
        self._files = files

    def keys(self):
        return self._files.keys()

    def get_slice(self, name: str):
        return self._files[name].get_slice(name)

    def get_tensor(self, name: str) -> np.ndarray:
        return self._files[name].get_tensor(name)


def _open_file(path: str) -> safetensors.safe_open:
    """Opens a safetensors file on any file system that TensorFlow can read."""
    with contextlib.ExitStack() as stack:
        local = path
        if not os.path.exists(path):
            # What is open stays readable after its name is gone.
            local = stack.enter_context(tempfile.NamedTemporaryFile()).name
            with anywhere.open_file(path) as source:
                with open(local, "wb") as target:
                    shutil.copyfileobj(source, target, 1 << 24)
        try:
            return safetensors.safe_open(local, framework="numpy")
        except OSError as error:
            raise UserError(
                f"{path}: cannot be read as a safetensors file ({error})"
            ) from error
        except safetensors.SafetensorError as error:
            raise UserError(
                f"{path}: the file is damaged or incomplete ({error}); copy or download "
                "it again (after git clone: git lfs pull)"
            ) from error


def _any_begins(names: Iterable[str], scope: str) -> bool:
    return any(name.startswith(scope) for name in names)


# --- Writing -------------------------------------------------------------------------


def write(
    directory: str,
    tensors: Mapping[str, np.ndarray],
    config: EncoderConfig,
    *,
    task: Mapping[str, object] | None = None,
    tokenizer: HuggingFaceFiles | None = None,
    beside: Mapping[str, str] | None = None,
    card: Callable[[Mapping], str] | None = None,
) -> str:
    """Writes model.safetensors, config.json and, if asked for, tokenizer_config.json.

    Nothing is written unless everything can be.

    Args:
        tensors: released names to arrays, without those that only training uses.
        task: describes a head without a name of its own: "head", its purpose, one of
            table.HEADS (by default classification, or choice if it has no bias);
            "labels" in order, None for a number; "label_names", what people call them, if
            that differs; "several_labels", whether a text may have more than one.
        tokenizer: as they describe it; None if the model has none.
        beside: names and contents of other files to write.
        card: makes the README.md from the content of config.json.
    Returns:
        The path of the weights.
    """
    adapter = adapter_of(config)
    tensors = adapter.prepare_tensors(tensors, config)
    try:
        hugging_face_config = adapter.to_hugging_face(config)
        hugging_face_config |= hugging_face_task.config_of_heads(
            tensors, adapter, task or {}
        )
    except ValueError as error:
        raise UserError(f"{directory}: {error}") from error
    weights = _under_their_names(tensors, adapter, hugging_face_config)
    _check_computed_alike(directory, tensors, config, hugging_face_config)
    if hugging_face_config.get("is_decoder"):
        hugging_face_config["architectures"] = [
            adapter.causal.get(c, c) for c in hugging_face_config["architectures"]
        ]
    weights = safetensors.numpy.save(weights, {"format": "pt"})
    values = {"config.json": hugging_face_config}
    if tokenizer:
        longest = config.max_position_embeddings
        limit = {"model_max_length": longest} if math.isfinite(longest) else {}
        values["tokenizer_config.json"] = limit | dict(tokenizer.config)
    files = dict(beside or {})
    if tokenizer and tokenizer.json:
        files[tokenizer_json.NAME] = tokenizer.json
    if card:
        files[hub.CARD] = card(hugging_face_config)
    for name, value in values.items():
        files[name] = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    # The weights last, because they mark the folder as a model.
    anywhere.write_files(directory, {**files, WEIGHTS: weights})
    return os.path.join(directory, WEIGHTS)


def _check_computed_alike(directory, tensors, config, hugging_face_config):
    """Refuses heads that compute something else in Hugging Face's classes."""
    adapter = adapter_of(config)
    reads_first = not adapter.pooled.isdisjoint(hugging_face_config["architectures"])
    if config.row_pooling != "first" and reads_first:
        raise UserError(
            f"{directory}: the model's head reads the {config.row_pooling} of a row's "
            "tokens, and Hugging Face's reads the first; this layout cannot hold it"
        )
    fixed = adapter.masked_lm_act
    if adapter.masked_lm in tensors and fixed not in (
        None,
        config.masked_lm_activation,
    ):
        raise UserError(
            f"{directory}: the activation in the model's masked-LM head is "
            f"{config.masked_lm_activation!r}, and in Hugging Face's "
            f"{config.architecture} it is always {fixed!r}; keep the model in the "
            "release's layout (--layout=release)"
        )


def _under_their_names(tensors, adapter, hugging_face_config) -> dict[str, np.ndarray]:
    (their_class,) = hugging_face_config["architectures"]
    purposes = {name: head for head, name in adapter.heads.items()}
    head, weights = purposes.get(their_class), {}
    if unnamed := [n for n in tensors if adapter.of_released(n, head) is None]:
        more = f", nor for {len(unnamed) - 1} more tensors" if unnamed[1:] else ""
        raise UserError(
            f"{unnamed[0]}: Hugging Face's layout has no name for it{more}; keep the model "
            "in the release's layout (--layout=release), or train a head that their "
            "classes have; for questions, that is --span_head=independent"
        )
    for released, value in tensors.items():
        pair = adapter.of_released(released, head)
        if released in adapter.stacked:
            for number, part in enumerate(value):
                name = pair.hugging_face.replace("#", str(number))
                weights[name] = {name: part}
            continue
        value = value.T if pair.transposed else value
        name = _rename_module(pair.hugging_face, adapter.in_class.get(their_class, {}))
        weights.setdefault(adapter.holder(name), {})[name] = value
    for whole, values in weights.items():
        columns = [values[part] for part in adapter.columns(whole)]
        value = np.concatenate(columns, axis=-1) if len(columns) > 1 else columns[0]
        weights[whole] = np.ascontiguousarray(value)
    adapter.complete_tensors(weights, hugging_face_config)
    adapter.complete_head(weights, head)
    return weights

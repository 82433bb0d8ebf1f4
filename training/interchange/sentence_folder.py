"""Reads and writes the folders of sentence-transformers.

Such a folder is a Hugging Face model and a list of modules, modules.json: the encoder, in
the folder itself, then a pooling, perhaps a linear layer, and a normalization, each with a
config in a folder of its own.
"""

import functools
import json
import os
import sys
from collections.abc import Collection, Iterable, Mapping

import numpy as np
import safetensors.numpy

from errors import UserError
from files import anywhere, json_files
from training.interchange import hugging_face
from training.interchange.table import WEIGHTS
from training.interchange.vector_settings import BIAS, KERNEL, TASK, VectorSettings

NAME = "modules.json"
_LENGTH, _PROMPTS = "sentence_bert_config.json", "config_sentence_transformers.json"
_CLASSES = ("Transformer", "Pooling", "Dense", "Normalize")
_MODES = {  # our name of a pooling -> theirs, and the older key of a config
    "mean": ("mean", "pooling_mode_mean_tokens"),
    "cls": ("cls", "pooling_mode_cls_token"),
    "last": ("lasttoken", "pooling_mode_lasttoken"),
    "max": ("max", "pooling_mode_max_tokens"),
    "weighted_mean": ("weightedmean", "pooling_mode_weightedmean_tokens"),
}
# The names of prompts before queries, and before passages; the first is taken.
_ROLES = ("query",), ("document", "passage", "corpus")
_ACTIVATIONS = {"Identity": None, "Tanh": "tanh"}
_NO_LIMIT = 1 << 20  # of tokens: what tokenizers say without a limit is above it
_ADVICE = "copy it again from where the model is from"


class SentenceFolder(hugging_face.HuggingFace):
    """The weights of a folder with modules.json; those of a linear layer are ours, too."""

    @classmethod
    def find(cls, folder: str, names: Collection[str]) -> str | None:
        return super().find(folder, names) if NAME in names else None

    @classmethod
    def is_weights(cls, path: str) -> bool:
        return False  # a file alone is the encoder

    def task(self) -> dict:
        return {"task": TASK} | self._settings._asdict()

    learned_task = task

    def shapes(self) -> dict[str, tuple[int, ...]]:
        own = {name: value.shape for name, value in self._projection.items()}
        return super().shapes() | own

    def read(self, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        names = list(self.shapes() if names is None else names)
        own = {n: self._projection[n] for n in names if n in self._projection}
        return super().read([n for n in names if n not in own]) | own

    def _object(self, *names) -> dict:
        """The content of a file, {} if there is none."""
        path = self._path(*names)
        return json_files.read_object(path, _ADVICE) if anywhere.exists(path) else {}

    def _path(self, *names):
        return os.path.join(os.path.dirname(self.path), *names)

    @functools.cached_property
    def _modules(self) -> dict[str, str]:
        """The folder of each module, by the name of its class.

        Raises:
            UserError: we have no equivalent of one.
        """
        content = json_files.read(self._path(NAME))
        content = content if isinstance(content, list) else []
        modules = {
            str(module.get("type", "")).rpartition(".")[2]: str(module.get("path", ""))
            for module in content
        }
        fitting = [kind for kind in _CLASSES if kind in modules]
        has_encoder = fitting[:2] == [*_CLASSES[:2]] and not modules[_CLASSES[0]]
        if list(modules) != fitting or len(content) != len(modules) or not has_encoder:
            raise UserError(
                f"{self._path(NAME)}: has {', '.join(modules) or 'no modules'}; only "
                "Transformer, in the folder itself, Pooling and, after them, Dense and "
                "Normalize are read, in this order"
            )
        return modules

    @functools.cached_property
    def _settings(self) -> VectorSettings:
        query, passage = self._prompts()
        self._check_case()
        projection = self._dense
        return VectorSettings(
            pooling=self._pooling(),
            normalize="Normalize" in self._modules,
            projection_size=projection.get("out_features"),
            projection_activation=_ACTIVATIONS[self._activation(projection)],
            query_prompt=query,
            passage_prompt=passage,
            max_seq_length=self._length(),
        )

    def _prompts(self) -> list[str]:
        """Those of queries and of passages; says which others there are.

        Source: encode_query and encode_document of sentence-transformers 6.2.
        """
        config = self._object(_PROMPTS)
        prompts, usual = config.get("prompts") or {}, config.get("default_prompt_name")
        used = [next((n for n in r if n in prompts), usual) for r in _ROLES]
        others = [f"{n!r:.40}" for n, text in prompts.items() if text and n not in used]
        if others:
            print(
                f"warning: {self._path(_PROMPTS)}: the prompts {', '.join(others)} are "
                "not used; rename them there to query and document to use them",
                file=sys.stderr,
            )
        return [prompts.get(name) or "" for name in used]

    def _check_case(self):
        """Refuses text that modules lowercase and our tokenizer would not."""
        if not self._object(_LENGTH).get("do_lower_case"):
            return
        path, fast = self._path(_LENGTH), self._object("tokenizer.json")
        written = json.dumps(fast.get("normalizer"))
        lowers = self._object("tokenizer_config.json").get("do_lower_case", not fast)
        if not (lowers or '"lowercase": true' in written or '"Lowercase"' in written):
            raise UserError(
                f"{path}: do_lower_case is true, but the tokenizer keeps capitals; set it "
                "to false and lowercase the texts yourself"
            )

    def _length(self):
        """Tokens of a text; where they say none, as many as there are positions."""
        limits = (
            self._object(_LENGTH).get("max_seq_length"),
            self._object("tokenizer_config.json").get("model_max_length"),
            self._config.get("max_position_embeddings"),
        )
        known = [int(limit) for limit in limits if limit and limit < _NO_LIMIT]
        return min(known, default=None)

    def _pooling(self):
        config = self._object(self._modules["Pooling"], "config.json")
        mode = config.get("pooling_mode")
        older = [k for k in config if k.startswith("pooling_mode_") and config[k]]
        for ours, (theirs, key) in _MODES.items():
            if mode == theirs or mode is None and older == [key]:
                if config.get("include_prompt", True):
                    return ours
        raise UserError(
            f"{self._path(self._modules['Pooling'], 'config.json')}: names no pooling that "
            f"we have, or several; {', '.join(_MODES)} are read, with the prompt"
        )

    @functools.cached_property
    def _dense(self) -> dict:
        """The config of the linear layer; {} without one."""
        folder = self._modules.get("Dense")
        return self._object(folder, "config.json") if folder else {}

    def _activation(self, config):
        name = str(config.get("activation_function", "Identity")).rpartition(".")[2]
        if name not in _ACTIVATIONS or config.get("use_residual"):
            raise UserError(
                f"{self._path(self._modules['Dense'], 'config.json')}: the layer has "
                f"{name if name not in _ACTIVATIONS else 'use_residual'}, which has no "
                f"equivalent here; it may be {' or '.join(_ACTIVATIONS)}"
            )
        return name

    @functools.cached_property
    def _projection(self) -> dict[str, np.ndarray]:
        """The weights of the linear layer, by our names."""
        if not self._dense:
            return {}
        path = self._path(self._modules["Dense"], WEIGHTS)
        if not anywhere.exists(path):
            raise UserError(f"{path}: no such file; {hugging_face.NOT_READ}")
        with anywhere.open_file(path) as file:
            weights = safetensors.numpy.load(file.read())
        kernel = weights["linear.weight"].T.astype(np.float32)
        bias = weights.get("linear.bias", np.zeros(kernel.shape[1]))
        return {
            KERNEL: np.ascontiguousarray(kernel),
            BIAS: np.asarray(bias, np.float32),
        }


# --- Writing -------------------------------------------------------------------------


def module_files(
    settings: VectorSettings | None, width: int, projection: Mapping[str, np.ndarray]
) -> dict[str, bytes]:
    """The files that make a Hugging Face model one of theirs, by their paths.

    Args:
        settings: None of a model that was not trained for vectors: these are the means of
            its tokens.
        width: of the tokens' vectors.
        projection: the weights of the linear layer, by our names; {} without one.
    """
    settings = settings or VectorSettings(normalize=False)
    _, mode = _MODES[settings.pooling]
    pooling = {"word_embedding_dimension": width}
    pooling |= {key: key == mode for _, key in _MODES.values()}
    contents = {"1_Pooling": pooling}
    if projection:
        kernel = projection[KERNEL]
        kinds = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}
        activation = kinds[settings.projection_activation].lower()
        module = "linear" if activation == "identity" else "activation"
        contents["2_Dense"] = {
            "in_features": kernel.shape[0],
            "out_features": kernel.shape[1],
            "bias": True,
            "activation_function": f"torch.nn.modules.{module}.{activation.title()}",
        }
    files = {f"{folder}/config.json": _json(c) for folder, c in contents.items()}
    if projection:
        weights = {"linear.weight": np.ascontiguousarray(kernel.T)}
        weights["linear.bias"] = projection[BIAS]
        files[f"2_Dense/{WEIGHTS}"] = safetensors.numpy.save(weights, {"format": "pt"})
    folders = [
        "",
        *contents,
        *([f"{len(contents) + 1}_Normalize"] * settings.normalize),
    ]
    modules = [
        {
            "idx": number,
            "name": str(number),
            "path": folder,
            "type": f"sentence_transformers.models.{folder[2:] or _CLASSES[0]}",
        }
        for number, folder in enumerate(folders)
    ]
    if settings.max_seq_length:
        length = {"max_seq_length": settings.max_seq_length, "do_lower_case": False}
        files[_LENGTH] = _json(length)
    prompts = settings.prompts
    if prompts:
        prompts = {"query": prompts["query"], "document": prompts["passage"]}
    similarity = "cosine" if settings.normalize else "dot"
    files[_PROMPTS] = _json({"prompts": prompts, "similarity_fn_name": similarity})
    return files | {NAME: _json(modules)}


def _json(value) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()

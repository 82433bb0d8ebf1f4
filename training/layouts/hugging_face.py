"""Hugging Face's layout, model.safetensors: which tensor is which variable of the release,
in both directions.

A table pairs the names of both sides. It holds for every head, with and without the
leading "bert." (sentence-transformers saves an encoder without it).
"""

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import ml_dtypes  # noqa: F401  gives numpy the type bfloat16, by name
import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf

from modeling.encoders.config import EncoderConfig
from text.errors import UserError
from text.files import anywhere
from text.tokenizers.wordpiece import WordSplitter

WEIGHTS = "model.safetensors"

# Kind of module -> (ending of the released name, ending of theirs, whether one is the
# other transposed: a kernel is [in, out] in the release and [out, in] there).
_ENDINGS = {
    "embedding": (("", ".weight", False),),
    "norm": (("/gamma", ".weight", False), ("/beta", ".bias", False)),
    "dense": (("/kernel", ".weight", True), ("/bias", ".bias", False)),
    "head": (("output_weights", ".weight", False), ("output_bias", ".bias", False)),
    "bias": (("/output_bias", ".bias", False),),
}

# The release's scope, Hugging Face's module, the kind; # is the number of a layer.
# The released name of a sentence or token classifier has no scope.
_MODULES = (
    ("bert/embeddings/word_embeddings", "bert.embeddings.word_embeddings", "embedding"),
    (
        "bert/embeddings/token_type_embeddings",
        "bert.embeddings.token_type_embeddings",
        "embedding",
    ),
    (
        "bert/embeddings/position_embeddings",
        "bert.embeddings.position_embeddings",
        "embedding",
    ),
    ("bert/embeddings/LayerNorm", "bert.embeddings.LayerNorm", "norm"),
    *(
        (f"bert/encoder/layer_#/{scope}", f"bert.encoder.layer.#.{module}", kind)
        for scope, module, kind in (
            ("attention/self/query", "attention.self.query", "dense"),
            ("attention/self/key", "attention.self.key", "dense"),
            ("attention/self/value", "attention.self.value", "dense"),
            ("attention/output/dense", "attention.output.dense", "dense"),
            ("attention/output/LayerNorm", "attention.output.LayerNorm", "norm"),
            ("intermediate/dense", "intermediate.dense", "dense"),
            ("output/dense", "output.dense", "dense"),
            ("output/LayerNorm", "output.LayerNorm", "norm"),
        )
    ),
    ("bert/pooler/dense", "bert.pooler.dense", "dense"),
    ("cls/predictions/transform/dense", "cls.predictions.transform.dense", "dense"),
    (
        "cls/predictions/transform/LayerNorm",
        "cls.predictions.transform.LayerNorm",
        "norm",
    ),
    ("cls/predictions", "cls.predictions", "bias"),
    ("cls/seq_relationship/", "cls.seq_relationship", "head"),
    ("cls/squad/", "qa_outputs", "head"),
    ("", "classifier", "head"),
)


class Pair(NamedTuple):
    """One weight under both names."""

    released: str  # "bert/pooler/dense/kernel"
    theirs: str  # "bert.pooler.dense.weight"
    transposed: bool


PAIRS = tuple(
    Pair(scope + released, module + theirs, transposed)
    for scope, module, kind in _MODULES
    for released, theirs, transposed in _ENDINGS[kind]
)
_BY_THEIR_NAME = {pair.theirs: pair for pair in PAIRS}
_BY_RELEASED_NAME = {pair.released: pair for pair in PAIRS}

# Reading a pickle runs what whoever made it put in.
NOT_READ = (
    "only safetensors are read, for pickled weights can run any code; load the model with "
    "transformers, by the class that its config.json names under architectures, and save "
    f"it with save_pretrained(directory), which writes {WEIGHTS}"
)

_OTHER_WEIGHTS = re.compile(
    r"pytorch_model.*\.bin(\.index\.json)?|tf_model\.h5|flax_model\.msgpack"
)
_PART = re.compile(r"\.safetensors\.index\.json$|-\d{5}-of-\d{5}\.safetensors$")

# Those that split text as the release does; a class that is not named may.
_TOKENIZERS = (None, "BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast")

# What a head without a name of its own is for -> the class that has it so.
HEADS = {
    "classification": "BertForSequenceClassification",
    "tagging": "BertForTokenClassification",
    "choice": "BertForMultipleChoice",
}
_SEVERAL_LABELS = "multi_label_classification"

# What may stand in a file a second time -> what it has to equal, and that in words.
_TIED = {
    "cls.predictions.decoder.weight": (
        "bert/embeddings/word_embeddings",
        "the table of word embeddings",
    ),
    "cls.predictions.decoder.bias": ("cls/predictions/output_bias", "its output bias"),
}
# Always 0, 1, 2 ... and 0, 0, 0 ...
_CONSTANT = re.compile(r"(bert\.)?embeddings\.(position|token_type)_ids")

_FLOATS = ("F64", "F32", "F16", "BF16")


def pair_of(name: str) -> Pair | None:
    """The pair of a tensor in model.safetensors; None where the release has no such.

    Args:
        name: as in the file, also without "bert." or with the older names gamma, beta.
    """
    if name.split(".")[0] in ("embeddings", "encoder", "pooler"):
        name = f"bert.{name}"
    name = re.sub(r"(?<=LayerNorm\.)gamma$", "weight", name)
    name = re.sub(r"(?<=LayerNorm\.)beta$", "bias", name)
    number = re.search(r"(?<=\.layer\.)\d+(?=\.)", name)
    if not number:
        return _BY_THEIR_NAME.get(name)
    general = name[: number.start()] + "#" + name[number.end() :]
    pair = _BY_THEIR_NAME.get(general)
    return pair and pair._replace(
        released=pair.released.replace("#", number[0]),
        theirs=pair.theirs.replace("#", number[0]),
    )


def has_place(name: str) -> bool:
    """Whether a tensor, by its released name, can be written in this layout."""
    return _pair_of_released(name) is not None


def is_implied(name: str) -> bool:
    """Whether a tensor that has no place is no loss, since others say the same."""
    return name in _TIED or _CONSTANT.fullmatch(name) is not None


# --- Reading -------------------------------------------------------------------------


def is_weights(path: str) -> bool:
    """Whether a path is that of a safetensors file."""
    return path.endswith(".safetensors")


def find(directory: str) -> str | None:
    """The path of a directory's weights; None where it holds none of this layout.

    Raises:
        UserError: there are weights in a form that is not read.
    """
    path = os.path.join(directory, WEIGHTS)
    if tf.io.gfile.exists(path):
        return path
    for name in sorted(tf.io.gfile.listdir(directory)):
        _refuse_part(os.path.join(directory, name))
        if _OTHER_WEIGHTS.fullmatch(name):
            raise UserError(f"{os.path.join(directory, name)}: {NOT_READ}")
    return None


def _refuse_part(path):
    """Half a model must not pass for one. BERT-large is one file unless asked for."""
    if _PART.search(path):
        raise UserError(
            f"{path}: the weights are in several files; load the model with transformers "
            "and save it again with save_pretrained(directory, max_shard_size='100GB')"
        )


@contextlib.contextmanager
def _opened(path: str) -> Iterator:
    """Opens a safetensors file, wherever TensorFlow reaches it."""
    _refuse_part(path)
    with contextlib.ExitStack() as stack:
        local = path
        if not os.path.exists(path):
            local = stack.enter_context(tempfile.NamedTemporaryFile()).name
            with anywhere.access(path), tf.io.gfile.GFile(path, "rb") as source:
                with open(local, "wb") as target:
                    shutil.copyfileobj(source, target, 1 << 24)
        try:
            with safetensors.safe_open(local, framework="numpy") as file:
                yield file
        except OSError as error:
            raise UserError(
                f"{path}: cannot be read as a safetensors file ({error})"
            ) from error
        except safetensors.SafetensorError as error:
            raise UserError(
                f"{path}: the file is damaged or incomplete ({error}); copy or download "
                "it again (after git clone: git lfs pull)"
            ) from error


def _tensors(path, file) -> dict[str, tuple[str, bool]]:
    """Released name -> name in the file and whether transposed.

    What the release has no name for keeps its own.
    """
    found = {}
    for name in file.keys():
        pair = pair_of(name)
        released = pair.released if pair else name
        if released in found:
            raise UserError(
                f"{path}: {found[released][0]} and {name} are the same weight "
                f"({released}); remove one of them from the file"
            )
        found[released] = (name, bool(pair and pair.transposed))
    return found


def shapes(path: str) -> dict[str, tuple[int, ...]]:
    """Released names to the shapes that the release gives these variables.

    Raises:
        UserError: the file is damaged, or has a weight twice.
    """
    with _opened(path) as file:
        return {
            released: tuple(
                file.get_slice(name).get_shape()[:: -1 if transposed else 1]
            )
            for released, (name, transposed) in _tensors(path, file).items()
        }


def read(path: str, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Reads tensors by their released names, as the release has them.

    Args:
        path: of a safetensors file.
        names: which to read; all when absent.
    Returns:
        Released names to arrays; float32 where the file has floats of any size.
    Raises:
        UserError: the file is damaged or has a weight twice, its weights are quantized,
            or its masked-LM head has a matrix of its own.
    """
    with _opened(path) as file:
        tensors = _tensors(path, file)
        names = list(tensors if names is None else names)
        if "cls/predictions/output_bias" in names:
            _check_tied(path, file, tensors)
        return {name: _value(path, file, name, *tensors[name]) for name in names}


def _value(path, file, released, name, transposed):
    stored = file.get_slice(name).get_dtype()
    if stored not in _FLOATS:
        # What has no name in the release may be of any other type that numpy has.
        if released != name or stored.startswith("F"):
            raise UserError(
                f"{path}: {name} is of type {stored}; only weights that are not "
                f"quantized are read ({', '.join(_FLOATS)}), so give the original model"
            )
        return file.get_tensor(name)
    value = file.get_tensor(name).astype(np.float32)
    return np.ascontiguousarray(value.T) if transposed else value


def _check_tied(path, file, tensors):
    for theirs, (released, what) in _TIED.items():
        if theirs not in tensors:
            continue
        values = [
            _value(path, file, which, *tensors[which])
            for which in (theirs, released)
            if which in tensors
        ]
        if len(values) < 2 or not np.array_equal(*values):
            raise UserError(
                f"{path}: {theirs} is not {what}, so its masked-LM head is another than "
                "the release's; only its encoder can be used"
            )


# --- Writing -------------------------------------------------------------------------


def write(
    directory: str,
    tensors: Mapping[str, np.ndarray],
    config: EncoderConfig,
    *,
    task: Mapping[str, object] | None = None,
    tokenizer: Mapping[str, object] | None = None,
    beside: Mapping[str, str] | None = None,
) -> str:
    """Writes model.safetensors, config.json and, if asked for, tokenizer_config.json.

    Nothing is written unless all can be.

    Args:
        tensors: released names to arrays; those of training are not to be among them.
        task: of a head without a name of its own: "head", what it is for, of HEADS, by
            default classification, or choice where it has no bias; "labels" in their
            order, None for a number; "several_labels", whether a text may have more
            than one.
        tokenizer: do_lower_case, strip_accents, tokenize_chinese_chars.
        beside: names and contents of other files.
    Returns:
        The path of the weights.
    Raises:
        UserError: a tensor has no place in this layout; or the disk is full or not
            writable.
    """
    said = config.to_hugging_face() | _said_of_heads(tensors, task or {})
    weights = safetensors.numpy.save(
        _under_their_names(tensors, said), {"format": "pt"}
    )
    values = {"config.json": said}
    if tokenizer:
        values["tokenizer_config.json"] = {
            "tokenizer_class": "BertTokenizer",
            "model_max_length": config.max_position_embeddings,
            **tokenizer,
        }
    files = dict(beside or {})
    for name, value in values.items():
        files[name] = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    # The weights last: whoever looks for a model looks for them.
    for name, content in {**files, WEIGHTS: weights}.items():
        content = content.encode() if isinstance(content, str) else content
        with anywhere.replacing(os.path.join(directory, name)) as file:
            file.write(content)
    return os.path.join(directory, WEIGHTS)


def _under_their_names(tensors, said) -> dict[str, np.ndarray]:
    theirs = {}
    for released, value in tensors.items():
        pair = _pair_of_released(released)
        if pair is None:
            raise UserError(
                f"{released}: Hugging Face's layout has no name for it; only the "
                "encoder and the heads of the release can be written"
            )
        value = value.T if pair.transposed else value
        theirs[pair.theirs] = np.ascontiguousarray(value)
    if said["architectures"] == [HEADS["choice"]]:
        # They want one; the same for every choice, it has no effect.
        theirs.setdefault("classifier.bias", np.zeros(1, np.float32))
    return theirs


def _pair_of_released(name: str) -> Pair | None:
    number = re.search(r"(?<=/layer_)\d+(?=/)", name)
    if not number:
        return _BY_RELEASED_NAME.get(name)
    general = name[: number.start()] + "#" + name[number.end() :]
    pair = _BY_RELEASED_NAME.get(general)
    return pair and Pair(name, pair.theirs.replace("#", number[0]), pair.transposed)


def _said_of_heads(tensors, task) -> dict:
    """What config.json says of what stands on the encoder, its class above all."""
    head = task.get("head")
    if "output_weights" not in tensors:
        if head:
            raise UserError(
                f"the head is said to be for {head} (--head, or task.json or config.json "
                "beside the input), and the checkpoint holds no output_weights"
            )
        return {"architectures": [_class_by_names(tensors)]}
    number, biased = len(tensors["output_weights"]), "output_bias" in tensors
    head = head or ("classification" if biased else "choice")
    if number != 1 if head == "choice" else not biased:
        needed = "one output" if head == "choice" else "a bias"
        raise UserError(
            f"a head for {head} has {needed}; output_weights has {number} row(s), and "
            f"there is {'an' if biased else 'no'} output_bias; give another --head"
        )
    said = {"architectures": [HEADS[head]]}
    return said if head == "choice" else said | _said_of_labels(task, number)


def _class_by_names(tensors) -> str:
    """The class of a model whose heads have names of their own, or that has none."""
    if "cls/squad/output_weights" in tensors:
        return "BertForQuestionAnswering"
    masked_lm = "cls/predictions/output_bias" in tensors
    next_sentence = "cls/seq_relationship/output_weights" in tensors
    return {
        (True, True): "BertForPreTraining",
        (True, False): "BertForMaskedLM",
        (False, True): "BertForNextSentencePrediction",
        (False, False): "BertModel",
    }[masked_lm, next_sentence]


def _said_of_labels(task, number) -> dict:
    """What config.json says of a head's outputs, `number` of them."""
    labels = task.get("labels")
    said = {"num_labels": number}
    if labels:
        if len(labels) != number:
            raise UserError(
                f"{len(labels)} labels are known ({', '.join(labels)}), and the head has "
                f"{number}; is the task.json or config.json beside it of another model?"
            )
        said = {
            "id2label": {str(i): label for i, label in enumerate(labels)},
            "label2id": {label: i for i, label in enumerate(labels)},
        }
    # Without it, their pipelines take a number for a logit, and several labels for one.
    if "labels" in task and labels is None:
        said["problem_type"] = "regression"
    elif task.get("several_labels"):
        said["problem_type"] = _SEVERAL_LABELS
    return said


# --- What stands beside the weights --------------------------------------------------


def read_task(path: str) -> dict:
    """What the config.json beside weights says of a head, as `write` takes it.

    Args:
        path: of a safetensors file.
    Raises:
        UserError: it says it in a form that is none of theirs.
    """
    config = os.path.join(os.path.dirname(path), "config.json")
    if not tf.io.gfile.exists(config):
        return {}
    task = {}
    with anywhere.access(config), tf.io.gfile.GFile(config, "rb") as file:
        try:
            said = dict(json.loads(file.read()))
            names = dict(said.get("id2label") or {})
            labels = [names[str(i)] for i in range(len(names))]
            if not all(isinstance(label, str) for label in labels):
                raise TypeError("not all are texts")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise UserError(
                f"{config}: id2label must have a label for each of 0, 1, 2 ... ({error!r})"
            ) from error
    classes = said.get("architectures")
    for head, name in HEADS.items():
        if isinstance(classes, list) and name in classes:
            task["head"] = head
    if labels != [f"LABEL_{i}" for i in range(len(labels))]:  # those of no name
        task["labels"] = labels
    if said.get("problem_type") == "regression":
        task["labels"] = None
    elif said.get("problem_type") == _SEVERAL_LABELS:
        task["several_labels"] = True
    return task


def check_tokenizer(path: str, splitter: WordSplitter) -> None:
    """Refuses a tokenization that the tokenizer_config.json beside weights contradicts.

    Args:
        path: what `checkpoint.resolve` returned; passes where there is no such file.
        splitter: how text is going to be tokenized.
    Raises:
        UserError: names the flag that is to be given.
    """
    config = os.path.join(os.path.dirname(path), "tokenizer_config.json")
    if not is_weights(path) or not tf.io.gfile.exists(config):
        return
    try:
        with anywhere.access(config), tf.io.gfile.GFile(config, "rb") as file:
            said = dict(json.loads(file.read()))
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{config}: not the JSON of a tokenizer ({error})") from error
    if said.get("tokenizer_class") not in _TOKENIZERS:
        raise UserError(
            f"{config}: tokenizer_class is {said['tokenizer_class']!r}, which splits text "
            "otherwise than BERT's; give another model"
        )
    strips = said.get("strip_accents")
    expected = {
        "do_lower_case": said.get("do_lower_case"),
        "strip_accents": said.get("do_lower_case") if strips is None else strips,
        "split_cjk": said.get("tokenize_chinese_chars"),
    }
    flags = [
        f"--{name}={str(value).lower()}"
        for name, value in expected.items()
        if value is not None and value != getattr(splitter, name)
    ]
    if flags:
        raise UserError(
            f"{config}: the model was trained on text split otherwise; give "
            f"{' '.join(flags)}"
        )

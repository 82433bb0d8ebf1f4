"""Uses an exported model as a function from requests to answers.

It is plain TensorFlow, and for a network in another format what runs that: none of the
model's Python code is loaded.
"""

import contextlib
import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from errors import UserError
from files import anywhere, json_files, local, protected
from serving import checksums, explanations, forms, portable, processing, runtimes

DESCRIPTION = protected.EXPORT_DESCRIPTION
FOLDER = "export"  # in an output_dir
# The SavedModels in an export; the last one belongs to networks in other formats.
TEXT, TENSORS, PROCESSING = "text/1", "tensors/1", "processing/1"
SIGNATURE = "attributions"
_KINDS = {"text": "a string", "list": "a list of strings"}
_LIBRARIES = ("tensorflow_text",)


class Served:
    """A function from texts to outputs, asked with requests.

    Args:
        description: the content of export.json.
        serve: the signature that answers; None in a SavedModel without it.
        directory: what messages call the model.
        explain: the signature that explains the answers, if there is one.

    Attributes:
        description: as given.
        parts: the parts of a request by name, each "text" or "list".
        defaults: those that may be omitted, and what they then are.
        required: the names of the others.
        note: hears of requests and their answers.
        explains: whether answers have explanations.
    """

    explains = False

    def __init__(
        self,
        description: Mapping,
        serve: Callable | None,
        directory: str,
        explain: Callable | None = None,
    ):
        self.description, self._serve, self._explain = description, serve, explain
        self._directory = directory
        self.parts: Mapping[str, str] = description["inputs"]
        self.defaults: Mapping[str, object] = description.get("defaults", {})
        self.required = [name for name in self.parts if name not in self.defaults]
        self.note: Callable[[list[dict], list[dict]], None] | None = None

    @property
    def tensors(self) -> set[str]:
        """The names of what `serve` takes."""
        return set(self._serve.structured_input_signature[1] if self._serve else ())

    def signature(self) -> dict:
        """The tensors of the signature, in the JSON of TensorFlow Serving's metadata."""
        _, inputs = self._serve.structured_input_signature
        outputs = self._serve.structured_outputs
        return {
            "inputs": {name: _describe(spec) for name, spec in inputs.items()},
            "outputs": {name: _describe(spec) for name, spec in outputs.items()},
            "method_name": "tensorflow/serving/predict",
        }

    @property
    def names(self) -> list[str]:
        """The names in an answer."""
        return list(self.answer_schemas)

    @property
    def answer_schemas(self) -> dict[str, Mapping]:
        """The JSON Schema of each value in an answer, by name."""
        outputs = self._serve.structured_outputs
        schemas = {
            name: schema
            for name, schema in forms.FORMS[self.description["form"]].schemas.items()
            if name not in forms.RARE or name in outputs
        }
        if self.explains:
            schemas[explanations.NAME] = explanations.schema(self.parts)
        return schemas

    @property
    def purpose(self) -> str:
        """What it does, in words; "classifies texts"."""
        return forms.FORMS[self.description["form"]].purpose

    def warm_up(self) -> None:
        """Answers a short request; the first one takes much longer than others."""
        words = {"text": "a", "list": ["a"]}
        self.predict([{name: words[kind] for name, kind in self.parts.items()}])

    def predict(self, requests: list[Mapping], batch_size: int = 32) -> list[dict]:
        """Answers requests; those of similar length share a batch.

        Args:
            requests: each with the model's parts, str or list[str] by name.
            batch_size: how many go through the model at once.
        Returns:
            the JSON answers in the order of the requests; serving/forms.py defines their
            forms.
        """
        answers = [{}] * len(requests)
        for rows, batch, outputs in self._batches(requests, batch_size, self._serve):
            made = forms.answers(self.description["form"], outputs, batch)
            for i, answer in zip(rows, made, strict=True):
                answers[i] = answer
        if self.explains:
            explained = self.explain(requests, batch_size)
            pairs = zip(answers, explained, strict=True)
            answers = [{**answer, explanations.NAME: each} for answer, each in pairs]
        if self.note:
            self.note([{**self.defaults, **request} for request in requests], answers)
        return answers

    def explain(self, requests: list[Mapping], batch_size: int = 32) -> list:
        """What each word of the requests contributes to the answers, as JSON.

        Args:
            requests, batch_size: as for `predict`.
        """
        explained = [None] * len(requests)
        for rows, batch, outputs in self._batches(requests, batch_size, self._explain):
            for i, row in enumerate(rows):
                of_row = {name: value[i] for name, value in outputs.items()}
                explained[row] = explanations.explain(of_row, batch[i], self.parts)
        return explained

    def _batches(self, requests, batch_size, signature):
        """The numbers of requests, these themselves, and the outputs, of each batch."""
        for number, request in enumerate(requests, start=1):
            self.check(request, f"request {number}")
        requests = [{**self.defaults, **request} for request in requests]
        order = sorted(range(len(requests)), key=lambda i: length_of(requests[i]))
        for first in range(0, len(order), batch_size):
            rows = order[first : first + batch_size]
            batch = [requests[i] for i in rows]
            yield rows, batch, self._outputs(batch, signature)

    def outputs(self, batch: list[Mapping]) -> dict[str, np.ndarray]:
        """What the signature that answers gives for requests."""
        return self._outputs(batch, self._serve)

    def _outputs(self, batch, signature):
        outputs = signature(
            **{
                name: _tensor([request[name] for request in batch], kind)
                for name, kind in self.parts.items()
            }
        )
        outputs = {name: value.numpy() for name, value in outputs.items()}
        for name, value in outputs.items():
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise UserError(
                    f"{self._directory}: the model's output {name} is not finite; check "
                    "whether its training diverged"
                )
        return outputs

    def check(self, request: object, where: str) -> None:
        """Checks that `predict` accepts a request.

        Args:
            where: the request's name in messages.
        """
        for fault in self._faults(request):
            raise UserError(f"{where}: {fault}; expected {self.describe_request()}")

    def describe_request(self) -> str:
        """For example, "an object with question (a string) and context (a string)"."""
        parts = [
            f"{'perhaps ' if name in self.defaults else ''}{name} ({_KINDS[kind]})"
            for name, kind in self.parts.items()
        ]
        return "an object with " + " and ".join(parts)

    def _faults(self, request) -> Iterator[str]:
        if not isinstance(request, Mapping):
            yield f"is {_kind(request)}"
            return
        request = {**self.defaults, **request}
        if missing := [name for name in self.parts if name not in request]:
            yield f"has no {' and no '.join(missing)}"
        if unknown := [name for name in request if name not in self.parts]:
            yield f"has {str(unknown[0])[:40]!a}, which the model does not take"
        for name, kind in self.parts.items():
            texts = request[name] if kind == "list" else [request[name]]
            if not isinstance(texts, list):
                yield f"{name} is {_kind(texts)}, not a list of strings"
            for text in texts:
                if not isinstance(text, str):
                    inside = "contains" if kind == "list" else "is"
                    yield f"{name} {inside} {_kind(text)}, not a string"
                if at := _half_character(text):
                    yield f"{name} contains {at}, half a character (a lone surrogate)"
            if kind == "list":
                if faults := forms.FORMS[self.description["form"]].faults:
                    yield from faults(name, texts)


class Predictor(Served):
    """A loaded exported model.

    Attributes:
        digest: what no model with other weights or settings has.
        title: the name of the folder of the run that made it, or of its own.
        vocabulary: the folder of the files of its tokenizer.
    """

    def __init__(self, directory: str, explains: bool = False):
        """Args:
        directory: a folder written by --do_export, the --output_dir that contains it,
            the folder of its SavedModel for texts, or its file of another format.
        explains: give explanations with its answers.
        """
        place = _find(directory)
        path, network = place.description, place.network
        if network:
            portable.check_runtime(portable.format_of(network), network)
        description = read_description(path)
        if explains and network:
            raise UserError(
                f"{network}: has no gradients to explain answers by; pass the export's "
                "folder"
            )
        if explains and not description.get("explains"):
            raise UserError(f"{directory}: {_no_explanation(description['form'])}")
        self.title = _title(os.path.dirname(path))
        self.digest = checksums.digest_of_model(description)
        if network and description.get("precision") != "float32":
            self.digest += f" {os.path.basename(network)}"  # it rounds in its own way
        self.vocabulary = os.path.join(place.model, "assets")
        _import_libraries(description.get("libraries", ()), path)
        with _check_same(path, description):
            name = PROCESSING if network else TEXT
            checksums.check_model(place.model, description, name)
            self._loaded = _load(place.model)  # keeps the variables alive
            serve = self._loaded.signatures.get("serving_default")
            explain = self._loaded.signatures.get(SIGNATURE)
            if network:
                checksums.check_file(network, description)
                serve = processing.Surrounded(self._loaded, _open(network))
        super().__init__(description, serve, directory, explain)
        self.explains = explains
        if self.tensors != set(self.parts):
            raise UserError(
                f"{place.model}: takes {', '.join(sorted(self.tensors)) or 'nothing'}, but "
                f"{path} says {', '.join(sorted(self.parts))}; use the export's own folder"
            )

    def vectors(
        self, requests: list[Mapping], batch_size: int = 32, are_queries: bool = False
    ) -> np.ndarray:
        """The vectors of texts, float32 [n, d], of a model whose form is "vector".

        Args:
            requests: as of `predict`.
            are_queries: whether to look for others that fit; a model may have been trained
                with a prompt for these.
        """
        if are_queries and "prompts" in self.description:
            prompt = {"prompt": self.description["prompts"]["query"]}
            requests = [{**prompt, **request} for request in requests]
        vectors = np.empty((len(requests), self.dimensions), np.float32)
        for rows, _, outputs in self._batches(requests, batch_size, self._serve):
            vectors[rows] = outputs["vector"]
        return vectors

    @property
    def digests(self) -> dict[str, str | None]:
        """Of all that answers depend on, by name; see also `nearest.NearestTexts`."""
        return {"model": self.digest, "index": None, "rerank_with": None}

    @property
    def dimensions(self) -> int:
        """The width of the vectors."""
        return self._serve.structured_outputs["vector"].shape[-1]


def _no_explanation(form):
    """What to do about an export that does not explain its answers."""
    if forms.FORMS[form].explains:
        return (
            "does not explain its answers; export it again with --do_export "
            "--export_attributions"
        )
    return (
        "the answers of this model cannot be explained; docs/explanations.md says which "
        "can; leave out --explain"
    )


def _load(model):
    try:
        return tf.saved_model.load(model)
    except (OSError, ValueError, tf.errors.OpError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{model}: not a SavedModel that this TensorFlow ({tf.__version__}) can "
            f"load: {reason[:300]}; export the model again"
        ) from error


def _open(network):
    try:
        return runtimes.open_file(portable.format_of(network), network)
    except Exception as error:  # each runtime has its own
        reason = " ".join(str(error).split())
        raise UserError(
            f"{network}: cannot be loaded: {reason[:300]}; export the model again"
        ) from error


@contextlib.contextmanager
def _check_same(path, description):
    """Says so if another export takes the place of the one that is loaded."""
    try:
        yield
    finally:
        try:
            is_same = read_description(path) == description
        except UserError:
            is_same = False
        if not is_same:
            raise UserError(
                f"{os.path.dirname(path)}: another export was written there while it was "
                "loaded; load it again"
            )


def _import_libraries(names, path):
    """Loads the operations that a model needs in addition to TensorFlow's own."""
    for name in names:
        if name not in _LIBRARIES:
            raise UserError(
                f"{path}: the model needs {name!a}, and only {' and '.join(_LIBRARIES)} is "
                "ever loaded for a model; export it again with this version"
            )
        try:
            importlib.import_module(name)
        except ImportError as error:
            package = name.replace("_", "-")
            raise UserError(
                f"{path}: the model's tokenizer needs {package} ({error}); run pip install "
                f"{package}, in the version of TensorFlow ({tf.__version__})"
            ) from error


def _kind(value):
    """The type of a JSON value, in words."""
    kinds = {str: "a string", list: "a list", bool: "true or false", type(None): "null"}
    kinds |= {dict: "an object", int: "a number", float: "a number"}
    return kinds.get(type(value), f"a {type(value).__name__}")


def _half_character(text):
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"\\u{ord(text[error.start]):04x}"


def length_of(request: Mapping) -> tuple[int, int]:
    """Orders requests so that neighbors need little padding."""
    lists = [part for part in request.values() if isinstance(part, list)]
    texts = [text for part in lists for text in part]
    texts += [part for part in request.values() if isinstance(part, str)]
    return max(map(len, lists), default=0), sum(map(len, texts))


def _describe(spec):
    """JSON of a tensorflow.TensorInfo; sizes are strings there."""
    rank = spec.shape.rank
    sizes = [] if rank is None else spec.shape.as_list()
    dims = [{"size": str(-1 if n is None else n), "name": ""} for n in sizes]
    return {
        "dtype": types_pb2.DataType.Name(spec.dtype.as_datatype_enum),
        "tensor_shape": {"dim": dims, "unknown_rank": rank is None},
        "name": spec.name or "",
    }


def _tensor(values, kind):
    """string [b], or [b, longest list] padded with ""."""
    if kind == "list":
        longest = max(map(len, values))
        values = [value + [""] * (longest - len(value)) for value in values]
        return tf.constant(values, tf.string, shape=[len(values), longest])
    return tf.constant(values, tf.string)


# --- The files ---------------------------------------------------------------------------


def _title(folder):
    """What people know an export in this folder by."""
    above, own = os.path.split(folder if "://" in folder else os.path.abspath(folder))
    return os.path.basename(above) if own == FOLDER else own


def has_export(directory: str) -> bool:
    """Whether a `Predictor` may find a model there."""
    try:
        return bool(_find(directory))
    except UserError:
        return False


def description_of(directory: str) -> dict:
    """What the export there says of itself; loads no model."""
    return read_description(_find(directory).description)


class _Place(NamedTuple):
    """Where a model is.

    Attributes:
        model: the SavedModel for texts, or what surrounds the network.
        description: export.json.
        network: its file in another format.
    """

    model: str
    description: str
    network: str | None = None


def _find(directory) -> _Place:
    join, exists = os.path.join, anywhere.exists
    with anywhere.access(directory):
        if portable.format_of(directory) and not anywhere.isdir(directory):
            folder = os.path.dirname(directory)
            if exists(directory) and exists(join(folder, DESCRIPTION)):
                model = join(folder, *PROCESSING.split("/"))
                return _Place(model, join(folder, DESCRIPTION), directory)
            missing = DESCRIPTION if exists(directory) else "such file"
            raise UserError(
                f"{directory}: there is no {missing} in this folder; use the file in the "
                "folder that --do_export --export_formats has written"
            )
        if exists(join(directory, "saved_model.pb")):
            folder = directory if "://" in directory else os.path.abspath(directory)
            for _ in range(3):
                if exists(join(folder, DESCRIPTION)):
                    return _Place(directory, join(folder, DESCRIPTION))
                folder = os.path.dirname(folder.rstrip("/"))
            raise UserError(
                f"{directory}: a SavedModel without {DESCRIPTION} two folders above it; "
                "use a folder written by --do_export"
            )
        for final in (directory, join(directory, FOLDER)):
            folder = final
            if not exists(final):
                above = os.path.dirname(final.rstrip("/")) or "."
                names = anywhere.names(above) if anywhere.isdir(above) else ()
                folder = find_interrupted(final, names)
            if folder and exists(join(folder, DESCRIPTION)):
                return _Place(join(folder, "text", "1"), join(folder, DESCRIPTION))
        is_there = exists(directory) or anywhere.isdir(directory)
    found = f"contains no exported model ({DESCRIPTION})"
    if not is_there:
        found = "there is no such file or folder"
    raise UserError(f"{directory}: {found}; use the --output_dir of a --do_export run")


def find_interrupted(final: str, names: Iterable[str]) -> str | None:
    """The folder of a complete export whose process was killed before renaming it.

    Args:
        final: the folder's final name.
        names: of what is in the folder above it.
    """
    parent, name = os.path.split(final.rstrip("/"))
    for entry in sorted(names):
        parts = local.temporary_parts(entry)
        if parts and parts[0] == name:
            folder = os.path.join(parent, entry)
            # The description is written last.
            if anywhere.exists(os.path.join(folder, DESCRIPTION)):
                return folder
    return None


def read_description(path: str) -> dict:
    """The content of an export.json."""
    advice = "export the model again"
    description = json_files.read_object(path, advice)
    try:
        form, parts = description["form"], description["inputs"]
        if form not in forms.FORMS or not parts or set(parts.values()) - set(_KINDS):
            raise ValueError(f"form {form!r} with inputs {parts}")
        if not checksums.is_intact(description):
            raise ValueError("it is damaged or was changed")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path}: does not describe a known kind of export ({error}); {advice}"
        ) from error
    return description

"""Models of BERT's family in Python: load, use, train by `fit`, and save.

    import bert
    import keras

    encoder = bert.load("uncased_L-12_H-768_A-12")
    vectors = encoder.embed(["a text", ("a question", "its passage")])

    inputs = encoder.inputs(max_seq_length=128)
    logits = keras.layers.Dense(2)(encoder(inputs)["pooled_output"])
    model = keras.Model(inputs, logits)
    model.compile(
        bert.optimizer(2e-5, num_train_steps=1000, num_warmup_steps=100),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    model.fit(bert.dataset(texts, labels, encoder, batch_size=32))

It does what the scripts do, on Keras's backend, TensorFlow or JAX; only `load_task` needs
TensorFlow. docs/python.md tells more.
"""

import contextlib
import dataclasses
import functools
import importlib
import io
import os
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

import options
from training import backend
from training.backend import keras
from training.queries import arguments, mask_filling, query, text_features
from training.run.settle import TrainableModel
from training.storage import encoder_files
from training.storage.folder import Folder
from errors import UserError
from files import sources
from modeling.architectures.encoder import Encoder
from modeling.architectures.features import TOKEN_POOLINGS
from modeling.architectures.table import ARCHITECTURES, make_encoder
from modeling.optimizers import in_keras
from modeling.optimizers.table import layerwise_shares
from serving import predictor
from serving.predictor import Predictor, Served
from serving.search import exact
from serving.search.vector_types import normalize
from text.instances import packing
from text.records import rows
from text.tokenizers.tokenizer import Tokenizer
from training.finetuning import finetune
from training.finetuning.options import FineTuningOptions, flags_of_run
from training.interchange.vector_settings import VectorSettings
from training.queries.arguments import Text
from training.queries.learned_vectors import LearnedVectors, read_vectors
from training.queries.options import QueryOptions, check_windows
from training.queries.text_batches import TextBatches

__all__ = [
    "MaskedLM",
    "Task",
    "TextEncoder",
    "UserError",
    "dataset",
    "load",
    "load_masked_lm",
    "load_task",
    "optimizer",
    "save",
]

_BACKENDS = ("tensorflow", "jax")

# `keras.models.load_model` finds an encoder only if its module has been imported.
for _architecture in ARCHITECTURES.values():
    _ = _architecture.encoder


@dataclasses.dataclass(frozen=True)
class _Files(QueryOptions):
    """What `load` was asked for, as the scripts' flags."""

    init_checkpoint: str = options.field(help="The weights.")
    max_seq_length: int = options.field(128, help="Tokens of a row.", at_least=3)
    doc_stride: int = options.field(0, help="Tokens between windows.", at_least=0)


_MODEL_FILES = {
    "path": arguments.path,
    "vocab_file": arguments.path,
    "bert_config_file": arguments.path,
    "text": arguments.text_flags,
}


def _encoder(name, value):
    """A rule: what `load` returned."""
    if not isinstance(value, TextEncoder):
        raise UserError(
            f"{name} is {arguments.show(value)}; pass what `bert.load` returned"
        )
    return value


@arguments.check(**_MODEL_FILES, dtype=arguments.one_of("float32", "mixed_bfloat16"))
def load(
    path: str,
    *,
    vocab_file: str | None = None,
    bert_config_file: str | None = None,
    dtype: str | None = None,
    **text: bool,
) -> "TextEncoder":
    """Loads an encoder with its tokenizer.

    Args:
        path: a released folder or one of Hugging Face's, the output_dir of any script here,
            a checkpoint in them, or hf://organization/name[@revision]; of any architecture.
        vocab_file, bert_config_file: by default, those next to the weights.
        dtype: "float32" or "mixed_bfloat16"; by default, Keras's global policy.
        text: do_lower_case, strip_accents and split_cjk; by default, as the files next to
            the weights say. For a cased release, do_lower_case=False.
    Raises:
        UserError: a file is missing or damaged, or they do not fit each other.
    """
    beside = {"vocab_file": vocab_file, "bert_config_file": bert_config_file}
    flags = _files(path, **beside, **text)
    model, dtype = query.read_model(flags), dtype or keras.config.dtype_policy().name
    encoder = make_encoder(model.config, dtype=dtype)
    variables = {variable.path: variable for variable in encoder.weights}
    model.source.load(variables, encoder.required_variables, encoder.scope)
    return TextEncoder(encoder, model.tokenizer, read_vectors(model.source))


def _files(path, **more) -> _Files:
    _check_backend()
    for name in (predictor.DESCRIPTION, "saved_model.pb"):
        if os.path.exists(os.path.join(path, name)):
            raise UserError(
                f"{path}: is an export; use bert.load_task, or load the output_dir it is in"
            )
    return _Files(init_checkpoint=path, **more)


def _check_backend():
    if backend.NAME not in _BACKENDS:
        raise UserError(
            f"Keras runs on {backend.NAME}, but bert only on {' and '.join(_BACKENDS)}; "
            f"start Python again with KERAS_BACKEND={_BACKENDS[0]}"
        )


class TextEncoder:
    """An encoder that reads texts.

    In a Keras model of your own class, hold `layer`, whose weights Keras then knows.

    Attributes:
        layer: the Keras layer, an `Encoder`; also what `encoder(...)` calls.
        tokenizer: turns text into ids and back.
        config: the architecture.
    """

    # So that no other attribute can be set, such as one of the layer's.
    __slots__ = ("layer", "tokenizer", "config", "_extractor", "_vectors")

    def __init__(
        self, layer: Encoder, tokenizer: Tokenizer, vectors: LearnedVectors | None
    ):
        self.layer, self.tokenizer, self._vectors = layer, tokenizer, vectors
        self.config = layer.config
        # One for each layer and pooling, because it compiles what it computes.
        self._extractor = functools.cache(self._make_extractor)

    @property
    def trainable(self) -> bool:
        """Whether `fit` changes the layer's weights."""
        return self.layer.trainable

    @trainable.setter
    def trainable(self, value: bool):
        self.layer.trainable = arguments.switch("trainable", value)

    def __call__(self, inputs, training: bool | None = None, return_all: bool = False):
        """Encodes a batch, or makes a part of a functional model.

        Args:
            inputs: what `tokenize` or `inputs` returned.
            training: whether to draw dropout.
            return_all: also return the outputs below the last layer.
        Returns:
            dict of sequence_output [b, s, h] and, if the architecture has a pooler,
            pooled_output [b, h]; with return_all also embedding_output [b, s, h] and
            layer_outputs, a list of [b, s, h].
        Raises:
            UserError: these are texts, have other names, or do not fit the model.
        """
        inputs = arguments.encoder_inputs(inputs, self.config)
        arguments.training(training)
        return_all = arguments.switch("return_all", return_all)
        return self.layer(inputs, training=training, return_all=return_all)

    @arguments.check(texts=arguments.texts)
    def tokenize(
        self, texts: Iterable[Text], max_seq_length: int | None = None
    ) -> dict[str, np.ndarray]:
        """Turns texts into rows with [CLS] and [SEP].

        Args:
            texts: strings, and pairs of strings.
            max_seq_length: of all rows; longer texts lose their end. By default, the
                longest text's, or the model's positions.
        Returns:
            dict of int32 [b, s]: input_ids, input_mask (1 = token), segment_ids.
        Raises:
            UserError: something else than a text is among them.
        """
        self._check_length(max_seq_length)
        most = max_seq_length or self._longest
        made = [self._row(text, i, most) for i, text in enumerate(texts)]
        if max_seq_length is None:
            most = max((len(row.input_ids) for row in made), default=1)
        layout = rows.Layout(most, pad_id=self.tokenizer.vocabulary.pad_id)
        packed = layout.pack(made)
        return {name: values.astype(np.int32) for name, values in packed.items()}

    @property
    def _longest(self) -> int:
        """The tokens of the longest row; some models have no such bound."""
        return int(min(self.config.max_position_embeddings, options.MOST_TOKENS))

    def _check_length(self, max_seq_length):
        if max_seq_length is None:
            return
        arguments.whole(at_least=3)("max_seq_length", max_seq_length)
        if max_seq_length > self._longest:
            raise UserError(
                f"max_seq_length={max_seq_length}: must be from 3 to {self._longest}, the "
                "model's positions"
            )

    def _row(self, text, number, most):
        first, second = arguments.parts(text, number)
        ids = self.tokenizer.encode(first)
        pair = None if second is None else self.tokenizer.encode(second)
        packed = packing.pack(self.tokenizer.vocabulary, ids, pair, most)
        return rows.Row(*packed[:2], {})

    @arguments.check(prefix=arguments.name)
    def inputs(
        self, max_seq_length: int | None = None, *, prefix: str = ""
    ) -> dict[str, keras.KerasTensor]:
        """What a functional model begins with: dict of int32 [b, max_seq_length].

        Args:
            max_seq_length: None for rows of any length.
            prefix: of Keras's names of the inputs, which must differ where a model has
                several texts; not of the dict's keys.
        """
        self._check_length(max_seq_length)
        return {
            name: keras.Input((max_seq_length,), dtype="int32", name=f"{prefix}{name}")
            for name in ("input_ids", "input_mask", "segment_ids")
        }

    @arguments.check(
        texts=arguments.texts,
        pooling=arguments.one_of(*TOKEN_POOLINGS),
        layer=arguments.whole(),
        batch_size=arguments.batch_size,
        doc_stride=arguments.whole(at_least=0),
        are_queries=arguments.switch,
    )
    def embed(
        self,
        texts: Iterable[Text],
        pooling: str | None = None,
        *,
        layer: int = -1,
        batch_size: int = 32,
        max_seq_length: int | None = None,
        doc_stride: int = 0,
        are_queries: bool = False,
    ) -> np.ndarray:
        """One vector for each text.

        A model that was trained for vectors, here or by sentence-transformers, gives
        its own; others give what extract_features.py does.

        Args:
            texts: strings, and pairs of strings; any number.
            pooling: of a text's tokens with [CLS] and [SEP]; one of run_retrieval.py's. It
                asks for the bare encoder's vectors, as another layer does.
            layer: whose outputs; -1 is the last one.
            batch_size: rows of similar length at a time.
            max_seq_length: tokens of a row; by default, the model's own, or 128.
            doc_stride: tokens between the windows in which longer texts are read; 0 cuts
                them off.
            are_queries: which of the prompts texts get that a model was trained with.
        Returns:
            float32 [n, h], or of the trained width, in the order of the texts.
        Raises:
            UserError: something else than a text is among them.
        """
        learned = self._vectors if pooling is None and layer == -1 else None
        settings = learned.settings if learned else VectorSettings()
        pooling = pooling or settings.pooling
        text_features.check_pooling(pooling, self.config)
        text_features.check_layer(layer, self.config)
        self._check_length(max_seq_length)
        most = min(max_seq_length or settings.max_seq_length or 128, self._longest)
        check_windows(most, doc_stride)
        flags = _Files(init_checkpoint="", max_seq_length=most, doc_stride=doc_stride)
        made = text_features.rows_of_texts(
            texts, self.tokenizer, flags, settings.prompt(are_queries)
        )
        layer = text_features.OUTPUT if learned else layer
        extractor = self._extractor(layer, pooling)
        pad_id = self.tokenizer.vocabulary.pad_id
        vectors = text_features.vectors_of(made, extractor, most, batch_size, pad_id)
        return learned.of(vectors) if learned else vectors

    @arguments.check(
        texts=arguments.checked_texts(at_least=1),
        queries=arguments.checked_texts(),
        k=arguments.whole(at_least=1),
    )
    def search(
        self,
        texts: Iterable[Text],
        queries: Iterable[Text],
        k: int = 10,
        max_seq_length: int | None = None,
    ) -> list[list[tuple[Text, float]]]:
        """The texts whose vectors are nearest to each query's, by cosine.

        Args:
            k: how many for each query; of fewer texts, all.
            max_seq_length: as for `embed`.
        Returns:
            texts with their cosines, the best first, for each query.
        """
        most = {"max_seq_length": max_seq_length}
        found = normalize(self.embed(texts, **most))
        asked = normalize(self.embed(queries, are_queries=True, **most))
        near = exact.search(asked, exact.blocks_of(found), k)
        return [
            [(texts[row], score) for row, score in zip(rows, scores, strict=True)]
            for scores, rows in zip(near.scores.tolist(), near.rows, strict=True)
        ]

    def _make_extractor(self, layer, pooling):
        cls_last = not self.tokenizer.vocabulary.head
        return text_features.make_extractor(
            self.layer, [layer], pooling, cls_last=cls_last
        )


@arguments.check(
    texts=arguments.list_of_texts,
    encoder=_encoder,
    batch_size=arguments.batch_size,
    length_buckets=arguments.switch,
    shuffle=arguments.switch,
    seed=arguments.whole(at_least=0),
)
def dataset(
    texts: Iterable[Text],
    labels: Iterable | None,
    encoder: TextEncoder,
    *,
    batch_size: int = 32,
    max_seq_length: int = 128,
    length_buckets: bool = False,
    shuffle: bool = True,
    seed: int = 12345,
) -> keras.utils.PyDataset:
    """Batches for `fit`, `evaluate` and, without labels, `predict`.

    Args:
        texts: strings, and pairs of strings.
        labels: numbers, one for each text, or arrays of them; None for `predict`.
        max_seq_length: tokens of a row; longer texts lose their end.
        length_buckets: whether rows of similar length share a batch, which is padded to
            their length and not to max_seq_length. It is faster and tokenizes all texts at
            once; the model needs `encoder.inputs()` without a length.
        shuffle: whether each epoch has another order; without labels, none has.
        seed: of the orders.
    Raises:
        UserError: there are not as many labels as texts, or they are not numbers; there
            is no text, or something else is among the texts.
    """
    if not texts:
        raise UserError("texts is empty; pass at least one")
    for number, text in enumerate(texts):
        arguments.parts(text, number)
    encoder._check_length(max_seq_length)
    if labels is not None:
        labels = arguments.label_array(labels, len(texts))
    seed = seed if shuffle and labels is not None else None
    if length_buckets and seed is None:
        raise UserError(
            "length_buckets changes the order of the texts, so it needs labels and shuffle"
        )
    return TextBatches(
        texts,
        labels,
        encoder._row,
        rows.Layout(
            max_seq_length or encoder._longest,
            pad_id=encoder.tokenizer.vocabulary.pad_id,
        ),
        batch_size=batch_size,
        seed=seed,
        has_buckets=length_buckets,
    )


@arguments.check(
    learning_rate=arguments.number(at_least=0),
    num_train_steps=arguments.whole(at_least=1, at_most=2**31 - 1),
    num_warmup_steps=arguments.whole(at_least=0, at_most=2**31 - 1),
    encoder=_encoder,
    settings=arguments.optimizer_settings(FineTuningOptions),
)
def optimizer(
    learning_rate: float,
    num_train_steps: int,
    num_warmup_steps: int = 0,
    *,
    encoder: TextEncoder | None = None,
    **settings,
) -> in_keras.Optimizer:
    """The scripts' optimizer, for `compile`; by default, BERT's.

    Args:
        learning_rate: the peak.
        num_train_steps: updates of the whole training.
        num_warmup_steps: updates over which the learning rate rises.
        encoder: whose layers `layerwise_lr_decay` is about.
        settings: fields of `OptimizerSettings`, named like flags: optimizer="lamb",
            weight_decay=0.1, lr_schedule="constant", layerwise_lr_decay=0.8.
    Raises:
        UserError: there is no such setting.
    """
    arguments.check_effect(settings)
    if num_warmup_steps > num_train_steps:
        raise UserError(
            f"num_warmup_steps={num_warmup_steps}: is more than num_train_steps="
            f"{num_train_steps}, so the learning rate would never reach its peak"
        )
    shares = {}
    if (decay := settings.get("layerwise_lr_decay", 1.0)) != 1.0:
        if encoder is None:
            raise UserError(
                "layerwise_lr_decay needs encoder=, whose layers it is about"
            )
        shares = layerwise_shares(encoder.layer.stages, decay)
    rate = in_keras.LearningRate(
        learning_rate, num_train_steps, num_warmup_steps, settings
    )
    return in_keras.Optimizer(rate, settings, shares)


@arguments.check(
    encoder=_encoder,
    folder=arguments.path,
    layout=arguments.one_of(*encoder_files.LAYOUTS),
)
def save(encoder: TextEncoder, folder: str, layout: str = "release") -> str:
    """Writes the encoder with its config and vocabulary; returns the path of its weights.

    Args:
        folder: a new or empty one.
        layout: "release", which all scripts read, "hugging_face", the encoder alone, or
            "sentence_transformers".
    Raises:
        UserError: the folder is not empty, or the layout has no place for something.
    """
    sources.refuse_remote(folder)
    if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise UserError(f"{folder}: is not an empty folder; choose another")
    learned = encoder._vectors or (None, {})
    written = encoder_files.Written(encoder.layer, encoder.tokenizer, *learned)
    return encoder_files.LAYOUTS[layout](folder, written)


class MaskedLM:
    """A network that fills in [MASK]; see `load_masked_lm`."""

    def __init__(self, tokenizer, config, model):
        self.tokenizer, self.config, self.model = tokenizer, config, model

    @arguments.check(text=arguments.text, top_k=arguments.whole(at_least=1))
    def fill(self, text: str, top_k: int = 5) -> list[list[tuple[str, float]]]:
        """The most probable tokens, with their probabilities, for each [MASK] of a text.

        Raises:
            UserError: it is not a string, there is no [MASK], or the text is too long.
        """
        row = mask_filling.encode(self.tokenizer, text, self.config, "text")
        tokens, filled = self.tokenizer.vocabulary.tokens, []
        for probabilities in mask_filling.probabilities(self.model, *row):
            best = np.argsort(-probabilities[: len(tokens)])[:top_k]
            filled.append([(tokens[id], float(probabilities[id])) for id in best])
        return filled


@arguments.check(**_MODEL_FILES)
def load_masked_lm(
    path: str,
    *,
    vocab_file: str | None = None,
    bert_config_file: str | None = None,
    **text: bool,
) -> MaskedLM:
    """Loads a network that fills in masks; arguments as for `load`.

    Raises:
        UserError: see `load`; or it was not trained on masked words.
    """
    beside = {"vocab_file": vocab_file, "bert_config_file": bert_config_file}
    return MaskedLM(*mask_filling.load(_files(path, **beside, **text)))


class Task:
    """A fine-tuned or pre-trained model that answers; see `load_task`.

    Attributes:
        inputs: the names of what a request has, in order.
    """

    def __init__(self, served: Served):
        self._served = served
        self.inputs = tuple(served.parts)

    @arguments.check(requests=arguments.requests, batch_size=arguments.batch_size)
    def predict(self, requests: Sequence, batch_size: int = 32) -> list[dict]:
        """Answers requests.

        Args:
            requests: strings for a model with one input, tuples in the order of `inputs`,
                or dicts by their names.
            batch_size: how many go through the model at once.
        Returns:
            the answers that predict.py writes, such as {"predicted": ..., ...}.
        Raises:
            UserError: a request does not have these inputs.
        """
        return self._served.predict([self._request(r) for r in requests], batch_size)

    def _request(self, request):
        if isinstance(request, Mapping):
            return request
        parts = (request,) if isinstance(request, str) else request
        if not isinstance(parts, tuple | list) or len(parts) > len(self.inputs):
            raise UserError(
                f"{arguments.show(request)} is no request; it must have "
                f"{', '.join(self.inputs)}, in this order"
            )
        return dict(zip(self.inputs, parts, strict=False))


# The scripts whose runs answer texts without an export, too.
_TASKS = "classifier ner retrieval squad swag text_to_text"
_SCRIPTS = [f"run_{name}.py" for name in _TASKS.split()]


@arguments.check(path=arguments.path)
def load_task(path: str) -> Task:
    """Loads what a script trained.

    Args:
        path: its output_dir, or an export. If the output_dir has an export (--do_export),
            that answers; otherwise its newest or best checkpoint, with the flags of the
            training. A task in a script of your own needs an export.
    Raises:
        UserError: there is neither, or the files do not fit each other; or Keras does not
            run on TensorFlow, which answers.
    """
    backend.require_tensorflow("load_task")
    if not sources.exists(path):
        raise UserError(f"{path}: no such folder")
    folder = Folder.open(path)
    _, settings = folder.text
    if predictor.has_export(path) or not folder.holds_weights:
        return Task(Predictor(path))
    if settings.get("script") not in _SCRIPTS:
        raise UserError(
            f"{path}: contains checkpoints, but no export, and not of a run of "
            f"{', '.join(_SCRIPTS)}; run the command that trained them again, with "
            "--do_export"
        )
    script = importlib.import_module(settings["script"].removesuffix(".py"))
    with contextlib.redirect_stdout(io.StringIO()):  # what scripts report
        flags = flags_of_run(script.Options, path, settings)
        model = TrainableModel(flags, folder=folder)
        return Task(finetune.serve(script.make(model), model))

"""Exports of pre-trained networks, which answer a text.

What an objective's `Exporter` calls the form of the answers is a row of `forms.FORMS`,
which names a class of this file or of an extension.
"""

import abc
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from training import metrics
from training.backend import tf
from training.run import loop
from training.storage import model_card
from modeling.architectures.config import EncoderConfig
from modeling.architectures.network import Network
from serving import export, quantized
from serving.comparison import ComparedRows
from text.graphs import mask_tokens_graph
from text.graphs.packing_graph import pack
from text.graphs.row_chunks import run_in_chunks
from text.instances import packing
from text.records import rows
from text.tasks import mask_tokens
from text.tokenizers.tokenizer import Tokenizer

_TOP_K = 5
_MOST_NUMBERS = 1 << 26  # probabilities of one part
_CHECKED = 2  # samples whose outputs of the network alone are compared
LONG_TEXT = "one of many words " * 200  # a sample that fits into no row


class ExportSettings(NamedTuple):
    """What an export is made with.

    Attributes:
        tokenizer: of the training's rows.
        config: of the encoder.
        max_seq_length: tokens of a row.
        max_predictions_per_seq: masked tokens of a row, where there are any.
        precision, formats: see `export.Product`.
    """

    tokenizer: Tokenizer
    config: EncoderConfig
    max_seq_length: int
    max_predictions_per_seq: int
    precision: str = "float32"
    formats: Sequence[str] = ()

    @property
    def dtype(self) -> str:
        """The network's policy."""
        return quantized.POLICIES[self.precision]


class TextExport(abc.ABC):
    """An export whose serving_default takes `text`, string [b].

    Attributes:
        form: of the answers; a key of `forms.FORMS`.
        samples: texts on which it is checked.
        more: further signatures; see `export.Product`.
        description: what export.json says besides.
    """

    form: str
    samples: Sequence[str]
    more = {}
    description = {}

    def __init__(self, trainer: loop.Trainer, settings: ExportSettings):
        self.trainer, self.settings = trainer, settings
        self.tokenizer = settings.tokenizer
        self.vocabulary = settings.tokenizer.vocabulary
        self.max_seq_length = settings.max_seq_length
        self.model = export.make_model(
            self.network, trainer.weights, settings.precision
        )

    @abc.abstractmethod
    def network(self) -> Network:
        """Makes the network to export."""

    @abc.abstractmethod
    def row(self, text: str) -> rows.Row:
        """A text as the network reads it."""

    @abc.abstractmethod
    def answers(self, batch: dict[str, np.ndarray]) -> list[dict]:
        """What must be answered to the samples, whose rows these are."""

    @abc.abstractmethod
    def serve(self, tokenizer, predict, text) -> dict:
        """In a graph: the answers to texts; see `export.Product`."""

    @property
    def layout(self) -> rows.Layout:
        """Of rows without labels."""
        return rows.Layout(self.max_seq_length, pad_id=self.vocabulary.pad_id)

    def save(self, output_dir: str) -> str:
        """Writes the export; returns its folder.

        Raises:
            UserError: see `export.save`.
        """
        packed = self.layout.pack([self.row(text) for text in self.samples])
        batch = {name: value.astype(np.int32) for name, value in packed.items()}
        some = {name: value[:_CHECKED] for name, value in batch.items()}
        product = export.Product(
            model=self.model,
            precision=self.settings.precision,
            config=self.settings.config,
            tokenizer=self.tokenizer,
            layout=self.layout,
            form=self.form,
            inputs={"text": "text"},
            serve=self.serve,
            more=self.more,
            description={
                "task": "Pretraining",
                **self.description,
                "global_step": self.trainer.progress.step,
            },
            requests=[{"text": text} for text in self.samples],
            answers=self.answers(batch),
            batch=some,
            outputs=export.predict(self.model, some),
            formats=self.settings.formats,
            **self._float32(some),
        )
        card = model_card.of_export(output_dir, product)
        return export.save(output_dir, product, card)

    def _float32(self, batch) -> dict:
        """What an export of fewer bits is compared with; there is no dev set."""
        if self.settings.precision == "float32":
            return {}
        settings = self.settings._replace(precision="float32")
        reference = type(self)(self.trainer, settings).model
        return {"reference": reference, "compared": ComparedRows(batch)}

    def best_tokens(self, logits: np.ndarray) -> list[list[dict]]:
        """The most probable tokens and their probabilities for logits [n, vocab_size]."""
        tokens, predictions = self.vocabulary.tokens, []
        for probabilities in metrics.softmax(logits):
            # vocab_size may be larger than the vocabulary.
            order = np.argsort(-probabilities[: len(tokens)], kind="stable")
            predictions.append(
                [
                    {"token": tokens[id], "probability": float(probabilities[id])}
                    for id in order[:_TOP_K]
                    if tokens[id]  # answers have no place for empty lines
                ]
            )
        return predictions


def find_best(logits, tokenizer):
    """In a graph: ids and probabilities of the best tokens, [..., _TOP_K]."""
    probabilities = tf.nn.softmax(logits)
    best = tf.math.top_k(probabilities[..., : tokenizer.vocab_size], _TOP_K)
    return {"ids": best.indices, "probabilities": best.values}


class MasksExport(TextExport):
    """Fills in each [MASK]; the signature `vectors` gives two vectors of a text.

    These are of the last layer: `cls`, and `mean` over all tokens, including [CLS] and
    [SEP].
    """

    form = "masks"

    def __init__(self, trainer, settings):
        super().__init__(trainer, settings)
        texts = (
            "The {mask} of the {mask} is not known.",
            "{mask}",
            "",
            "Zürich {mask}, ΑΘΗΝΑ {mask}{mask} 東京 {mask} 서울",
            "one of many {mask} words " * 200,
        )
        self.samples = [text.format(mask=self.vocabulary.mask) for text in texts]
        self._most = settings.max_predictions_per_seq
        self.description = {
            "mask": self.vocabulary.mask,
            "max_predictions_per_seq": self._most,
        }

    @property
    def more(
        self,
    ):  # runs the network, which what a small export is compared with need not
        return {"vectors": (self._serve_vectors, self._vectors())}

    def network(self):
        objective = self.trainer.for_evaluation
        return objective.network(self.settings.config, dtype=self.settings.dtype)

    @property
    def layout(self):
        positions = {"masked_lm_positions": rows.Field("int64", (self._most,))}
        pad_id = self.vocabulary.pad_id
        return rows.Layout(self.max_seq_length, labels=positions, pad_id=pad_id)

    def _pack(self, ids):
        return packing.pack(self.vocabulary, ids, None, self.max_seq_length)[:2]

    def _masks(self, ids):
        return [i for i, id in enumerate(ids) if id == self.vocabulary.mask_id]

    def row(self, text):
        ids, segments = self._pack(mask_tokens.encode(self.tokenizer, text))
        positions = np.zeros(self._most, np.int64)
        masks = self._masks(ids)[: self._most]
        positions[: len(masks)] = masks
        return rows.Row(ids, segments, {"masked_lm_positions": positions})

    def _predict(self, ids, segments, positions):
        batch = {
            "input_ids": ids,
            "segment_ids": segments,
            "masked_lm_positions": positions,
        }
        batch = {name: np.array([values], np.int32) for name, values in batch.items()}
        return export.predict(self.model, batch)

    def answers(self, batch):
        # One by one, because rows of a batch have room for a few masks only.
        return [{"masks": self._fill(text)} for text in self.samples]

    def _fill(self, text):
        ids, segments = self._pack(mask_tokens.encode(self.tokenizer, text))
        positions = self._masks(ids)
        if not positions:
            return []
        outputs = self._predict(ids, segments, positions)
        return self.best_tokens(outputs["masked_lm_logits"][0])

    def _vectors(self):
        """What `vectors` must return for the samples."""
        pooled = []
        for text in self.samples:
            ids, segments = self._pack(self.tokenizer.encode(text))
            (hidden,) = self._predict(ids, segments, [0])["sequence_output"]
            place = 0 if self.vocabulary.head else -1
            pooled.append({"mean": hidden.mean(axis=0), "cls": hidden[place]})
        return {name: np.stack([each[name] for each in pooled]) for name in pooled[0]}

    def serve(self, tokenizer, predict, text):
        ids = mask_tokens_graph.encode(tokenizer, text)
        batch = pack(tokenizer, ids, None, self.max_seq_length)
        is_mask = tf.equal(batch["input_ids"], tokenizer.mask_id)
        columns = tf.zeros_like(batch["input_ids"]) + tf.range(tf.shape(is_mask)[1])
        positions = tf.ragged.boolean_mask(columns, is_mask)
        counts = positions.row_lengths()
        positions = tf.pad(positions.to_tensor(), [[0, 0], [0, 1]])  # at least one
        each = tf.shape(positions)[1] * tokenizer.vocab_size  # numbers of a row
        best = run_in_chunks(
            predict,
            batch | {"masked_lm_positions": positions},
            lambda outputs, _: find_best(outputs["masked_lm_logits"], tokenizer),
            tf.maximum(_MOST_NUMBERS // each, 1),
        )
        exists = tf.sequence_mask(counts, tf.shape(positions)[1] - 1)[..., None]
        return {
            "tokens": tf.where(exists, tokenizer.tokens(best["ids"][:, :-1]), ""),
            "probabilities": tf.where(exists, best["probabilities"][:, :-1], 0.0),
        }

    def _serve_vectors(self, tokenizer, predict, text):
        """[CLS] and the mean of the last layer, float32 [b, h]."""

        def pool(outputs, part):
            hidden, mask = outputs["sequence_output"], part["input_mask"]
            weights = tf.cast(mask, tf.float32)[..., None]
            mean = tf.reduce_sum(hidden * weights, axis=1)
            mean /= tf.reduce_sum(weights, axis=1)
            if tokenizer.head:
                return {"mean": mean, "cls": hidden[:, 0]}
            last = tf.reduce_sum(mask, axis=1) - 1
            return {"mean": mean, "cls": tf.gather(hidden, last, axis=1, batch_dims=1)}

        ids = tokenizer.encode(text)
        batch = pack(tokenizer, ids, None, self.max_seq_length)
        nowhere = tf.zeros_like(batch["input_ids"][:, :1])
        batch |= {"masked_lm_positions": nowhere}
        return run_in_chunks(predict, batch, pool)

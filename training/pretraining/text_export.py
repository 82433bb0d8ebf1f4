"""Exports a pre-trained network that answers a text: what its kinds have in common."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from training.run import loop
from modeling.architectures.config import EncoderConfig
from serving import export
from text.records import rows
from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import Vocabulary

TOP_K = 5
_CHECKED = 2  # samples whose outputs of the network alone are compared


class Wanted(NamedTuple):
    """What an export is made with.

    Attributes:
        tokenizer: of the training's rows.
        config: of the encoder.
        max_seq_length: tokens of a row.
        max_predictions_per_seq: masked tokens of a row, where there are any.
        dtype: the network's policy, "float32" or "mixed_bfloat16".
        formats: see `export.Product`.
    """

    tokenizer: Tokenizer
    config: EncoderConfig
    max_seq_length: int
    max_predictions_per_seq: int
    dtype: str
    formats: Sequence[str] = ()

    @property
    def layout(self) -> rows.Layout:
        """Of rows without labels."""
        pad_id = self.tokenizer.vocabulary.pad_id
        return rows.Layout(self.max_seq_length, pad_id=pad_id)

    def pack(self, made: Sequence[rows.Row]) -> dict[str, np.ndarray]:
        """Rows as the network takes them, int32."""
        packed = self.layout.pack(made)
        return {name: value.astype(np.int32) for name, value in packed.items()}


def save(
    trainer: loop.Trainer,
    output_dir: str,
    wanted: Wanted,
    *,
    model: Callable,
    form: str,
    serve: Callable,
    texts: Sequence[str],
    batch: dict[str, np.ndarray],
    answers: list[dict],
) -> str:
    """Writes the export; returns its folder.

    Args:
        model, form, serve: see `export.Product`.
        texts, answers: samples, and what must be answered.
        batch: the rows of the samples.
    Raises:
        UserError: see `export.save`.
    """
    some = {name: value[:_CHECKED] for name, value in batch.items()}
    product = export.Product(
        model=model,
        dtype=wanted.dtype,
        config=wanted.config,
        tokenizer=wanted.tokenizer,
        layout=wanted.layout,
        form=form,
        inputs={"text": "text"},
        serve=serve,
        description={"task": "Pretraining", "global_step": trainer.progress.step},
        requests=[{"text": text} for text in texts],
        answers=answers,
        batch=some,
        outputs=export.predict(model, some),
        formats=wanted.formats,
    )
    return export.save(output_dir, product)


def best_tokens(probabilities: np.ndarray, vocabulary: Vocabulary) -> list[dict]:
    """The most probable tokens and their probabilities, float [vocab_size]."""
    # vocab_size may be larger than the vocabulary.
    best = np.argsort(-probabilities[: len(vocabulary)], kind="stable")[:TOP_K]
    return [
        {"token": vocabulary.tokens[id], "probability": float(probabilities[id])}
        for id in best
        if vocabulary.tokens[id]  # answers have no place for empty lines
    ]

"""Exports a pre-trained T5, which writes what the sentinels in a text stand for."""

from collections.abc import Sequence

import numpy as np

from training import loop
from modeling.encoders.config import EncoderConfig
from modeling.objectives.written_texts import WrittenTexts
from serving import export
from text.records import rows
from text.tasks import as_text, as_text_graph
from text.tasks.in_parts import in_parts
from text.tokenizers.tokenizer import Tokenizer

_CHECKED = 2  # samples whose outputs of the network alone are compared
_SAMPLES = (
    "Returns the {0} of items in the {1}",
    "",
    "{0} Zürich ΑΘΗΝΑ, 東京 서울",
    "one of many words " * 200,
)


def save(
    trainer: loop.Trainer,
    output_dir: str,
    *,
    tokenizer: Tokenizer,
    config: EncoderConfig,
    max_seq_length: int,
    max_predictions_per_seq: int,
    dtype: str,
    formats: Sequence[str] = (),
) -> str:
    """Exports the network of a trainer; returns the folder.

    From raw text with sentinels, serving_default returns the sentinels, each with what the
    model writes after it; not more tokens than the targets of pre-training had.

    Args:
        max_predictions_per_seq: not used; no token is masked.
    Raises:
        UserError: see `export.save`.
    """
    del max_predictions_per_seq
    _, length = trainer.measured.sizes
    writer = WrittenTexts(length).measured
    model = export.make_model(
        lambda: writer.network(config, dtype=dtype), trainer.weights
    )
    vocabulary = tokenizer.vocabulary
    layout = rows.Layout(max_seq_length, pad_id=vocabulary.pad_id)
    names = [vocabulary.texts[id] for id in vocabulary.sentinels[:2]]
    requests = [{"text": text.format(*names)} for text in _SAMPLES]
    made = [_row(tokenizer, one["text"], max_seq_length) for one in requests]
    batch = layout.pack(made)
    batch = {name: value.astype(np.int32) for name, value in batch.items()}
    written = export.predict(model, batch)["output_ids"].tolist()

    def write(tokenizer, predict, text):
        batch = as_text_graph.rows(tokenizer, tokenizer.encode(text), max_seq_length)
        return {"predicted": tokenizer.text_of(in_parts(predict, batch)["output_ids"])}

    some = {name: value[:_CHECKED] for name, value in batch.items()}
    product = export.Product(
        model=model,
        dtype=dtype,
        config=config,
        tokenizer=tokenizer,
        layout=layout,
        form="text",
        inputs={"text": "text"},
        serve=write,
        description={"task": "Pretraining", "global_step": trainer.progress.step},
        requests=requests,
        answers=[{"predicted": vocabulary.text_of(ids)} for ids in written],
        batch=some,
        outputs=export.predict(model, some),
        formats=formats,
    )
    return export.save(output_dir, product)


def _row(tokenizer, text, max_seq_length):
    ids, _ = as_text.row(tokenizer.vocabulary, tokenizer.encode(text), max_seq_length)
    return rows.Row(ids, [0] * len(ids), {})

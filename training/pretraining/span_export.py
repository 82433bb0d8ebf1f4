"""Exports a pre-trained T5, which writes what the sentinels in a text stand for."""

from training.pretraining import text_export
from training.run import loop
from modeling.objectives.written_texts import WrittenTexts
from serving import export
from text.records import rows
from text.tasks import as_text, as_text_graph
from text.tasks.in_parts import in_parts
from training.pretraining.text_export import Wanted

_SAMPLES = (
    "Returns the {0} of items in the {1}",
    "",
    "{0} Zürich ΑΘΗΝΑ, 東京 서울",
    "one of many words " * 200,
)


def save(trainer: loop.Trainer, output_dir: str, wanted: Wanted) -> str:
    """Exports the network of a trainer; returns the folder.

    From raw text with sentinels, serving_default returns the sentinels, each with what the
    model writes after it; not more tokens than the targets of pre-training had.

    Raises:
        UserError: see `export.save`.
    """
    tokenizer, max_seq_length = wanted.tokenizer, wanted.max_seq_length
    _, length = trainer.measured.sizes
    writer = WrittenTexts(length).measured
    model = export.make_model(
        lambda: writer.network(wanted.config, dtype=wanted.dtype), trainer.weights
    )
    vocabulary = tokenizer.vocabulary
    names = [vocabulary.texts[id] for id in vocabulary.sentinels[:2]]
    texts = [text.format(*names) for text in _SAMPLES]
    batch = wanted.pack([_row(tokenizer, text, max_seq_length) for text in texts])
    written = export.predict(model, batch)["output_ids"].tolist()

    def write(tokenizer, predict, text):
        batch = as_text_graph.rows(tokenizer, tokenizer.encode(text), max_seq_length)
        return {"predicted": tokenizer.text_of(in_parts(predict, batch)["output_ids"])}

    return text_export.save(
        trainer,
        output_dir,
        wanted,
        model=model,
        form="text",
        serve=write,
        texts=texts,
        batch=batch,
        answers=[{"predicted": vocabulary.text_of(ids)} for ids in written],
    )


def _row(tokenizer, text, max_seq_length):
    ids, _ = as_text.row(tokenizer.vocabulary, tokenizer.encode(text), max_seq_length)
    return rows.Row(ids, [0] * len(ids), {})

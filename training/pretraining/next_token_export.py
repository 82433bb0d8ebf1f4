"""Exports a left-to-right language model, which returns a text's likely next tokens."""

from training import metrics
from training.backend import tf
from training.pretraining import text_export
from training.run import loop
from modeling.objectives.next_token import LastTokenModel
from serving import export
from text.records import rows
from text.tasks.in_parts import in_parts
from training.pretraining.text_export import TOP_K, Wanted, best_tokens

_SAMPLES = (
    "The meaning of the",
    "",
    "Zürich ΑΘΗΝΑ, 東京 서울",
    "one of many words " * 200,
)


def save(trainer: loop.Trainer, output_dir: str, wanted: Wanted) -> str:
    """Exports the network of a trainer, with its head; returns the folder.

    From raw text, serving_default returns the most probable next tokens. Of a text that
    does not fit, it reads the end.

    Raises:
        UserError: see `export.save`.
    """
    tokenizer, max_seq_length = wanted.tokenizer, wanted.max_seq_length
    model = export.make_model(
        lambda: LastTokenModel(wanted.config, dtype=wanted.dtype), trainer.weights
    )
    vocabulary = tokenizer.vocabulary
    made = [
        [vocabulary.cls_id, *tokenizer.encode(text)[1 - max_seq_length :]]
        for text in _SAMPLES
    ]
    batch = wanted.pack([rows.Row(ids, [0] * len(ids), {}) for ids in made])
    logits = export.predict(model, batch)["next_token_logits"]

    def follow(tokenizer, predict, text):
        return _follow(tokenizer, predict, text, max_seq_length)

    return text_export.save(
        trainer,
        output_dir,
        wanted,
        model=model,
        form="next",
        serve=follow,
        texts=_SAMPLES,
        batch=batch,
        answers=[
            {"tokens": best_tokens(row, vocabulary)} for row in metrics.softmax(logits)
        ],
    )


def _follow(tokenizer, predict, text, max_seq_length):
    """In a graph: the most probable tokens after texts."""
    ids = tokenizer.encode(text)[:, 1 - max_seq_length :]
    starts = tf.fill([tf.shape(text)[0], 1], tokenizer.cls_id)
    ids = tf.concat([starts, tf.cast(ids, tf.int32)], axis=1)
    padded = ids.to_tensor(tokenizer.pad_id)
    mask = tf.sequence_mask(ids.row_lengths(), tf.shape(padded)[1], tf.int32)
    batch = {
        "input_ids": padded,
        "input_mask": mask,
        "segment_ids": tf.zeros_like(padded),
    }

    def best(part):
        probabilities = tf.nn.softmax(predict(part)["next_token_logits"])
        found = tf.math.top_k(probabilities[:, : tokenizer.vocab_size], TOP_K)
        return {"ids": found.indices, "probabilities": found.values}

    found = in_parts(best, batch)
    return {
        "tokens": tokenizer.tokens(found["ids"]),
        "probabilities": found["probabilities"],
    }

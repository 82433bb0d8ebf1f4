"""Exports a language model that reads from left to right: what follows a text?"""

from collections.abc import Sequence

import numpy as np

from training import loop, metrics
from training.backend import tf
from modeling.encoders.config import EncoderConfig
from modeling.objectives.next_token import LastTokenModel
from serving import export
from text.records import rows
from text.tasks.in_parts import in_parts
from text.tokenizers.tokenizer import Tokenizer

TOP_K = 5
_CHECKED = 2  # samples whose outputs of the network alone are compared
_SAMPLES = (
    "The meaning of the",
    "",
    "Zürich ΑΘΗΝΑ, 東京 서울",
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
    """Exports the network of a trainer, with its head; returns the folder.

    From raw text, serving_default returns the most probable next tokens. Of a text that
    does not fit, it reads the end.

    Args:
        max_predictions_per_seq: not used; no token is masked.
    Raises:
        UserError: see `export.save`.
    """
    del max_predictions_per_seq
    model = export.make_model(
        lambda: LastTokenModel(config, dtype=dtype), trainer.weights
    )
    vocabulary = tokenizer.vocabulary
    layout = rows.Layout(max_seq_length, pad_id=vocabulary.pad_id)
    made = [
        [vocabulary.cls_id, *tokenizer.encode(text)[1 - max_seq_length :]]
        for text in _SAMPLES
    ]
    batch = layout.pack([rows.Row(ids, [0] * len(ids), {}) for ids in made])
    batch = {name: value.astype(np.int32) for name, value in batch.items()}
    logits = export.predict(model, batch)["next_token_logits"]

    def follow(tokenizer, predict, text):
        return _follow(tokenizer, predict, text, max_seq_length)

    some = {name: value[:_CHECKED] for name, value in batch.items()}
    product = export.Product(
        model=model,
        dtype=dtype,
        config=config,
        tokenizer=tokenizer,
        layout=layout,
        form="next",
        inputs={"text": "text"},
        serve=follow,
        description={"task": "Pretraining", "global_step": trainer.progress.step},
        requests=[{"text": text} for text in _SAMPLES],
        answers=[_answer(row, vocabulary) for row in metrics.softmax(logits)],
        batch=some,
        outputs=export.predict(model, some),
        formats=formats,
    )
    return export.save(output_dir, product)


def _answer(probabilities, vocabulary):
    # vocab_size may be larger than the vocabulary.
    best = np.argsort(-probabilities[: len(vocabulary)], kind="stable")[:TOP_K]
    return {
        "tokens": [
            {"token": vocabulary.tokens[id], "probability": float(probabilities[id])}
            for id in best
            if vocabulary.tokens[id]  # answers have no place for empty lines
        ]
    }


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

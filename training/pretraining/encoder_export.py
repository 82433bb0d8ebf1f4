"""Exports a pre-trained network, which fills in each [MASK] and gives vectors of texts."""

import numpy as np

from training import metrics
from training.backend import tf
from training.run import loop
from serving import export
from text.instances import packing
from text.instances.pack_graph import pack
from text.records import rows
from text.tasks import masks
from text.tasks.in_parts import in_parts
from training.pretraining.text_export import TOP_K, Wanted, best_tokens

_MOST_NUMBERS = 1 << 26  # probabilities of one part
_CHECKED = 2  # samples whose logits over the whole vocabulary are compared
_SAMPLES = (
    "The {mask} of the {mask} is not known.",
    "{mask}",
    "",
    "Zürich {mask}, ΑΘΗΝΑ {mask}{mask} 東京 {mask} 서울",
    "one of many {mask} words " * 200,
)


def save(trainer: loop.Trainer, output_dir: str, wanted: Wanted) -> str:
    """Exports the network of a trainer, with its heads; returns the folder.

    From raw text, serving_default predicts the tokens for each [MASK], and `vectors`
    returns two vectors of the last layer: `cls`, and `mean` over all tokens, including
    [CLS] and [SEP].

    Raises:
        UserError: see `export.save`.
    """
    tokenizer, max_seq_length = wanted.tokenizer, wanted.max_seq_length
    most = wanted.max_predictions_per_seq
    model = export.make_model(
        lambda: trainer.measured.network(wanted.config, dtype=wanted.dtype),
        trainer.weights,
    )
    layout = _layout(tokenizer, max_seq_length, most)
    samples = [text.format(mask=tokenizer.vocabulary.mask) for text in _SAMPLES]
    made = [_encode(tokenizer, text, max_seq_length) for text in samples]
    batch = layout.pack([_row(row, tokenizer, most) for row in made])
    batch = {name: v[:_CHECKED].astype(np.int32) for name, v in batch.items()}

    def fill(tokenizer, predict, text):
        ids = masks.encode_in_graph(tokenizer, text)
        return _fill(tokenizer, predict, pack(tokenizer, ids, None, max_seq_length))

    def vectors(tokenizer, predict, text):
        batch = pack(tokenizer, tokenizer.encode(text), None, max_seq_length)
        return _vectors(tokenizer, predict, batch)

    product = export.Product(
        model=model,
        dtype=wanted.dtype,
        config=wanted.config,
        tokenizer=tokenizer,
        layout=layout,
        form="masks",
        inputs={"text": "text"},
        serve=fill,
        more={"vectors": (vectors, _pooled(model, tokenizer, samples, max_seq_length))},
        description={
            "task": "Pretraining",
            "mask": tokenizer.vocabulary.mask,
            "max_predictions_per_seq": most,
            "global_step": trainer.progress.step,
        },
        requests=[{"text": text} for text in samples],
        answers=[_answer(model, *row, tokenizer) for row in made],
        batch=batch,
        outputs=export.predict(model, batch),
        formats=wanted.formats,
    )
    return export.save(output_dir, product)


# === In Python =======================================================================


def _layout(tokenizer, max_seq_length, most):
    positions = {"masked_lm_positions": rows.Field("int64", (most,))}
    pad_id = tokenizer.vocabulary.pad_id
    return rows.Layout(max_seq_length, labels=positions, pad_id=pad_id)


def _encode(tokenizer, text, max_seq_length):
    ids = masks.encode(tokenizer, text)
    return packing.pack(tokenizer.vocabulary, ids, None, max_seq_length)[:2]


def _positions(ids, tokenizer):
    return [i for i, id in enumerate(ids) if id == tokenizer.vocabulary.mask_id]


def _row(row, tokenizer, most):
    ids, segments = row
    positions = np.zeros(most, np.int64)
    found = _positions(ids, tokenizer)[:most]
    positions[: len(found)] = found
    return rows.Row(ids, segments, {"masked_lm_positions": positions})


def _pooled(model, tokenizer, samples, max_seq_length):
    """What `vectors` must return for the samples."""
    pooled = []
    for text in samples:
        vocabulary = tokenizer.vocabulary
        ids, segments, _ = packing.pack(
            vocabulary, tokenizer.encode(text), None, max_seq_length
        )
        (hidden,) = _predict(model, ids, segments, [0])["sequence_output"]
        place = 0 if vocabulary.head else -1
        pooled.append({"mean": hidden.mean(axis=0), "cls": hidden[place]})
    return {name: np.stack([each[name] for each in pooled]) for name in pooled[0]}


def _predict(model, ids, segments, positions):
    batch = {
        "input_ids": ids,
        "segment_ids": segments,
        "masked_lm_positions": positions,
    }
    batch = {name: np.array([values], np.int32) for name, values in batch.items()}
    return export.predict(model, batch)


def _answer(model, ids, segments, tokenizer):
    positions = _positions(ids, tokenizer)
    if not positions:
        return {"masks": []}
    logits = _predict(model, ids, segments, positions)["masked_lm_logits"][0]
    return {
        "masks": [
            best_tokens(row, tokenizer.vocabulary) for row in metrics.softmax(logits)
        ]
    }


# === In a graph ======================================================================


def _fill(tokenizer, predict, batch):
    """The most probable tokens at each [MASK] of rows without positions."""
    is_mask = tf.equal(batch["input_ids"], tokenizer.mask_id)
    columns = tf.zeros_like(batch["input_ids"]) + tf.range(tf.shape(is_mask)[1])
    positions = tf.ragged.boolean_mask(columns, is_mask)
    counts = positions.row_lengths()
    positions = tf.pad(positions.to_tensor(), [[0, 0], [0, 1]])  # at least one

    def best(part):
        probabilities = tf.nn.softmax(predict(part)["masked_lm_logits"])
        probabilities, ids = tf.math.top_k(
            probabilities[..., : tokenizer.vocab_size], TOP_K
        )
        return {"ids": ids, "probabilities": probabilities}

    each = tf.shape(positions)[1] * tokenizer.vocab_size  # numbers of a row
    batch = batch | {"masked_lm_positions": positions}
    found = in_parts(best, batch, tf.maximum(_MOST_NUMBERS // each, 1))
    exists = tf.sequence_mask(counts, tf.shape(positions)[1] - 1)[..., None]
    return {
        "tokens": tf.where(exists, tokenizer.tokens(found["ids"][:, :-1]), ""),
        "probabilities": tf.where(exists, found["probabilities"][:, :-1], 0.0),
    }


def _vectors(tokenizer, predict, batch):
    """[CLS] and the mean of the last layer, float32 [b, h]."""

    def pool(part):
        nowhere = tf.zeros_like(part["input_ids"][:, :1])
        hidden = predict(part | {"masked_lm_positions": nowhere})["sequence_output"]
        weights = tf.cast(part["input_mask"], tf.float32)[..., None]
        mean = tf.reduce_sum(hidden * weights, axis=1) / tf.reduce_sum(weights, axis=1)
        if tokenizer.head:
            return {"mean": mean, "cls": hidden[:, 0]}
        last = tf.reduce_sum(part["input_mask"], axis=1) - 1
        return {"mean": mean, "cls": tf.gather(hidden, last, axis=1, batch_dims=1)}

    return in_parts(pool, batch)

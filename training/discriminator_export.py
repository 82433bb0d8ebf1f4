"""Exports ELECTRA's discriminator, which finds the words of a text that were replaced."""

from collections.abc import Sequence

import numpy as np

from training import loop
from training.backend import tf
from modeling.encoders.config import EncoderConfig
from modeling.objectives.replaced_tokens import DiscriminatorModel
from serving import export, forms
from text.instances import packing
from text.instances.pack_graph import pack
from text.records import rows
from text.tasks.in_parts import in_parts
from text.tokenizers.tokenizer import Tokenizer

_CHECKED = 2  # samples whose outputs of the network alone are compared
_SAMPLES = (
    "The chef ate the meal.",
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
    """Exports the discriminator of a trainer; returns the folder.

    From raw text, serving_default returns where each token is and the probability that it
    was replaced.

    Args:
        max_predictions_per_seq: not used; no token is masked.
    Raises:
        UserError: see `export.save`.
    """
    del max_predictions_per_seq
    model = export.make_model(
        lambda: DiscriminatorModel(config, dtype=dtype), trainer.weights
    )
    layout = rows.Layout(max_seq_length, pad_id=tokenizer.vocabulary.pad_id)
    made = [_row(tokenizer, text, max_seq_length) for text in _SAMPLES]
    batch = layout.pack([row for row, _, _ in made])
    batch = {name: value.astype(np.int32) for name, value in batch.items()}
    requests = [{"text": text} for text in _SAMPLES]

    def find(tokenizer, predict, text):
        return _find(tokenizer, predict, text, max_seq_length)

    some = {name: value[:_CHECKED] for name, value in batch.items()}
    product = export.Product(
        model=model,
        dtype=dtype,
        config=config,
        tokenizer=tokenizer,
        layout=layout,
        form="replaced",
        inputs={"text": "text"},
        serve=find,
        description={"task": "Pretraining", "global_step": trainer.progress.step},
        requests=requests,
        answers=forms.answers(
            "replaced",
            _expected(model, batch, made, len(tokenizer.vocabulary.head)),
            requests,
        ),
        batch=some,
        outputs=export.predict(model, some),
        formats=formats,
    )
    return export.save(output_dir, product)


def _row(tokenizer, text, max_seq_length):
    """A row of the network, and where its tokens are in the text."""
    ids, starts, ends = tokenizer.encode_with_offsets(text)
    ids, segments, _ = packing.pack(tokenizer.vocabulary, ids, None, max_seq_length)
    most = len(ids) - 2
    return rows.Row(ids, segments, {}), starts[:most], ends[:most]


def _expected(model, batch, made, begin):
    """What serving_default must return; texts begin at the position `begin`."""
    logits = export.predict(model, batch)["discriminator_logits"]
    found = {
        "starts": np.full(logits.shape, -1),
        "ends": np.full(logits.shape, -1),
        "probabilities": np.zeros(logits.shape, np.float32),
    }
    for row, (_, starts, ends) in enumerate(made):
        found["starts"][row, : len(starts)] = starts
        found["ends"][row, : len(ends)] = ends
        own = logits[row, begin : begin + len(starts)]
        own = np.float32(1.0) / (1.0 + np.exp(-own))
        found["probabilities"][row, : len(starts)] = own
    return found


def _find(tokenizer, predict, text, max_seq_length):
    """In a graph: the tokens of texts and how probably each was replaced."""
    ids, starts, ends = tokenizer.encode_with_offsets(text)
    batch = pack(tokenizer, ids, None, max_seq_length)

    def of_tokens(part):
        return {"logits": predict(part)["discriminator_logits"]}

    logits = in_parts(of_tokens, batch)["logits"]
    most = tf.maximum(tf.shape(batch["input_ids"])[1] - 2, 0)
    lengths = tf.minimum(ids.row_lengths(), max_seq_length - 2)
    exists = tf.sequence_mask(lengths, most)
    begin = len(tokenizer.head)
    probabilities = tf.sigmoid(logits[:, begin : begin + most])
    return {
        "starts": tf.where(exists, starts.to_tensor()[:, :most], -1),
        "ends": tf.where(exists, ends.to_tensor()[:, :most], -1),
        "probabilities": tf.where(exists, probabilities, 0.0),
    }

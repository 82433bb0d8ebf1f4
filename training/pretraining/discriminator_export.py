"""Exports ELECTRA's discriminator, which finds the words of a text that were replaced."""

import numpy as np

from training.backend import tf
from training.pretraining import text_export
from training.run import loop
from modeling.objectives.replaced_tokens import DiscriminatorModel
from serving import export, forms
from text.instances import packing
from text.instances.pack_graph import pack
from text.records import rows
from text.tasks.in_parts import in_parts
from training.pretraining.text_export import Wanted

_SAMPLES = (
    "The chef ate the meal.",
    "",
    "Zürich ΑΘΗΝΑ, 東京 서울",
    "one of many words " * 200,
)


def save(trainer: loop.Trainer, output_dir: str, wanted: Wanted) -> str:
    """Exports the discriminator of a trainer; returns the folder.

    From raw text, serving_default returns where each token is and the probability that it
    was replaced.

    Raises:
        UserError: see `export.save`.
    """
    tokenizer, max_seq_length = wanted.tokenizer, wanted.max_seq_length
    model = export.make_model(
        lambda: DiscriminatorModel(wanted.config, dtype=wanted.dtype), trainer.weights
    )
    made = [_row(tokenizer, text, max_seq_length) for text in _SAMPLES]
    batch = wanted.pack([row for row, _, _ in made])
    requests = [{"text": text} for text in _SAMPLES]
    expected = _expected(model, batch, made, len(tokenizer.vocabulary.head))

    def find(tokenizer, predict, text):
        return _find(tokenizer, predict, text, max_seq_length)

    return text_export.save(
        trainer,
        output_dir,
        wanted,
        model=model,
        form="replaced",
        serve=find,
        texts=_SAMPLES,
        batch=batch,
        answers=forms.answers("replaced", expected, requests),
    )


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

"""Exports of discriminators, which say which tokens of a text were replaced."""

import numpy as np

from training.backend import tf
from family.electra.replaced_tokens import DiscriminatorModel
from serving import export, forms
from text.graphs.packing_graph import pack
from text.graphs.row_chunks import run_in_chunks
from text.instances import packing
from text.records import rows
from training.pretraining.exports import LONG_TEXT, TextExport


class ReplacedExport(TextExport):
    """Where each token of a text is, and the probability that it was replaced."""

    form = "replaced"
    samples = ("The chef ate the meal.", "", "Zürich ΑΘΗΝΑ, 東京 서울", LONG_TEXT)

    def network(self):
        return DiscriminatorModel(self.settings.config, dtype=self.settings.dtype)

    def row(self, text):
        ids = self.tokenizer.encode(text)
        packed = packing.pack(self.vocabulary, ids, None, self.max_seq_length)
        return rows.Row(*packed[:2], {})

    def answers(self, batch):
        logits = export.predict(self.model, batch)["discriminator_logits"]
        outputs = {
            "starts": np.full(logits.shape, -1),
            "ends": np.full(logits.shape, -1),
            "probabilities": np.zeros(logits.shape, np.float32),
        }
        begin = len(self.vocabulary.head)
        for row, text in enumerate(self.samples):
            _, starts, ends = self.tokenizer.encode_with_offsets(text)
            most = min(len(starts), int(batch["input_mask"][row].sum()) - 2)
            outputs["starts"][row, :most] = starts[:most]
            outputs["ends"][row, :most] = ends[:most]
            own = logits[row, begin : begin + most]
            own = np.float32(1.0) / (1.0 + np.exp(-own))
            outputs["probabilities"][row, :most] = own
        return forms.answers(self.form, outputs, [{"text": t} for t in self.samples])

    def serve(self, tokenizer, predict, text):
        ids, starts, ends = tokenizer.encode_with_offsets(text)
        batch = pack(tokenizer, ids, None, self.max_seq_length)
        logits = run_in_chunks(predict, batch)["discriminator_logits"]
        most = tf.maximum(tf.shape(batch["input_ids"])[1] - 2, 0)
        lengths = tf.minimum(ids.row_lengths(), self.max_seq_length - 2)
        exists = tf.sequence_mask(lengths, most)
        begin = len(tokenizer.head)
        probabilities = tf.sigmoid(logits[:, begin : begin + most])
        return {
            "starts": tf.where(exists, starts.to_tensor()[:, :most], -1),
            "ends": tf.where(exists, ends.to_tensor()[:, :most], -1),
            "probabilities": tf.where(exists, probabilities, 0.0),
        }

"""Exports of language models, which give the next tokens of a text."""

from training.backend import tf
from family.gpt.next_token import LastTokenModel
from serving import export
from text.graphs.row_chunks import run_in_chunks
from text.records import rows
from training.pretraining.exports import LONG_TEXT, TextExport, find_best


class ContinuationExport(TextExport):
    """The most probable next tokens; of a text that does not fit, it reads the end."""

    form = "next"
    samples = ("The meaning of the", "", "Zürich ΑΘΗΝΑ, 東京 서울", LONG_TEXT)

    def network(self):
        return LastTokenModel(self.settings.config, dtype=self.settings.dtype)

    def row(self, text):
        ids = self.tokenizer.encode(text)[1 - self.max_seq_length :]
        return rows.Row([self.vocabulary.cls_id, *ids], [0] * (len(ids) + 1), {})

    def answers(self, batch):
        logits = export.predict(self.model, batch)["next_token_logits"]
        return [{"tokens": tokens} for tokens in self.best_tokens(logits)]

    def serve(self, tokenizer, predict, text):
        ids = tokenizer.encode(text)[:, 1 - self.max_seq_length :]
        starts = tf.fill([tf.shape(text)[0], 1], tokenizer.cls_id)
        ids = tf.concat([starts, tf.cast(ids, tf.int32)], axis=1)
        padded = ids.to_tensor(tokenizer.pad_id)
        mask = tf.sequence_mask(ids.row_lengths(), tf.shape(padded)[1], tf.int32)
        batch = {
            "input_ids": padded,
            "input_mask": mask,
            "segment_ids": tf.zeros_like(padded),
        }
        best = run_in_chunks(
            predict,
            batch,
            lambda outputs, _: find_best(outputs["next_token_logits"], tokenizer),
        )
        return {
            "tokens": tokenizer.tokens(best["ids"]),
            "probabilities": best["probabilities"],
        }

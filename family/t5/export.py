"""Exports of a pre-trained T5, which writes what is left out of a text."""

from family.t5 import as_text, as_text_graph
from family.t5.text_to_text import Generation
from serving import export
from text.graphs.row_chunks import run_in_chunks
from text.records import rows
from training.pretraining.exports import LONG_TEXT, TextExport


class SpansExport(TextExport):
    """The sentinels of a text, each with what the model writes after it.

    It writes not more tokens than the targets of pre-training had.
    """

    form = "text"

    def __init__(self, trainer, settings):
        super().__init__(trainer, settings)
        texts = (
            "Returns the {0} of items in the {1}",
            "",
            "{0} Zürich ΑΘΗΝΑ, 東京 서울",
            LONG_TEXT,
        )
        sentinels = self.vocabulary.sentinels[:2]
        names = [self.vocabulary.texts[id] for id in sentinels]
        self.samples = [text.format(*names) for text in texts]

    def network(self):
        _, length = self.trainer.objective.sizes
        writer = Generation(length).for_evaluation
        return writer.network(self.settings.config, dtype=self.settings.dtype)

    def row(self, text):
        ids = self.tokenizer.encode(text)
        ids, _ = as_text.row(self.vocabulary, ids, self.max_seq_length)
        return rows.Row(ids, [0] * len(ids), {})

    def answers(self, batch):
        written = export.predict(self.model, batch)["output_ids"].tolist()
        return [{"predicted": self.vocabulary.text_of(ids)} for ids in written]

    def serve(self, tokenizer, predict, text):
        ids = tokenizer.encode(text)
        batch = as_text_graph.rows(tokenizer, ids, self.max_seq_length)
        written = run_in_chunks(predict, batch)["output_ids"]
        return {"predicted": tokenizer.text_of(written)}

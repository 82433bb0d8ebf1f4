"""Distillation in pre-training: a student learns the words that its teacher expects.

DistilBERT's code (arXiv:1910.01108, huggingface/transformers, distillation/distiller.py)
compares the logits over the vocabulary at every token or, if told to, at the masked ones.
"""

from keras import ops

from errors import UserError, setting
from modeling.distillation import soft_words
from modeling.distillation.distilled import (
    TEACHERS,
    Distilled,
    Student,
    token_weights,
)
from modeling.distillation.soft_words import Words

_PARTS = ("word_hidden", "word_table", "word_bias")


class DistilledWords(Distilled):
    """An objective on masked words, with a live teacher that has a masked-LM head.

    Args:
        tokens: where words are compared; one of `modeling.distillation.TOKENS`.
        others: as for `Distilled`; the teacher is a `MaskedLMModel`.
    """

    def __init__(self, task, settings, teacher, teacher_config, tokens: str):
        super().__init__(task, settings, teacher, teacher_config)
        self._masked_only = tokens == "masked"
        # KL without a temperature would take passes over all logits of its own.
        unknown = {"teacher_kl"} if settings.weight else {"teacher_kl", "agreement"}
        self.metric_names = tuple(n for n in self.metric_names if n not in unknown)

    def check(self, config) -> None:
        super().check(config)
        student, teacher = config.vocab_size, self._teacher_config.vocab_size
        if student != teacher:
            raise UserError(
                f"vocab_size is {student}, but the teacher's is {teacher}; student and "
                "teacher need the same vocabulary"
            )
        if self.inner.needs.sentence_task and not self.settings.hard_weight:
            raise UserError(
                f"with {setting('hard_weight', 0)}, nothing teaches the head for sentence "
                f"pairs; pass {setting('objective', 'masked_lm')}, or "
                f"{setting('hard_weight')}"
            )

    def student(self, network, *args, **settings):
        if not (self.settings.weight or self.settings.hard_weight):
            # No loss reaches the head, and weight decay would shrink it.
            network.masked_lm.trainable = False
        compare = self._compare_words if self.settings.weight else None
        return WordStudent(network, *args, self.answers, compare, **settings)

    def answers(self, teacher, encoded, batch):
        if not self.settings.weight:
            return {}
        words = self._words(teacher, encoded, batch)
        return dict(zip(_PARTS, words, strict=True))

    def answer_weights(self, batch):
        if self._masked_only:
            return super().answer_weights(batch)
        return token_weights(batch)

    def of_answers(self, batch, outputs):
        return outputs["distill_loss"], ops.sum(self.answer_weights(batch))

    def agreement(self, batch, outputs):
        if not self.settings.weight:
            return {}
        weight = ops.sum(self.answer_weights(batch))
        return {"agreement": (outputs["agreement"], weight)}

    def _words(self, network, encoded, batch) -> Words:
        head, hidden = network.masked_lm, encoded["sequence_output"]
        if self._masked_only:
            hidden = head.at(hidden, batch["masked_lm_positions"])
        else:
            hidden = head.transform(hidden)
        return Words(
            ops.reshape(hidden, (-1, hidden.shape[-1])),
            # As tensors, because only those may enter a custom gradient.
            ops.cast(network.encoder.word_embeddings, hidden.dtype),
            ops.cast(head.output_bias, "float32"),
        )

    def _compare_words(self, network, encoded, batch, answers) -> dict:
        """The sums that compare the words of student and teacher."""
        loss, same = soft_words.compare(
            self._words(network, encoded, batch),
            Words(*(ops.stop_gradient(answers[TEACHERS + n]) for n in _PARTS)),
            ops.reshape(self.answer_weights(batch), (-1,)),
            self.settings.loss,
            self.settings.temperature,
        )
        return {"distill_loss": loss, "agreement": same}


class WordStudent(Student):
    """A network with a masked-LM head whose words are compared with a teacher's.

    Args:
        compare: (network, what it encoded, batch, the teacher's answers) -> more outputs;
            None if words are not compared.
        others: as for `Student`.
    """

    def __init__(self, network, teacher, pairs, width, answers, compare, **settings):
        super().__init__(network, teacher, pairs, width, answers, **settings)
        self._compare = compare

    def compare(self, encoded, batch, answers):
        if not self._compare:
            return {}
        return self._compare(self.network, encoded, batch, answers)

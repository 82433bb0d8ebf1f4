"""Masked words, and whether two spans are swapped: ALBERT's pre-training."""

from modeling.objectives.sentence_pairs import MaskedLMNextSentence, PretrainingModel


class SentenceOrderModel(PretrainingModel):
    """The same, but that its logits are called sentence_order_logits."""

    sentence_task = "sentence_order"


class MaskedLMSentenceOrder(MaskedLMNextSentence):
    """Masked words and sentence order, summed with equal weight.

    In next_sentence_labels, 0 is in order and 1 is swapped.

    Source: google-research/albert@b772393 run_pretraining.py:170-177, 255-270, 340-361.
    """

    loss_weights = {"masked_lm_loss": 1.0, "sentence_order_loss": 1.0}
    metric_names = ("masked_lm_accuracy", "sentence_order_accuracy")
    needs = MaskedLMNextSentence.needs._replace(sentence_task="sentence_order")

    def network(self, config, *, seed=0, dtype="float32") -> SentenceOrderModel:
        return SentenceOrderModel(config, seed=seed, dtype=dtype)

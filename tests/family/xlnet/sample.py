"""A small XLNet, for tests that try every model."""

import numpy as np

from family.xlnet.encoder import XlnetConfig
from family.xlnet.permuted import DrawSpans, Permuted
from tests import samples
from text.instances.masking import prediction_counts

CONFIGS = {"xlnet": XlnetConfig(9, 16, 2, 2, 8, 16, "gelu", True)}
_COUNTS = prediction_counts(np.arange(65), 0.15)
COMPILED = {
    "permuted": samples.Compiled(
        Permuted(mem_len=6, reuse_len=32),
        XlnetConfig(3000, 8, 1, 2, 4, 16, "gelu", True),
        (DrawSpans(alpha=6, beta=1, reuse_len=32, counts=_COUNTS, **samples.DRAWN),),
    )
}
DIVIDED = {
    "permuted": samples.Divided(
        Permuted,
        XlnetConfig(
            *(3000, 16, 1, 2, 8, 32, "gelu", True),
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            initializer_range=0.3,
        ),
        "permuted_lm_logits",
        steps=(DrawSpans(alpha=6, beta=1, counts=np.full(65, 10), **samples.DRAWN),),
    )
}
FINE_TUNED = {"xlnet": ("SequenceClassification", "QuestionAnswering")}

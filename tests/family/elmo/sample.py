"""A small ELMo, for tests that try every model."""

from family.elmo.bidirectional_lm import BidirectionalLM
from family.elmo.encoder import ElmoConfig
from tests import samples

CONFIGS = {"elmo": ElmoConfig(9, hidden_size=16, lstm_size=12)}
COMPILED = {
    "both neighbours": samples.Compiled(
        BidirectionalLM(),
        ElmoConfig(3000, hidden_size=8, lstm_size=6, num_hidden_layers=1),
    )
}
DIVIDED = {
    "both neighbours": samples.Divided(
        BidirectionalLM,
        ElmoConfig(
            3000,
            hidden_size=16,
            num_hidden_layers=1,
            lstm_size=12,
            hidden_dropout_prob=0.0,
            initializer_range=4.0,
            projection_clip=None,
        ),
        "sequence_output",
    )
}
FINE_TUNED = {"elmo": ("MultipleChoice",)}
FIRST_HEADS = {"elmo": 0.1}

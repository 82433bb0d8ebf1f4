"""What a head may read of a frozen encoder: BERT's table 7, ELMo's mix; loads no Keras."""

EMBEDDINGS, MIX = "embeddings", "mix"
# Which outputs of the encoder to use, and how many layers it needs for them.
FEATURES = {
    EMBEDDINGS: 1,
    "second_to_last": 2,
    "last": 1,
    "sum_last_four": 4,
    "concat_last_four": 4,
    "weighted_sum_last_four": 4,
    "weighted_sum_all": 1,
    MIX: 1,
}
LSTM_LAYERS = 2  # between these outputs and the head

"""What a tagger may read of a frozen encoder, in the paper's table 7; loads no Keras."""

# Which outputs of the encoder to use, and how many layers it needs for them.
FEATURES = {
    "embeddings": 1,
    "second_to_last": 2,
    "last": 1,
    "sum_last_four": 4,
    "concat_last_four": 4,
    "weighted_sum_last_four": 4,
    "weighted_sum_all": 1,
}
LSTM_LAYERS = 2  # between these outputs and the head

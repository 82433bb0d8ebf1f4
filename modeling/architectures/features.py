"""What heads may read of an encoder, by name; loads no Keras.

Of a frozen one, BERT's table 7 and ELMo's mix; and what makes one vector of all tokens.
"""

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

# How the vectors of a text's tokens become one; `modeling/pooling.py` has the functions.
TOKEN_POOLINGS = ("mean", "cls", "last", "max", "weighted_mean")

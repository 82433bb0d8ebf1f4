"""LSTMs in numpy, with Keras's order of gates."""

import numpy as np


def lstm(inputs, weights, name):
    """[s, any] -> [s, size]"""
    kernel, recurrent, bias = (
        weights[f"{name}/lstm_cell/{part}"]
        for part in ("kernel", "recurrent_kernel", "bias")
    )

    def sigmoid(x):
        return 1.0 / (1.0 + np.exp(-x))

    state = carry = np.zeros(len(recurrent))
    outputs = []
    for x in inputs:
        i, f, c, o = np.split(x @ kernel + state @ recurrent + bias, 4)
        carry = sigmoid(f) * carry + sigmoid(i) * np.tanh(c)
        state = sigmoid(o) * np.tanh(carry)
        outputs.append(state)
    return np.array(outputs)


def bilstm(hidden, weights, num_layers):
    """[s, any] -> [s, 2 * size], through lstm_0, lstm_1, ..."""
    for number in range(num_layers):
        forward = lstm(hidden, weights, f"lstm_{number}/forward_lstm")
        backward = lstm(hidden[::-1], weights, f"lstm_{number}/backward_lstm")[::-1]
        hidden = np.concatenate([forward, backward], axis=-1)
    return hidden
